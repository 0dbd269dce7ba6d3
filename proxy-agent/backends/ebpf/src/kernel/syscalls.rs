//! The bpf(2) commands that aya does not offer: for cgroup links, asking what one is attached to,
//! putting another program behind it in place, and detaching it at once; for anything, opening a
//! pin, pinning again and asking for the id; for programs, running one; for cgroups, what is attached (`hooks`); for devices, links
//! and what is attached (`tcx`); for maps, reading many entries at once (`table`).
//! And waiting for programs (`grace`).

#![expect(unsafe_code, reason = "bpf(2) has no safe wrapper for these commands")]

mod grace;
mod hooks;
mod table;
mod tcx;

use std::{
    ffi::CString,
    fmt, fs, io,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

pub use grace::wait_for_programs;
pub use hooks::{in_effect, on_hook, program_name};
pub use table::{Batch, Position, Table};
pub use tcx::{TcxHook, attach_tcx, link_with_id, on_device, tcx_link};
#[cfg(test)]
pub use tcx::{count_runs, load_classifier, run_count};

// Commands and types of `linux/bpf.h`; numbers are kernel ABI and never change.
const BPF_OBJ_PIN: libc::c_long = 6;
const BPF_OBJ_GET: libc::c_long = 7;
const BPF_PROG_TEST_RUN: libc::c_long = 10;
const BPF_PROG_GET_FD_BY_ID: libc::c_long = 13;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_PROG_QUERY: libc::c_long = 16;
const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_LINK_UPDATE: libc::c_long = 29;
const BPF_LINK_GET_FD_BY_ID: libc::c_long = 30;
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
    /// The hook: `enum bpf_attach_type`.
    pub hook: u32,
}

/// The system call.
///
/// # Safety
///
/// Every address in `attr` must be valid, until this returns, for all that `command` reads and
/// writes there: for how much, other fields of `attr` say, or the object that it is about.
unsafe fn bpf(command: libc::c_long, attr: &mut [u8; ATTR_SIZE]) -> io::Result<libc::c_long> {
    // SAFETY: `attr` is valid for `ATTR_SIZE` bytes; the caller answers for the addresses in it.
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

/// Attaches `program` to a hook of `cgroup`, beside others; while the link is held or pinned
/// (Linux 5.7).
pub fn attach(program: impl AsFd, cgroup: impl AsFd, hook: u32) -> io::Result<OwnedFd> {
    let program = program.as_fd().as_raw_fd().to_ne_bytes();
    let cgroup = cgroup.as_fd().as_raw_fd().to_ne_bytes();
    let hook = hook.to_ne_bytes();
    let mut attr = attr(&[(0, &program), (4, &cgroup), (8, &hook)]);
    // SAFETY: no address is among the attributes.
    own(unsafe { bpf(BPF_LINK_CREATE, &mut attr) }?)
}

/// Opens a pinned object.
pub fn open_pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let pointer = (path.as_ptr() as u64).to_ne_bytes();
    // SAFETY: `path` ends with a zero byte, and lives until the end of this function.
    own(unsafe { bpf(BPF_OBJ_GET, &mut attr(&[(0, &pointer)])) }?)
}

/// Owns a descriptor that the kernel has just returned.
fn own(fd: libc::c_long) -> io::Result<OwnedFd> {
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel just gave this descriptor to us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Pins `object` at `path`, where nothing may be.
pub fn pin(object: impl AsFd, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let pointer = (path.as_ptr() as u64).to_ne_bytes();
    let fd = object.as_fd().as_raw_fd().to_ne_bytes();
    // SAFETY: `path` ends with a zero byte, and lives until the end of this function.
    unsafe { bpf(BPF_OBJ_PIN, &mut attr(&[(0, &pointer), (8, &fd)])) }.map(drop)
}

/// What tells one BPF object from every other: maps, programs and links each count for themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// What it is.
    pub kind: BpfKind,
    /// The id that `bpftool` prints.
    pub id: u32,
}

/// What a BPF object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BpfKind {
    /// A map.
    Map,
    /// A program.
    Program,
    /// A link.
    Link,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            BpfKind::Map => "map",
            BpfKind::Program => "program",
            BpfKind::Link => "link",
        };
        write!(f, "{kind} {}", self.id)
    }
}

/// What `object` is.
pub fn identity(object: impl AsFd) -> io::Result<Identity> {
    // The name of the inode says it: `anon_inode:bpf-map`, `anon_inode:bpf-prog`, and for links
    // `anon_inode:bpf_link` or `anon_inode:bpf-link`, by how they were opened.
    let number = object.as_fd().as_raw_fd();
    let name = fs::read_link(format!("/proc/self/fd/{number}"))?;
    let kind = match name.to_string_lossy() {
        name if name.contains("bpf-map") => BpfKind::Map,
        name if name.contains("bpf-prog") => BpfKind::Program,
        name if name.contains("bpf_link") || name.contains("bpf-link") => BpfKind::Link,
        name => return Err(io::Error::other(format!("{name} is not a BPF object"))),
    };
    // The id is the second word of the information about each kind.
    let id = info(object)?[1];
    Ok(Identity { kind, id })
}

/// What a link is attached to; `None` when it is no cgroup link.
pub fn cgroup_link(link: impl AsFd) -> io::Result<Option<CgroupLink>> {
    // struct bpf_link_info: type, id, prog_id, (padding), then for cgroups: cgroup_id (u64),
    // attach_type.
    let Identity { kind, .. } = identity(&link)?;
    let info = info(link)?;
    if kind != BpfKind::Link || info[0] != BPF_LINK_TYPE_CGROUP {
        return Ok(None);
    }
    let [low, high] = [info[4].to_ne_bytes(), info[5].to_ne_bytes()];
    let cgroup = [low, high].concat().try_into();
    Ok(Some(CgroupLink {
        cgroup: u64::from_ne_bytes(cgroup.expect("two words are eight bytes")),
        program: info[2],
        hook: info[6],
    }))
}

/// What a map is like: `struct bpf_map_info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// `enum bpf_map_type`.
    pub kind: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Entries that it can hold.
    pub max_entries: u32,
    /// `BPF_F_NO_PREALLOC` and others.
    pub flags: u32,
}

/// What the map that is open here is like; an error for anything else.
pub fn map_shape(map: impl AsFd) -> io::Result<Shape> {
    let what = identity(&map)?;
    if what.kind != BpfKind::Map {
        return Err(io::Error::other(format!("{what} is not a map")));
    }
    // type, id, key_size, value_size, max_entries, map_flags.
    let [kind, _, key_size, value_size, max_entries, flags, ..] = info(map)?;
    Ok(Shape {
        kind,
        key_size,
        value_size,
        max_entries,
        flags,
    })
}

/// The first words of what the kernel tells about an object.
fn info(object: impl AsFd) -> io::Result<[u32; ATTR_SIZE / 4]> {
    let mut info = [0u32; ATTR_SIZE / 4];
    let fd = object.as_fd().as_raw_fd().to_ne_bytes();
    let length = u32::try_from(ATTR_SIZE).expect("128 fits").to_ne_bytes();
    let pointer = (info.as_mut_ptr() as u64).to_ne_bytes();
    let mut attr = attr(&[(0, &fd), (4, &length), (8, &pointer)]);
    // SAFETY: `info` has the length that is given. Addresses in it, which say where to put more, are
    // zero: none is wanted.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr) }?;
    Ok(info)
}

/// Runs a program that is attached nowhere on a packet with this data; what it returned.
pub fn run(program: impl AsFd, data: &[u8]) -> io::Result<u32> {
    let program = program.as_fd().as_raw_fd().to_ne_bytes();
    let length = u32::try_from(data.len()).map_err(io::Error::other)?;
    let data = (data.as_ptr() as u64).to_ne_bytes();
    // prog_fd, retval, data_size_in, data_size_out, data_in (u64).
    let mut attr = attr(&[(0, &program), (8, &length.to_ne_bytes()), (16, &data)]);
    // SAFETY: there are as many bytes of `data` as is said, and none are wanted back.
    unsafe { bpf(BPF_PROG_TEST_RUN, &mut attr) }?;
    let [a, b, c, d] = [attr[4], attr[5], attr[6], attr[7]];
    Ok(u32::from_ne_bytes([a, b, c, d]))
}

/// Whether the system call can be used at all. Asked with a command that takes no rights but those
/// of an agent: for going through ids the kernel wants `CAP_SYS_ADMIN`.
pub fn answers() -> io::Result<()> {
    let nothing = (-1_i32).to_ne_bytes();
    // SAFETY: no address is among the attributes.
    match unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr(&[(0, &nothing)])) } {
        // It was looked for.
        Err(error) if error.raw_os_error() == Some(libc::EBADFD) => Ok(()),
        result => result.map(drop),
    }
}

/// Puts `program` behind `link` in place (Linux 5.7): no socket is served by none or by both.
pub fn replace_program(link: impl AsFd, program: impl AsFd) -> io::Result<()> {
    let link = link.as_fd().as_raw_fd().to_ne_bytes();
    let program = program.as_fd().as_raw_fd().to_ne_bytes();
    // SAFETY: no address is among the attributes.
    unsafe { bpf(BPF_LINK_UPDATE, &mut attr(&[(0, &link), (4, &program)])) }.map(drop)
}

/// Detaches `link` (Linux 5.9). Removing its last pin would do so too, but some time later: the
/// kernel leaves that to a worker.
pub fn detach(link: impl AsFd) -> io::Result<()> {
    let link = link.as_fd().as_raw_fd().to_ne_bytes();
    // SAFETY: no address is among the attributes.
    unsafe { bpf(BPF_LINK_DETACH, &mut attr(&[(0, &link)])) }.map(drop)
}
