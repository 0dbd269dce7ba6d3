//! Routes by which packets leave this host, of every table. Knows no rule that chooses a table.

use std::{collections::BTreeMap, io, net::IpAddr};

use super::{
    RouteSocket,
    addresses::{FAMILIES, IPV4, ip},
    nexthops::{Hop, Nexthop},
    numbers::{
        RTA_DST, RTA_GATEWAY, RTA_MULTIPATH, RTA_NH_ID, RTA_OIF, RTA_TABLE, RTA_VIA, RTM_GETROUTE,
        RTN_UNICAST,
    },
    word,
};
use crate::attributes::Read;

/// Length of `struct rtmsg`: family, lengths of destination and source, tos, table, protocol, scope,
/// type, flags.
const HEAD: usize = 12;
const FAMILY: usize = 0;
const PREFIX: usize = 1;
const TABLE: usize = 4;
const TYPE: usize = 7;

/// Length of `struct rtnexthop`: length (two bytes), flags, hops, index.
const HOP: usize = 8;

/// A way for packets out of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// `RT_TABLE_MAIN` or another.
    pub table: u32,
    /// Where packets go; for a default route all zeros.
    pub destination: IpAddr,
    /// How many bits of [`Self::destination`] count; 0 for a default route.
    pub prefix: u8,
    /// The ways out, of which the kernel takes one.
    pub hops: Vec<Hop>,
}

impl RouteSocket {
    /// All routes of both families that lead to single hosts out of a device.
    pub fn routes(&mut self) -> io::Result<Vec<Route>> {
        let mut all = Vec::new();
        for family in FAMILIES {
            let mut begins = [0; HEAD];
            begins[FAMILY] = family;
            // The kernel then leaves out those to itself, which are as many.
            begins[TYPE] = RTN_UNICAST;
            let read = |head: &[u8], attributes: Read<'_>| route(family, head, attributes);
            all.extend(self.dump(RTM_GETROUTE, &begins, |_| {}, read)?);
        }
        // Unless an administrator switched that off, the kernel says itself what such a route means
        // (`net.ipv4.nexthop_compat_mode`).
        let unknown =
            |(route, object): &(Route, Option<u32>)| route.hops.is_empty() && object.is_some();
        let nexthops = if all.iter().any(unknown) {
            self.nexthops()?
        } else {
            BTreeMap::new()
        };
        Ok(all
            .into_iter()
            .map(|(route, object)| with_object(route, object, &nexthops))
            .collect())
    }
}

/// The ways out that a nexthop object stands for, where the route itself tells none.
fn with_object(mut route: Route, object: Option<u32>, all: &BTreeMap<u32, Nexthop>) -> Route {
    if let Some(object) = object.and_then(|object| all.get(&object))
        && route.hops.is_empty()
    {
        let members = object.members.iter().filter_map(|member| all.get(member));
        route.hops = members.chain([object]).filter_map(|one| one.hop).collect();
    }
    route
}

/// A route, and the nexthop object that it leads to.
pub(super) fn route(family: u8, head: &[u8], attributes: Read<'_>) -> Option<(Route, Option<u32>)> {
    if head[FAMILY] != family || head[TYPE] != RTN_UNICAST {
        return None;
    }
    let any = match family {
        IPV4 => IpAddr::from([0; 4]),
        _ => IpAddr::from([0; 16]),
    };
    let single = attributes.native(RTA_OIF).map(|device| Hop {
        device,
        has_gateway: has_gateway(attributes),
    });
    let several = attributes.get(RTA_MULTIPATH).unwrap_or_default();
    let route = Route {
        table: attributes.native(RTA_TABLE).unwrap_or(head[TABLE].into()),
        destination: attributes.get(RTA_DST).and_then(ip).unwrap_or(any),
        prefix: head[PREFIX],
        hops: single.into_iter().chain(hops(several)).collect(),
    };
    Some((route, attributes.native(RTA_NH_ID)))
}

/// What `RTA_MULTIPATH` lists; a damaged one ends it.
fn hops(mut rest: &[u8]) -> impl Iterator<Item = Hop> {
    std::iter::from_fn(move || {
        let length = usize::from(super::half(rest.get(..HOP)?, 0));
        let hop = rest.get(..length)?;
        let attributes = Read(hop.get(HOP..)?);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Hop {
            device: word(hop, 4),
            has_gateway: has_gateway(attributes),
        })
    })
}

fn has_gateway(attributes: Read<'_>) -> bool {
    attributes
        .each()
        .any(|(kind, _)| matches!(kind, RTA_GATEWAY | RTA_VIA))
}
