//! The bpf(2) commands that aya does not offer for cgroup links: opening a pinned link, asking what
//! it is attached to, putting another program behind it in place, and detaching it at once.

#![expect(unsafe_code, reason = "bpf(2) has no safe wrapper for these commands")]

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

// Commands and types of `linux/bpf.h`; numbers are kernel ABI and never change.
const BPF_OBJ_GET: libc::c_long = 7;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_LINK_UPDATE: libc::c_long = 29;
const BPF_LINK_DETACH: libc::c_long = 34;
const BPF_LINK_TYPE_CGROUP: u32 = 3;

/// Size that attributes are padded to; the kernel accepts more than it knows if the rest is zero.
const ATTR_SIZE: usize = 128;

/// Where a cgroup link leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgroupLink {
    /// Id of the cgroup; 0 once the cgroup is gone: the link then does nothing.
    pub cgroup: u64,
    /// Id of the program behind it.
    pub program: u32,
}

fn bpf(command: libc::c_long, attr: &mut [u8; ATTR_SIZE]) -> io::Result<libc::c_long> {
    // SAFETY: `attr` is valid for `ATTR_SIZE` bytes; pointers inside it are the callers' duty.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_mut_ptr(), ATTR_SIZE) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn attr(parts: &[(usize, &[u8])]) -> [u8; ATTR_SIZE] {
    let mut attr = [0; ATTR_SIZE];
    for (offset, bytes) in parts {
        attr[*offset..*offset + bytes.len()].copy_from_slice(bytes);
    }
    attr
}

/// Opens a pinned object.
pub fn open_pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let pointer = (path.as_ptr() as u64).to_ne_bytes();
    let fd = bpf(BPF_OBJ_GET, &mut attr(&[(0, &pointer)]))?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel just gave this descriptor to us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What a link is attached to; `None` when it is no cgroup link.
pub fn cgroup_link(link: impl AsFd) -> io::Result<Option<CgroupLink>> {
    // struct bpf_link_info: type, id, prog_id, (padding), then for cgroups: cgroup_id (u64),
    // attach_type.
    let mut info = [0u8; ATTR_SIZE];
    let fd = link.as_fd().as_raw_fd().to_ne_bytes();
    let length = u32::try_from(info.len()).expect("128 fits").to_ne_bytes();
    let pointer = (info.as_mut_ptr() as u64).to_ne_bytes();
    bpf(
        BPF_OBJ_GET_INFO_BY_FD,
        &mut attr(&[(0, &fd), (4, &length), (8, &pointer)]),
    )?;
    let word = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    if word(0) != BPF_LINK_TYPE_CGROUP {
        return Ok(None);
    }
    let halves = [word(16).to_ne_bytes(), word(20).to_ne_bytes()].concat();
    let cgroup = u64::from_ne_bytes(halves.try_into().expect("two words are eight bytes"));
    Ok(Some(CgroupLink {
        cgroup,
        program: word(8),
    }))
}

/// Puts `program` behind `link` in place (Linux 5.7): no socket is served by none or by both.
pub fn replace_program(link: impl AsFd, program: impl AsFd) -> io::Result<()> {
    let link = link.as_fd().as_raw_fd().to_ne_bytes();
    let program = program.as_fd().as_raw_fd().to_ne_bytes();
    bpf(BPF_LINK_UPDATE, &mut attr(&[(0, &link), (4, &program)])).map(drop)
}

/// Detaches `link` (Linux 5.9). Removing its last pin would do so too, but some time later: the
/// kernel leaves that to a worker.
pub fn detach(link: impl AsFd) -> io::Result<()> {
    let link = link.as_fd().as_raw_fd().to_ne_bytes();
    bpf(BPF_LINK_DETACH, &mut attr(&[(0, &link)])).map(drop)
}
