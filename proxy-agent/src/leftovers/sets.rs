//! Sets of kube-proxy's IPVS mode, over netlink (`linux/netfilter/ipset/ip_set.h`). Only their
//! names are of interest.

use std::io;

use super::{error::RemoveError, owned};
use proxy_netlink::{
    attributes::text,
    message::{Head, Messages, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST},
    netfilter::{NFNL_SUBSYS_IPSET, ask, exchange, open},
};

/// `IPSET_CMD_DESTROY`.
const DESTROY: u16 = 3;
/// `IPSET_CMD_LIST`.
const LIST: u16 = 7;
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
pub(super) fn names() -> io::Result<Vec<String>> {
    match all() {
        Ok(names) => Ok(names
            .into_iter()
            .filter(|name| owned::is_set(name))
            .collect()),
        // A kernel without sets has none.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

const fn head(command: u16, flags: u16) -> Head {
    Head {
        kind: NFNL_SUBSYS_IPSET << 8 | command,
        flags: flags | NLM_F_REQUEST,
        family: INET,
        resource: 0,
    }
}

fn all() -> io::Result<Vec<String>> {
    let list = Messages::one(head(LIST, NLM_F_DUMP), |attributes| {
        attributes.bytes(PROTOCOL, &[VERSION]);
        attributes.bytes(FLAGS, &NAMES_ONLY.to_be_bytes());
    });
    let mut names = Vec::new();
    exchange(&mut open()?, list.as_bytes(), |kind, value| {
        names.extend((kind == NAME).then(|| text(value)));
    })?;
    Ok(names)
}

/// Destroys these sets. Rules that name them must be gone.
pub(super) fn destroy(names: &[String]) -> Result<(), RemoveError> {
    let mut refused = Vec::new();
    for name in names {
        let request = Messages::one(head(DESTROY, NLM_F_ACK), |attributes| {
            attributes.bytes(PROTOCOL, &[VERSION]);
            attributes.text(NAME, name);
        });
        match ask(&request) {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => {
                refused.push((name.clone(), error));
            }
            _ => {}
        }
    }
    RemoveError::of_some(refused)
}
