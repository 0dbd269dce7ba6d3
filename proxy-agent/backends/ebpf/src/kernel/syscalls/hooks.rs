//! What is attached to the hooks of a cgroup, by whomever, and what such a program is called.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _},
};

use super::{BPF_PROG_GET_FD_BY_ID, BPF_PROG_QUERY, attr, bpf, info, own};

/// More than the kernel lets be attached to one cgroup (`BPF_CGROUP_MAX_PROGS`), but for those of
/// cgroups above.
const MOST: usize = 256;

/// The programs on one hook of a cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnHook {
    /// Their ids, in the order in which they run.
    pub programs: Vec<u32>,
    /// Whether there may be more.
    pub allows_others: bool,
    /// Whether there may be some on cgroups below; `None` where the next one above decides.
    pub allows_below: Option<bool>,
}

/// What is attached to a hook of `cgroup` itself.
pub fn on_hook(cgroup: impl AsFd, hook: u32) -> io::Result<OnHook> {
    const BPF_F_ALLOW_OVERRIDE: u32 = 1;
    const BPF_F_ALLOW_MULTI: u32 = 2;
    let (flags, programs) = query(cgroup, hook, 0)?;
    let multi = flags & BPF_F_ALLOW_MULTI != 0;
    let overridden = flags & BPF_F_ALLOW_OVERRIDE != 0;
    let some = !programs.is_empty();
    Ok(OnHook {
        programs,
        allows_others: !some || multi,
        allows_below: (multi || some).then_some(multi || overridden),
    })
}

/// Ids of the programs that run on this hook for sockets in `cgroup`: its own, and those of the
/// cgroups above, whether these can be seen from here or not.
pub fn in_effect(cgroup: impl AsFd, hook: u32) -> io::Result<Vec<u32>> {
    const BPF_F_QUERY_EFFECTIVE: u32 = 1;
    query(cgroup, hook, BPF_F_QUERY_EFFECTIVE).map(|(_, programs)| programs)
}

/// Flags of the attachment, and ids.
fn query(cgroup: impl AsFd, hook: u32, flags: u32) -> io::Result<(u32, Vec<u32>)> {
    let cgroup = cgroup.as_fd().as_raw_fd().to_ne_bytes();
    let mut ids = vec![0_u32; MOST];
    let room = u32::try_from(MOST).expect("256 fits").to_ne_bytes();
    // target_fd, attach_type, query_flags, attach_flags, prog_ids (u64), prog_cnt.
    let mut attr = attr(&[
        (0, &cgroup),
        (4, &hook.to_ne_bytes()),
        (8, &flags.to_ne_bytes()),
        (16, &(ids.as_mut_ptr() as u64).to_ne_bytes()),
        (24, &room),
    ]);
    // SAFETY: there is room for as many ids as `prog_cnt` says.
    match unsafe { bpf(BPF_PROG_QUERY, &mut attr) } {
        // There are more; as many as fit are told.
        Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {}
        result => drop(result?),
    }
    let word = |at: usize| u32::from_ne_bytes([attr[at], attr[at + 1], attr[at + 2], attr[at + 3]]);
    ids.truncate((word(24) as usize).min(MOST));
    Ok((word(12), ids))
}

/// The name of a program, of which the kernel keeps 15 characters. EPERM without `CAP_SYS_ADMIN`.
pub fn program_name(id: u32) -> io::Result<String> {
    /// Where it is in `struct bpf_prog_info`, in words of 32 bits.
    const NAME: std::ops::Range<usize> = 16..20;
    // SAFETY: no address is among the attributes.
    let program =
        own(unsafe { bpf(BPF_PROG_GET_FD_BY_ID, &mut attr(&[(0, &id.to_ne_bytes())])) }?)?;
    let told = info(program)?;
    let name = told[NAME].iter().flat_map(|word| word.to_ne_bytes());
    let name: Vec<u8> = name.take_while(|byte| *byte != 0).collect();
    // Whoever may load programs chose it.
    Ok(String::from_utf8_lossy(&name).escape_debug().to_string())
}
