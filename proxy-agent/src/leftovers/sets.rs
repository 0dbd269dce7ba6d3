//! Sets of kube-proxy's IPVS mode, over netlink (`linux/netfilter/ipset/ip_set.h`). Only their
//! names are of interest.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};

use super::owned;
use proxy_netlink::netfilter::{self as netlink, put, put_string, request, text};

/// `NFNL_SUBSYS_IPSET` in the upper byte of a message's type.
const IPSET: u16 = 6 << 8;
const DESTROY: u16 = IPSET | 3;
const LIST: u16 = IPSET | 7;
/// The family that requests name, whatever the sets hold.
const INET: u8 = 2;
/// `IPSET_ATTR_PROTOCOL`: the version of what is spoken, which each request names.
const PROTOCOL: u16 = 1;
const VERSION: u8 = 6;
/// `IPSET_ATTR_SETNAME`.
const NAME: u16 = 2;
/// `IPSET_ATTR_FLAGS`, and the flag that asks for names only.
const FLAGS: u16 = 6;
const NAMES_ONLY: u32 = 1 << 1;

/// The names of the sets that are kube-proxy's.
pub(super) fn names() -> Result<Vec<String>, String> {
    match all() {
        Ok(names) => Ok(names
            .into_iter()
            .filter(|name| owned::is_set(name))
            .collect()),
        // A kernel without sets has none.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
            Ok(Vec::new())
        }
        Err(error) => Err(format!(
            "looking for kube-proxy's sets (ipset) over netlink: {error}; run as root, or with \
             CAP_NET_ADMIN"
        )),
    }
}

fn all() -> io::Result<Vec<String>> {
    let list = request(LIST, NLM_F_DUMP, INET, 0, |attributes| {
        put(attributes, PROTOCOL, &[VERSION]);
        put(attributes, FLAGS, &NAMES_ONLY.to_be_bytes());
    });
    let mut names = Vec::new();
    netlink::exchange(&mut netlink::open()?, &list, |kind, value| {
        names.extend((kind == NAME).then(|| text(value)));
    })?;
    Ok(names)
}

/// Destroys these sets. Rules that name them must be gone.
pub(super) fn destroy(names: &[String]) -> Result<(), String> {
    let mut problems = Vec::new();
    for name in names {
        let request = request(DESTROY, NLM_F_ACK, INET, 0, |attributes| {
            put(attributes, PROTOCOL, &[VERSION]);
            put_string(attributes, NAME, name);
        });
        match netlink::ask(&request) {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => {
                problems.push(format!("{name}: {error}"));
            }
            _ => {}
        }
    }
    match problems.as_slice() {
        [] => Ok(()),
        some => Err(some.join(", ")),
    }
}
