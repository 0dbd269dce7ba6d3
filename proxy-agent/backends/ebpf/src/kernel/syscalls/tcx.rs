//! Programs on devices (Linux 6.6): links to them, and what is attached, by whomever.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
};

use super::{
    BPF_LINK_CREATE, BPF_LINK_GET_FD_BY_ID, BPF_PROG_QUERY, BpfKind, attr, bpf, identity, info, own,
};

const BPF_LINK_TYPE_TCX: u32 = 11;

/// More than the kernel lets be attached to one hook of a device.
const MOST: usize = 64;

/// Where a program meets the packets of a device: `enum bpf_attach_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcxHook {
    /// Those that it received.
    Ingress = 46,
    /// Those that it is to send.
    Egress = 47,
}

/// Where a link to a device leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcxLink {
    /// The number of the device, in whatever network namespace it is; 0 once it is gone.
    pub device: u32,
    /// Id of the program behind it.
    pub program: u32,
    /// The hook: `enum bpf_attach_type`.
    pub hook: u32,
}

/// A program on a hook of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnDevice {
    /// Its id.
    pub program: u32,
    /// The id of its link, unless it was attached without one.
    pub link: Option<u32>,
}

/// Attaches `program` before all others on a hook of a device; while the link is held or pinned.
pub fn attach_tcx(program: impl AsFd, device: u32, hook: TcxHook) -> io::Result<OwnedFd> {
    /// Before the first, where no other is named.
    const BPF_F_BEFORE: u32 = 1 << 3;
    let program = program.as_fd().as_raw_fd().to_ne_bytes();
    let hook = (hook as u32).to_ne_bytes();
    let mut attr = attr(&[
        (0, &program),
        (4, &device.to_ne_bytes()),
        (8, &hook),
        (12, &BPF_F_BEFORE.to_ne_bytes()),
    ]);
    // SAFETY: no address is among the attributes.
    own(unsafe { bpf(BPF_LINK_CREATE, &mut attr) }?)
}

/// What a link is attached to; `None` when it is no link to a device.
pub fn tcx_link(link: impl AsFd) -> io::Result<Option<TcxLink>> {
    // struct bpf_link_info: type, id, prog_id, (padding), then for devices: ifindex, attach_type.
    let kind = identity(&link)?.kind;
    let info = info(link)?;
    let is_tcx = kind == BpfKind::Link && info[0] == BPF_LINK_TYPE_TCX;
    Ok(is_tcx.then_some(TcxLink {
        device: info[4],
        program: info[2],
        hook: info[5],
    }))
}

/// The programs on a hook of a device of this network namespace, in the order in which they run.
/// `None` where the kernel has no such hooks.
pub fn on_device(device: u32, hook: TcxHook) -> io::Result<Option<Vec<OnDevice>>> {
    let mut programs = [0_u32; MOST];
    let mut links = [0_u32; MOST];
    let room = u32::try_from(MOST).expect("64 fits").to_ne_bytes();
    // target_ifindex, attach_type, query_flags, attach_flags, prog_ids (u64), count, (padding),
    // prog_attach_flags (u64), link_ids (u64).
    let mut attr = attr(&[
        (0, &device.to_ne_bytes()),
        (4, &(hook as u32).to_ne_bytes()),
        (16, &(programs.as_mut_ptr() as u64).to_ne_bytes()),
        (24, &room),
        (40, &(links.as_mut_ptr() as u64).to_ne_bytes()),
    ]);
    // SAFETY: in both lists there is room for as many ids as `count` says.
    match unsafe { bpf(BPF_PROG_QUERY, &mut attr) } {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(None),
        // There are more; as many as fit are told.
        Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {}
        result => drop(result?),
    }
    let count = u32::from_ne_bytes([attr[24], attr[25], attr[26], attr[27]]) as usize;
    let all = programs.into_iter().zip(links).take(count);
    Ok(Some(
        all.map(|(program, link)| OnDevice {
            program,
            link: (link != 0).then_some(link),
        })
        .collect(),
    ))
}

/// The link with this id, whether pinned or not. EPERM without `CAP_SYS_ADMIN`.
pub fn link_with_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: no address is among the attributes.
    own(unsafe { bpf(BPF_LINK_GET_FD_BY_ID, &mut attr(&[(0, &id.to_ne_bytes())])) }?)
}

/// A program for devices that leaves every packet to the next one.
#[cfg(test)]
pub fn load_classifier(name: &str) -> io::Result<OwnedFd> {
    const BPF_PROG_LOAD: libc::c_long = 5;
    const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
    // r0 = -1; exit.
    let code: [u64; 2] = [0xffff_ffff_0000_00b7, 0x95];
    let license = c"GPL";
    let mut attr = attr(&[
        (0, &BPF_PROG_TYPE_SCHED_CLS.to_ne_bytes()),
        (4, &2_u32.to_ne_bytes()),
        (8, &(code.as_ptr() as u64).to_ne_bytes()),
        (16, &(license.as_ptr() as u64).to_ne_bytes()),
        (48, name.as_bytes()),
    ]);
    // SAFETY: there are two instructions, the licence ends with a zero byte, and both live until the
    // end of this function.
    own(unsafe { bpf(BPF_PROG_LOAD, &mut attr) }?)
}

/// Has the kernel count how often programs run, while this is held (Linux 5.8).
#[cfg(test)]
pub fn count_runs() -> io::Result<OwnedFd> {
    const BPF_ENABLE_STATS: libc::c_long = 32;
    // SAFETY: no address is among the attributes.
    own(unsafe { bpf(BPF_ENABLE_STATS, &mut attr(&[])) }?)
}

/// How often a program ran while the kernel counted.
#[cfg(test)]
pub fn run_count(program: impl AsFd) -> io::Result<u64> {
    let fd = program.as_fd().as_raw_fd();
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("run_cnt:"));
    let count = line.and_then(|count| count.trim().parse().ok());
    count.ok_or_else(|| io::Error::other("the kernel does not count"))
}
