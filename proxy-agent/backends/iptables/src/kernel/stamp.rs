//! What tells cheaply that somebody has changed rules. The nft flavour has the kernel's generation of rules; of
//! the legacy one the kernel says how large each table is.

use std::{fs, mem, os::fd::AsRawFd as _};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use proxy_model::IpFamily;
use proxy_netlink::ruleset;

use super::programs::Flavour;
use crate::table::Table;

/// `IPT_SO_GET_INFO` and `IP6T_SO_GET_INFO` (`linux/netfilter_ipv4/ip_tables.h`).
const GET_INFO: libc::c_int = 64;
/// The longest name of a table, with its end (`XT_TABLE_MAXNAMELEN`).
const NAME: usize = 32;

/// A value that changes with what it is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stamp {
    /// The kernel's generation of rules.
    Generation(u32),
    /// Entries and bytes of each table.
    Sizes(Vec<(IpFamily, Table, u32, u32)>),
}

impl Stamp {
    /// Whether it is what `before` becomes by our writing these tables, and by nobody else's writing, as far as can be
    /// told. Each table that a program of the nft flavour writes is a generation.
    pub fn follows(&self, before: &Self, written: &[(IpFamily, Table)]) -> bool {
        match (before, self) {
            (Self::Generation(before), Self::Generation(now)) => {
                usize::try_from(now.wrapping_sub(*before)).is_ok_and(|grown| grown == written.len())
            }
            (Self::Sizes(before), Self::Sizes(now)) => {
                let others = |sizes: &[(IpFamily, Table, u32, u32)]| -> Vec<_> {
                    let mut others = sizes.to_vec();
                    others.retain(|(family, table, ..)| !written.contains(&(*family, *table)));
                    others
                };
                others(before) == others(now)
            }
            _ => false,
        }
    }
}

/// The present one; `None` if it cannot be told.
pub fn stamp(flavour: Flavour, families: &[IpFamily]) -> Option<Stamp> {
    if flavour == Flavour::Nft {
        return ruleset::generation().ok().map(Stamp::Generation);
    }
    let mut sizes = Vec::new();
    for family in families {
        for table in Table::ALL {
            let (entries, bytes) = size(*family, table)?;
            sizes.push((*family, table, entries, bytes));
        }
    }
    Some(Stamp::Sizes(sizes))
}

/// `struct ipt_getinfo`, and that of IPv6, which is the same.
#[repr(C)]
struct Info {
    name: [u8; NAME],
    valid_hooks: u32,
    hook_entry: [u32; 5],
    underflow: [u32; 5],
    entries: u32,
    size: u32,
}

fn size(family: IpFamily, table: Table) -> Option<(u32, u32)> {
    let (domain, level) = match family {
        IpFamily::V4 => (AddressFamily::Inet, libc::SOL_IP),
        IpFamily::V6 => (AddressFamily::Inet6, libc::SOL_IPV6),
    };
    // As the programs of iptables ask.
    let socket = socket(domain, SockType::Raw, SockFlag::SOCK_CLOEXEC, None);
    let socket = socket.or_else(|_| {
        nix::sys::socket::socket(domain, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
    });
    let socket = socket.ok()?;
    let mut info = Info {
        name: [0; NAME],
        valid_hooks: 0,
        hook_entry: [0; 5],
        underflow: [0; 5],
        entries: 0,
        size: 0,
    };
    let name = table.name().as_bytes();
    info.name[..name.len()].copy_from_slice(name);
    let mut length = libc::socklen_t::try_from(mem::size_of::<Info>()).ok()?;
    #[expect(unsafe_code, reason = "no library has this option")]
    // SAFETY: the kernel reads the name from `info`, and writes at most `length` bytes to it, which is its size.
    let asked = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            GET_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    (asked == 0).then_some((info.entries, info.size))
}

/// The most clients that the kernel remembers for an endpoint with session affinity; `None` while the module
/// is not loaded.
pub fn remembered_clients() -> Option<u32> {
    let text = fs::read_to_string("/sys/module/xt_recent/parameters/ip_list_tot").ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_write_between_two_stamps_is_told_from_what_was_written() {
        let (nat, filter) = ((IpFamily::V4, Table::Nat), (IpFamily::V4, Table::Filter));
        let before = Stamp::Generation(u32::MAX);
        assert!(Stamp::Generation(1).follows(&before, &[nat, filter]));
        assert!(!Stamp::Generation(2).follows(&before, &[nat, filter]));
        assert!(Stamp::Generation(7).follows(&Stamp::Generation(7), &[]));

        let sizes = |nat: u32, filter: u32| {
            let of = |table, entries| (IpFamily::V4, table, entries, 100 * entries);
            Stamp::Sizes(vec![of(Table::Nat, nat), of(Table::Filter, filter)])
        };
        assert!(sizes(8, 3).follows(&sizes(5, 3), &[nat]));
        assert!(!sizes(8, 2).follows(&sizes(5, 3), &[nat]));
        assert!(!sizes(8, 3).follows(&Stamp::Generation(1), &[nat]));
    }
}
