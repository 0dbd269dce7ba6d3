//! Ways out of this host, and the objects of them that routes can share (Linux 5.3).

use std::{collections::BTreeMap, io};

use super::{
    RouteSocket,
    numbers::{NHA_GATEWAY, NHA_GROUP, NHA_ID, NHA_OIF, RTM_GETNEXTHOP},
};
use crate::attributes::Read;

/// Length of `struct nhmsg`: family, scope, protocol, (reserved), flags.
const HEAD: usize = 8;
/// Length of `struct nexthop_grp`, which begins with a number of a nexthop.
const MEMBER: usize = 8;

/// One way out of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// The number of the device.
    pub device: u32,
    /// Whether packets go to another host first.
    pub has_gateway: bool,
}

/// A nexthop, or a group of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Nexthop {
    /// Its own way out.
    pub hop: Option<Hop>,
    /// Numbers of those in a group.
    pub members: Vec<u32>,
}

impl RouteSocket {
    /// All of them, by number.
    pub(super) fn nexthops(&mut self) -> io::Result<BTreeMap<u32, Nexthop>> {
        let all = self.dump(RTM_GETNEXTHOP, &[0; HEAD], |_| {}, |_, read| nexthop(read))?;
        Ok(all.into_iter().collect())
    }
}

pub(super) fn nexthop(attributes: Read<'_>) -> Option<(u32, Nexthop)> {
    let members = attributes.get(NHA_GROUP).unwrap_or_default();
    let nexthop = Nexthop {
        hop: attributes.native(NHA_OIF).map(|device| Hop {
            device,
            has_gateway: attributes.get(NHA_GATEWAY).is_some(),
        }),
        members: members
            .chunks_exact(MEMBER)
            .map(|member| super::word(member, 0))
            .collect(),
    };
    Some((attributes.native(NHA_ID)?, nexthop))
}
