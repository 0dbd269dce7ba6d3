//! The few BPF system calls that tests need to look at, and to damage, what an agent pinned.
//! Bytes in, bytes out: knows no map of Culvert's.

pub mod program;

use std::{
    ffi::CString,
    fs::{self, File},
    io,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

use anyhow::{Context as _, Result, ensure};

// `enum bpf_cmd` of linux/bpf.h.
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const MAP_GET_NEXT_KEY: libc::c_int = 4;
const PROG_LOAD: libc::c_int = 5;
const OBJ_PIN: libc::c_int = 6;
const OBJ_GET: libc::c_int = 7;
const PROG_ATTACH: libc::c_int = 8;
const PROG_DETACH: libc::c_int = 9;
const PROG_TEST_RUN: libc::c_int = 10;
const PROG_GET_NEXT_ID: libc::c_int = 11;
const PROG_GET_FD_BY_ID: libc::c_int = 13;
const MAP_GET_FD_BY_ID: libc::c_int = 14;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const LINK_UPDATE: libc::c_int = 29;
const LINK_DETACH: libc::c_int = 34;

/// The part of `union bpf_attr` that these commands use, as 64-bit words: two u32 each where the
/// kernel has such.
pub type Attribute = [u64; 16];

/// Bytes of `struct bpf_map_info` and `struct bpf_link_info` that are asked for.
const INFO_BYTES: u32 = 32;

/// A key that no agent writes, of a map with keys of this size; in a trie all of its bits count.
pub fn foreign_key(size: usize, is_trie: bool) -> Vec<u8> {
    let mut key = vec![0x3d; size];
    if is_trie {
        let bits = u32::try_from((size - 4) * 8).expect("a key of a few bytes");
        key[..4].copy_from_slice(&bits.to_ne_bytes());
    }
    key
}

/// Why BPF cannot be used here; `None` if it can.
pub fn missing() -> Option<io::Error> {
    match call(PROG_GET_NEXT_ID, &mut [0; 16]) {
        // There is no program yet.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => None,
        Err(error) => Some(error),
        Ok(_) => None,
    }
}

/// Something pinned on bpffs, opened.
#[derive(Debug)]
pub struct Pinned {
    fd: OwnedFd,
}

impl Pinned {
    /// Opens what is pinned at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let name = CString::new(path.as_os_str().as_bytes()).context("a path with a zero byte")?;
        let mut attribute = [0; 16];
        attribute[0] = name.as_ptr() as u64;
        let fd = call(OBJ_GET, &mut attribute)
            .with_context(|| format!("cannot open what is pinned at {}", path.display()))?;
        Ok(Self { fd: own(fd) })
    }

    /// Id of a map.
    pub fn map_id(&self) -> Result<u32> {
        // struct bpf_map_info: type, id, …
        Ok(self.info()?[1])
    }

    /// Type, key size, value size, entries and flags of a map.
    pub fn map_shape(&self) -> Result<[u32; 5]> {
        // struct bpf_map_info: type, id, key_size, value_size, max_entries, map_flags, name.
        let [kind, _, rest @ ..] = self.info()?;
        Ok([kind, rest[0], rest[1], rest[2], rest[3]])
    }

    /// Bytes of memory that a map takes.
    pub fn memory(&self) -> Result<usize> {
        let path = format!("/proc/self/fdinfo/{}", self.fd.as_raw_fd());
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let field = text.lines().find_map(|line| line.strip_prefix("memlock:"));
        let bytes = field.with_context(|| format!("{path} tells no memlock"))?;
        bytes
            .trim()
            .parse()
            .with_context(|| format!("{path}: {bytes:?}"))
    }

    /// Id of the program that a link leads to.
    pub fn program_id(&self) -> Result<u32> {
        // struct bpf_link_info: type, id, prog_id, …
        Ok(self.info()?[2])
    }

    /// Id of the cgroup that a link is attached to; 0 once it is detached.
    pub fn cgroup_id(&self) -> Result<u64> {
        // struct bpf_link_info: type, id, prog_id, padding, cgroup_id (u64), …
        let info = self.info()?;
        Ok(pair(info[4], info[5]))
    }

    /// Detaches a link; it stays, and does nothing.
    pub fn detach(&self) -> Result<()> {
        let mut attribute = [0; 16];
        attribute[0] = pair(self.number(), 0);
        call(LINK_DETACH, &mut attribute)
            .context("cannot detach a link")
            .map(drop)
    }

    /// Puts another program behind a link.
    pub fn replace_program(&self, program: &OwnedFd) -> Result<()> {
        let mut attribute = [0; 16];
        attribute[0] = pair(self.number(), program.as_raw_fd().cast_unsigned());
        call(LINK_UPDATE, &mut attribute)
            .context("cannot replace the program of a link")
            .map(drop)
    }

    /// Pins it at `path` too.
    pub fn pin(&self, path: &Path) -> Result<()> {
        let name = CString::new(path.as_os_str().as_bytes()).context("a path with a zero byte")?;
        let mut attribute = [0; 16];
        attribute[0] = name.as_ptr() as u64;
        attribute[1] = pair(self.number(), 0);
        call(OBJ_PIN, &mut attribute)
            .with_context(|| format!("cannot pin {}", path.display()))
            .map(drop)
    }

    fn info(&self) -> Result<[u32; INFO_BYTES as usize / 4]> {
        let mut info = [0_u32; INFO_BYTES as usize / 4];
        let mut attribute = [0; 16];
        attribute[0] = pair(self.number(), INFO_BYTES);
        attribute[1] = info.as_mut_ptr() as u64;
        call(OBJ_GET_INFO_BY_FD, &mut attribute).context("cannot ask about a BPF object")?;
        Ok(info)
    }

    /// Every key of a map whose keys have `size` bytes.
    pub fn keys(&self, size: usize) -> Result<Vec<Vec<u8>>> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        loop {
            let mut next = vec![0; size];
            let mut attribute = [0; 16];
            attribute[0] = pair(self.number(), 0);
            attribute[1] = keys.last().map_or(0, |key| key.as_ptr() as u64);
            attribute[2] = next.as_mut_ptr() as u64;
            match call(MAP_GET_NEXT_KEY, &mut attribute) {
                Ok(_) => keys.push(next),
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(keys),
                Err(error) => return Err(error).context("cannot list the keys of a map"),
            }
        }
    }

    /// Reads an entry whose value has `size` bytes.
    pub fn read(&self, key: &[u8], size: usize) -> Result<Vec<u8>> {
        let mut value = vec![0; size];
        let mut attribute = [0; 16];
        attribute[0] = pair(self.number(), 0);
        attribute[1] = key.as_ptr() as u64;
        attribute[2] = value.as_mut_ptr() as u64;
        call(MAP_LOOKUP_ELEM, &mut attribute).context("cannot read from a map")?;
        Ok(value)
    }

    /// Writes an entry. The sizes must be the map's.
    pub fn write(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut attribute = [0; 16];
        attribute[0] = pair(self.number(), 0);
        attribute[1] = key.as_ptr() as u64;
        attribute[2] = value.as_ptr() as u64;
        call(MAP_UPDATE_ELEM, &mut attribute)
            .context("cannot write to a map")
            .map(drop)
    }

    /// Deletes an entry, which must be there.
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        let mut attribute = [0; 16];
        attribute[0] = pair(self.number(), 0);
        attribute[1] = key.as_ptr() as u64;
        call(MAP_DELETE_ELEM, &mut attribute)
            .context("cannot delete from a map")
            .map(drop)
    }

    /// Deletes the `count` entries that are listed first.
    pub fn delete_some(&self, key_size: usize, count: usize) -> Result<()> {
        let keys = self.keys(key_size)?;
        ensure!(
            keys.len() >= count,
            "the map has {} entries, not {count}",
            keys.len()
        );
        keys[..count].iter().try_for_each(|key| self.delete(key))
    }

    fn number(&self) -> u32 {
        self.fd.as_raw_fd().cast_unsigned()
    }
}

/// Whether a map of this id exists.
pub fn map_exists(id: u32) -> Result<bool> {
    exists(MAP_GET_FD_BY_ID, id)
}

/// Whether a program of this id exists.
pub fn program_exists(id: u32) -> Result<bool> {
    exists(PROG_GET_FD_BY_ID, id)
}

fn exists(command: libc::c_int, id: u32) -> Result<bool> {
    let mut attribute = [0; 16];
    attribute[0] = pair(id, 0);
    match call(command, &mut attribute) {
        Ok(fd) => {
            drop(own(fd));
            Ok(true)
        }
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error).context("cannot look for a BPF object"),
    }
}

const INET4_CONNECT: u32 = 10;

/// Loads a program for the IPv4 connect hook that lets everything pass.
pub fn pass_connect4() -> Result<OwnedFd> {
    pass_connect4_called("")
}

/// The same with a name, of which the kernel keeps 15 characters.
fn pass_connect4_called(name: &str) -> Result<OwnedFd> {
    const SOCK_ADDR: u32 = 18;
    // r0 = 1; exit
    let code: [u64; 2] = [0x1_0000_00b7, 0x95];
    let license = c"GPL";
    let mut attribute = [0; 16];
    attribute[0] = pair(SOCK_ADDR, 2);
    attribute[1] = code.as_ptr() as u64;
    attribute[2] = license.as_ptr() as u64;
    // Three words later (log, version, flags): prog_name.
    for (index, byte) in name.bytes().take(15).enumerate() {
        attribute[6 + index / 8] |= u64::from(byte) << (8 * (index % 8));
    }
    // After it and prog_ifindex: expected_attach_type.
    attribute[8] = pair(0, INET4_CONNECT);
    let program = call(PROG_LOAD, &mut attribute).context("cannot load an empty program")?;
    Ok(own(program))
}

/// Attaches a program that lets everything pass to the IPv4 connect hook of a cgroup, such that the
/// kernel allows no other beside it. It stays as long as the cgroup.
pub fn attach_alone(cgroup: &Path) -> Result<()> {
    // No flags: neither may it be overridden, nor may others be beside it.
    attach(&pass_connect4()?, cgroup, 0)
}

/// Detaches what [`attach_alone`] attached.
pub fn detach_alone(cgroup: &Path) -> Result<()> {
    let directory =
        File::open(cgroup).with_context(|| format!("cannot open {}", cgroup.display()))?;
    let mut attribute = [0; 16];
    attribute[0] = pair(directory.as_raw_fd().cast_unsigned(), 0);
    attribute[1] = pair(INET4_CONNECT, 0);
    call(PROG_DETACH, &mut attribute)
        .context("cannot detach a program")
        .map(drop)
}

/// The same with others beside it, under this name.
pub fn attach_beside(cgroup: &Path, name: &str) -> Result<()> {
    const ALLOW_MULTI: u32 = 2;
    attach(&pass_connect4_called(name)?, cgroup, ALLOW_MULTI)
}

fn attach(program: &OwnedFd, cgroup: &Path, flags: u32) -> Result<()> {
    let directory =
        File::open(cgroup).with_context(|| format!("cannot open {}", cgroup.display()))?;
    let number = |fd: i32| fd.cast_unsigned();
    let mut attribute = [0; 16];
    attribute[0] = pair(number(directory.as_raw_fd()), number(program.as_raw_fd()));
    attribute[1] = pair(INET4_CONNECT, flags);
    call(PROG_ATTACH, &mut attribute)
        .context("cannot attach an empty program")
        .map(drop)
}

/// Two u32 of an attribute, in memory order.
pub fn pair(first: u32, second: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

/// The system call; its result is a descriptor, or 0.
pub fn call(command: libc::c_int, attribute: &mut Attribute) -> io::Result<i32> {
    #[expect(unsafe_code, reason = "there is no safe bpf system call")]
    // SAFETY: the kernel reads and writes the attribute within the size given. The pointers in it
    // are to buffers of the caller that live through the call and have the map's sizes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attribute.as_mut_ptr(),
            size_of::<Attribute>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(i32::try_from(result).expect("the bpf system call returns an int"))
}

/// Owns a descriptor that [`call`] returned.
pub fn own(fd: i32) -> OwnedFd {
    #[expect(unsafe_code, reason = "the descriptor comes from a raw system call")]
    // SAFETY: the kernel has just returned this descriptor to us and nobody else knows it.
    unsafe {
        OwnedFd::from_raw_fd(fd)
    }
}
