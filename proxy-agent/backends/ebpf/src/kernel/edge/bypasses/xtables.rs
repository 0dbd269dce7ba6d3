//! The tables of `iptables-legacy` as the kernel keeps them, by `getsockopt`
//! (`linux/netfilter_ipv4/ip_tables.h`). Only tables that exist are asked for: a question about
//! another one would load its module.
#![expect(
    unsafe_code,
    reason = "getsockopt(2) has no safe wrapper for these options"
)]

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd},
};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::listed;
use crate::bypass::{
    Rules,
    entries::{self, IPV4, IPV6, Layout, Table},
};

/// `IPT_SO_GET_INFO` and `IPT_SO_GET_ENTRIES`; those of IPv6 have the same numbers.
const GET_INFO: libc::c_int = 64;
const GET_ENTRIES: libc::c_int = 65;
/// `struct ipt_getinfo`: name, which hooks there are, where their chains begin and where their
/// policies are, how many entries, how many bytes.
const INFO: usize = 84;
const HOOKS: usize = 32;
const BEGINS: usize = 36;
const POLICIES: usize = 56;
const SIZE: usize = 80;
/// `struct ipt_get_entries`: name, size, entries.
const ENTRIES_SIZE: usize = 32;
const ENTRIES: usize = 40;
/// Longer names are no tables.
const NAME: usize = 31;
/// How often a table is read anew because it changed meanwhile.
const ATTEMPTS: usize = 16;

struct Family {
    address: AddressFamily,
    level: libc::c_int,
    list: &'static str,
    layout: Layout,
}

const FAMILIES: [Family; 2] = [
    Family {
        address: AddressFamily::Inet,
        level: libc::SOL_IP,
        list: "ip_tables_names",
        layout: IPV4,
    },
    Family {
        address: AddressFamily::Inet6,
        level: libc::SOL_IPV6,
        list: "ip6_tables_names",
        layout: IPV6,
    },
];

/// All tables of both families.
pub fn read() -> io::Result<Vec<Rules>> {
    let mut all = Vec::new();
    for family in &FAMILIES {
        for name in listed(family.list)? {
            if name.len() <= NAME {
                all.push(table(family, &name)?);
            }
        }
    }
    Ok(all)
}

fn table(family: &Family, name: &str) -> io::Result<Rules> {
    let kind = (SockType::Datagram, SockFlag::SOCK_CLOEXEC);
    let socket = socket(family.address, kind.0, kind.1, None)?;
    for _ in 0..ATTEMPTS {
        let mut info = vec![0; INFO];
        info[..name.len()].copy_from_slice(name.as_bytes());
        ask(&socket, family.level, GET_INFO, &mut info)?;
        let size = word(&info, SIZE);
        let mut entries = vec![0; ENTRIES + size as usize];
        entries[..name.len()].copy_from_slice(name.as_bytes());
        entries[ENTRIES_SIZE..ENTRIES_SIZE + 4].copy_from_slice(&size.to_ne_bytes());
        match ask(&socket, family.level, GET_ENTRIES, &mut entries) {
            // It has another size meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
            asked => {
                asked?;
                let there = word(&info, HOOKS);
                let hook = |number: usize| {
                    let at = |list: usize| word(&info, list + 4 * number);
                    (there >> number & 1 == 1).then(|| (at(BEGINS), at(POLICIES)))
                };
                let table = Table {
                    name,
                    hooks: std::array::from_fn(hook),
                    entries: &entries[ENTRIES..],
                };
                return Ok(entries::rules(family.layout, table));
            }
        }
    }
    Err(io::Error::other(format!(
        "table {name} changes faster than it can be read"
    )))
}

fn ask(socket: &OwnedFd, level: i32, option: i32, answer: &mut [u8]) -> io::Result<()> {
    let mut length = libc::socklen_t::try_from(answer.len()).map_err(io::Error::other)?;
    // SAFETY: `answer` is valid for `length` bytes, and the kernel writes no more.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            answer.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok());
    u32::from_ne_bytes(word.unwrap_or_default())
}
