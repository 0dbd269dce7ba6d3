//! Who makes a system call or, within the kernel, opens a connection: a process, or the kernel for
//! itself (a client of NFS, of Ceph, of a block device). What becomes of a refusal depends on it.

/// `PF_KTHREAD` of the kernel, in `task_struct.flags`: the same in every version that has hooks.
const PF_KTHREAD: u32 = 0x0020_0000;

/// What names of workers begin with. The kernel's clients connect from workers, all but a few.
const WORKER: [u8; 8] = *b"kworker/";

/// [`crate::names::TASK_FLAGS`]: nobody asks, because what is refused can be named.
pub const NOT_ASKED: u32 = 0;

/// [`crate::names::TASK_FLAGS`]: nobody knows where the flags are; the name must do.
pub const BY_NAME: u32 = u32::MAX;

/// Whether a task with these flags is a thread of the kernel.
#[inline(always)]
pub const fn is_kernel_thread(flags: u32) -> bool {
    flags & PF_KTHREAD != 0
}

/// Whether a task of this name is a worker of the kernel. A process may call itself so: its own
/// sockets are then left alone, nothing else.
#[inline(always)]
pub fn is_worker(name: &[u8; 16]) -> bool {
    let mut index = 0;
    while index < WORKER.len() {
        if name[index] != WORKER[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// What a socket is answered that leads nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The errno that says why.
    Named,
    /// EPERM, which is all that this kernel lets a program say.
    Denied,
    /// None: it dials what it dialled.
    LeftAlone,
}

/// The answer to a socket that leads nowhere. Clients in the kernel know what to do when a
/// connection is refused, or does not come about, but not when it is denied: that of NFS tries
/// again at once, without end, and takes the node with it (before Linux 6.10). No process has to
/// bear with less than an answer for that.
#[inline(always)]
pub fn answer(can_name: bool, is_kernel: impl FnOnce() -> bool) -> Answer {
    if can_name {
        Answer::Named
    } else if is_kernel() {
        Answer::LeftAlone
    } else {
        Answer::Denied
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kernel_is_left_alone_and_only_where_no_reason_can_be_given() {
        assert_eq!(answer(false, || true), Answer::LeftAlone);
        assert_eq!(answer(false, || false), Answer::Denied);
        for kernel in [true, false] {
            assert_eq!(answer(true, || kernel), Answer::Named);
        }
    }

    #[test]
    fn threads_of_the_kernel_are_told_by_their_flags() {
        // Of /proc/PID/stat: a worker, kthreadd, init, a shell.
        assert!(is_kernel_thread(69_238_880));
        assert!(is_kernel_thread(2_129_984));
        assert!(!is_kernel_thread(4_194_560));
        assert!(!is_kernel_thread(0));
    }

    #[test]
    fn workers_are_told_by_their_name() {
        assert!(is_worker(b"kworker/u8:3\0\0\0\0"));
        assert!(is_worker(b"kworker/0:1H-kbl"));
        for other in [
            b"kworker\0\0\0\0\0\0\0\0\0",
            b"mount.nfs4\0\0\0\0\0\0",
            &[0; 16],
        ] {
            assert!(!is_worker(other));
        }
    }
}
