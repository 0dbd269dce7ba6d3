//! Whether this process may do what the backend needs, asked before anything is changed, so that
//! the answer is one line and not the first system call that fails.

use std::{fs, io};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::{
    OpenError,
    error::{RIGHTS, of_io},
    release::{self, CHARGES_CGROUPS},
    syscalls,
};

// Bits of `CapEff` in /proc/self/status, capabilities(7).
const NET_ADMIN: u64 = 1 << 12;
const SYS_ADMIN: u64 = 1 << 21;
const SYS_RESOURCE: u64 = 1 << 24;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;

/// Refuses a process that lacks the capabilities, or the system call.
pub fn check() -> Result<(), OpenError> {
    let failed = |error: &io::Error| of_io(error, "reading this process's capabilities");
    let missing = missing().map_err(|error| failed(&error))?;
    if !missing.is_empty() {
        return Err(OpenError::Host(format!(
            "the eBPF backend needs rights this process does not have: {} missing; {RIGHTS}",
            missing.join(", ")
        )));
    }
    system_call().map_err(|text| OpenError::Host(format!("bpf(2): {text}")))
}

/// Whether bpf(2) answers this process. Otherwise what is wrong and, after the last semicolon, what
/// to do.
pub fn system_call() -> Result<(), String> {
    let Err(error) = syscalls::answers() else {
        return Ok(());
    };
    let denied = error.raw_os_error() != Some(libc::ENOSYS);
    // Runtimes answer either way for what their profile does not list.
    Err(if is_filtered() && (denied || kernel_has_it()) {
        format!("{error}: this process's seccomp filter denies it, not the kernel; {FILTERED}")
    } else if denied {
        format!("{error}: a security module denies it; allow bpf(2) in its policy")
    } else {
        format!("{error}; use a kernel that is built with CONFIG_BPF_SYSCALL")
    })
}

/// The profiles of older container runtimes let only `CAP_SYS_ADMIN` pass.
const FILTERED: &str = "use a container runtime whose default profile knows CAP_BPF, or give the \
                        container seccompProfile Unconfined or a profile that allows bpf(2)";

/// Whether the kernel knows the file system that comes with the system call.
fn kernel_has_it() -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.lines().any(|line| line.ends_with("\tbpf"))
}

/// The capabilities that this process lacks.
pub fn missing() -> io::Result<Vec<&'static str>> {
    let held = held()?;
    let mut missing = lacking(held);
    if held & SYS_RESOURCE == 0 && limits_locked_memory() {
        missing.push("CAP_SYS_RESOURCE (before Linux 5.11, maps count as locked memory)");
    }
    Ok(missing)
}

/// Whether maps count against this process's limit of locked memory (before 5.11), and it has one:
/// the default is 64 KiB, which holds none of ours.
fn limits_locked_memory() -> bool {
    let charged = release::running().is_some_and(|version| version < CHARGES_CGROUPS);
    let limit = getrlimit(Resource::RLIMIT_MEMLOCK);
    charged && limit.is_ok_and(|(soft, _)| soft != RLIM_INFINITY)
}

/// Whether a process of which this is `/proc/PID/status` has what an agent needs. What cannot be
/// told counts as yes.
pub fn suffices(status: &str) -> bool {
    effective(status).is_none_or(|held| lacking(held).is_empty())
}

/// Whether the verifier spares programs of this process what it asks of others about pointers: some
/// kernels refuse without (kernel 5.8 and later: `perfmon_capable()`).
pub fn spares_pointers() -> bool {
    held().is_ok_and(|held| held & (PERFMON | SYS_ADMIN) != 0)
}

/// Whether this process may mount file systems.
pub fn may_mount() -> bool {
    held().is_ok_and(|held| held & SYS_ADMIN != 0)
}

/// Whether a seccomp filter decides about the system calls of this process, as far as it can tell.
fn is_filtered() -> bool {
    fs::read_to_string(STATUS).is_ok_and(|status| filtered(&status))
}

const STATUS: &str = "/proc/self/status";

fn held() -> io::Result<u64> {
    let status = fs::read_to_string(STATUS)?;
    let missing = || io::Error::other(format!("{STATUS} does not list them"));
    effective(&status).ok_or_else(missing)
}

/// The mode of a filter, as `proc_pid_status(5)` has it.
fn filtered(status: &str) -> bool {
    let mode = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() == "2")
}

fn effective(status: &str) -> Option<u64> {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// Before Linux 5.8 split it off, `CAP_SYS_ADMIN` was what `CAP_BPF` is now, and still is. The third
/// right, `CAP_PERFMON`, is the verifier's to ask for: [`spares_pointers`].
fn lacking(held: u64) -> Vec<&'static str> {
    let wanted = [("CAP_BPF", BPF | SYS_ADMIN), ("CAP_NET_ADMIN", NET_ADMIN)];
    wanted
        .into_iter()
        .filter(|(_, any)| held & any == 0)
        .map(|(name, _)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_or_what_every_kernel_asks_for_suffices() {
        assert_eq!(
            effective("Name:\tx\nCapEff:\t000001ffffffffff\n"),
            Some(0x1ff_ffff_ffff)
        );
        assert!(filtered(
            "NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n"
        ));
        assert!(!filtered("Seccomp:\t0\nSeccomp_filters:\t2\n"));
        for sufficient in [
            0x1ff_ffff_ffff,
            BPF | PERFMON | NET_ADMIN,
            BPF | NET_ADMIN,
            SYS_ADMIN | NET_ADMIN,
        ] {
            assert!(lacking(sufficient).is_empty(), "{sufficient:x}");
        }
        for (held, lacks) in [
            (0, &["CAP_BPF", "CAP_NET_ADMIN"][..]),
            (BPF | PERFMON, &["CAP_NET_ADMIN"]),
            (NET_ADMIN | PERFMON, &["CAP_BPF"]),
            (SYS_ADMIN, &["CAP_NET_ADMIN"]),
        ] {
            assert_eq!(lacking(held), lacks, "{held:x}");
        }
    }
}
