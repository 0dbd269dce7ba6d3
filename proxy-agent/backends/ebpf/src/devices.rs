//! Which devices of the node have the packet programs: those that packets to Services come in by from
//! elsewhere. Pure; everything it decides by is given to it.
//!
//! Names that the operator gives decide alone. Without them a device is served that
//! - carries one of the node's addresses,
//! - or leads to other hosts: some route with a gateway goes out of it,
//! - or is a tunnel or an overlay that some route goes out of.
//!
//! Where something would be bypassed (`bypass`), it is not served, or only until its connections end.
//!
//! A port is not served, because its master meets the same packets. A VLAN is, beside what it stands
//! on: programs leave packets with tags alone.
//!
//! Devices of pods have other programs, which only have endpoints see this node ([`pods`]).

mod kinds;
pub mod pods;
mod reason;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use proxy_netlink::route::{Address, Link, Route};

use crate::{bypass::Bypass, pattern::Pattern};
pub use kinds::LinkLayer;
use kinds::Port;
pub use reason::{Not, Why};

/// What is known about the node.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// All devices.
    pub links: &'a [Link],
    /// All addresses of theirs.
    pub addresses: &'a [Address],
    /// All routes, of every table.
    pub routes: &'a [Route],
    /// The addresses by which the cluster knows the node; empty while that is not known.
    pub node: &'a [IpAddr],
    /// What the operator gave; empty if nothing.
    pub patterns: &'a [Pattern],
}

/// A device, and what was decided about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether it is served.
    pub choice: Choice,
}

/// Whether a device is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// It is.
    Served {
        /// What its packets begin with.
        layer: LinkLayer,
        /// What for.
        why: Why,
    },
    /// For endpoints alone that see this node in the place of clients.
    Pods,
    /// It is not.
    Not(Not),
}

impl Choice {
    /// Whether clients outside may come in by the device, and are to be left to others there.
    pub const fn is_missed(&self) -> bool {
        match self {
            Self::Served { why, .. } => matches!(why, Why::Ending(_)),
            Self::Pods => false,
            Self::Not(not) => matches!(not, Not::Bypasses(_)),
        }
    }
}

impl Device {
    /// What its packets begin with, if it is served.
    pub fn served(&self) -> Option<LinkLayer> {
        match self.choice {
            Choice::Served { layer, .. } => Some(layer),
            Choice::Pods | Choice::Not(_) => None,
        }
    }
}

/// Decides about each device, in the order in which they are given. `programs` tells the names of the
/// programs on a device; it is asked only about those that would be served, since asking costs.
pub fn choose(facts: Facts<'_>, mut programs: impl FnMut(&Link) -> Vec<String>) -> Vec<Device> {
    let ways = Ways::of(facts);
    let links = facts.links.iter();
    links
        .map(|link| Device {
            index: link.index,
            name: link.name.clone(),
            choice: match choice(link, facts, &ways, &mut programs) {
                Ok((layer, why)) => Choice::Served { layer, why },
                Err(not) => Choice::Not(not),
            },
        })
        .collect()
}

/// Leaves devices to netfilter where programs on them would bypass something. Where connections that
/// programs translate may go on, they stay until those have ended, and no other begins.
pub fn spare(devices: &mut [Device], bypasses: &[Bypass], connections_go_on: bool) {
    for device in devices {
        let Some(layer) = device.served() else {
            continue;
        };
        let mut bypasses = bypasses.iter();
        if let Some(bypass) = bypasses.find(|bypass| bypass.concerns(&device.name)) {
            let what = bypass.what.clone();
            device.choice = if connections_go_on {
                Choice::Served {
                    layer,
                    why: Why::Ending(what),
                }
            } else {
                Choice::Not(Not::Bypasses(what))
            };
        }
    }
}

fn choice(
    link: &Link,
    facts: Facts<'_>,
    ways: &Ways<'_>,
    programs: &mut impl FnMut(&Link) -> Vec<String>,
) -> Result<(LinkLayer, Why), Not> {
    if link.is_loopback() {
        return Err(Not::Loopback);
    }
    if !facts.patterns.is_empty() {
        let named = facts.patterns.iter().any(|one| one.matches(&link.name));
        let layer = kinds::layer(link.hardware).ok_or(Not::LinkLayer(link.hardware));
        return match named {
            true if !link.is_up() => Err(Not::Down),
            true => Ok((layer?, Why::Named)),
            false => Err(Not::OthersNamed),
        };
    }
    let kind = link.kind.as_deref();
    match kind {
        Some("dummy") => return Err(Not::Dummy),
        // Packets meet the devices in it.
        Some("vrf") => return Err(Not::Vrf),
        _ => {}
    }
    if let Some(whose) = kinds::balancer_of_device(&link.name) {
        return Err(Not::OthersDevice(whose));
    }
    let master = link.master.and_then(|index| ways.links.get(&index));
    if let Some(master) = master
        && kinds::port(master.kind.as_deref()) == Port::SameAsMaster
    {
        return Err(Not::PortOf(master.name.clone()));
    }
    let why = ways.why(link).ok_or(Not::NothingLeadsThere)?;
    if !link.is_up() {
        return Err(Not::Down);
    }
    let layer = kinds::layer(link.hardware).ok_or(Not::LinkLayer(link.hardware))?;
    let others = programs(link);
    let other = others
        .into_iter()
        .find_map(|name| Some((kinds::balancer_of_program(&name)?, name)));
    match other {
        Some((whose, program)) => Err(Not::OthersProgram { whose, program }),
        None => Ok((layer, why)),
    }
}

/// What leads to a device.
struct Ways<'a> {
    links: BTreeMap<u32, &'a Link>,
    /// Which of the node's addresses it carries.
    carried: BTreeMap<u32, IpAddr>,
    /// A default route goes out of it.
    default: BTreeSet<u32>,
    /// A route with a gateway does.
    gateway: BTreeSet<u32>,
    /// A route does.
    any: BTreeSet<u32>,
}

impl<'a> Ways<'a> {
    fn of(facts: Facts<'a>) -> Self {
        let mut ways = Self {
            links: facts.links.iter().map(|link| (link.index, link)).collect(),
            carried: BTreeMap::new(),
            default: BTreeSet::new(),
            gateway: BTreeSet::new(),
            any: BTreeSet::new(),
        };
        for one in facts.addresses {
            if facts.node.contains(&one.address) {
                ways.carried.entry(one.device).or_insert(one.address);
            }
        }
        for route in facts.routes {
            for hop in &route.hops {
                if route.prefix == 0 {
                    ways.default.insert(hop.device);
                }
                if hop.has_gateway {
                    ways.gateway.insert(hop.device);
                }
                if !is_every_devices(route) {
                    ways.any.insert(hop.device);
                }
            }
        }
        ways
    }

    fn why(&self, link: &Link) -> Option<Why> {
        let index = link.index;
        if let Some(address) = self.carried.get(&index) {
            return Some(Why::Carries(*address));
        }
        if self.default.contains(&index) {
            return Some(Why::DefaultRoute);
        }
        if self.gateway.contains(&index) {
            return Some(Why::Gateway);
        }
        (kinds::is_overlay(link) && self.any.contains(&index)).then_some(Why::Overlay)
    }
}

/// Whether every device with IPv6 has this route, wherever it leads: to its link-local and multicast
/// addresses.
fn is_every_devices(route: &Route) -> bool {
    match route.destination {
        IpAddr::V6(to) if route.prefix > 0 => to.is_unicast_link_local() || to.is_multicast(),
        _ => false,
    }
}
