//! Which addresses of this node endpoints see in the place of clients: for each device
//! that is served, those that netfilter would choose from if it masqueraded there. Pure; everything it
//! decides by is given to it.
//!
//! - IPv4, as `inet_select_addr`: primary addresses of the device with global scope, in its order. The
//!   program takes the first one whose network the next hop is in, otherwise the first one.
//! - IPv6, as `ipv6_dev_get_saddr`: addresses with global scope that are proven to be unique, temporary
//!   ones after the others, deprecated ones if there are no others. The program takes the one that has
//!   most in common with the destination.
//! - Where a device has none: the one by which the cluster knows the node, on whichever device it is. The
//!   kernel would take the first one of any device, and a reply to that need not find the way back.
//!
//! Where netfilter meets what comes over a bridge before programs on the bridge do (`br_netfilter`), a reply
//! would be one of no connection to it: no packet that leaves by such a bridge stands for a client's.
//!
//! An address that clients dial is none: others may have it too, so that replies would come to them.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    net::IpAddr,
};

use imbl::OrdSet;
use proxy_common::{
    address,
    packet::Version,
    track::{MOST_SOURCES, SourceKey, SourceValue},
};
use proxy_netlink::route::{
    Address, Link,
    numbers::{
        IFA_F_DADFAILED, IFA_F_DEPRECATED, IFA_F_SECONDARY, IFA_F_TEMPORARY, IFA_F_TENTATIVE,
        RT_SCOPE_UNIVERSE,
    },
};

/// Devices that stand on each other, at most: as many as the kernel allows (`MAX_NEST_DEV`).
const DEEPEST: usize = 8;

/// What is known about the node.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// All devices.
    pub links: &'a [Link],
    /// All addresses of theirs, in the kernel's order.
    pub addresses: &'a [Address],
    /// The addresses by which the cluster knows the node.
    pub node: &'a [IpAddr],
    /// Those that clients dial, and that other nodes may have, too.
    pub virtual_addresses: &'a OrdSet<IpAddr>,
    /// Whether netfilter is told of the packets of IPv4 and of IPv6 that any bridge carries.
    pub bridges_call: [bool; 2],
}

/// What SOURCES shall hold while these devices are `served`, and these lead to `pods`, with programs on their
/// ports where they are bridges.
pub fn choose(
    facts: Facts<'_>,
    served: impl IntoIterator<Item = u32>,
    pods: impl IntoIterator<Item = u32>,
) -> BTreeMap<SourceKey, SourceValue> {
    let mut entries = BTreeMap::new();
    let served = served.into_iter().map(|device| (device, false));
    let pods = pods.into_iter().map(|device| (device, true));
    for (device, by_ports) in served.chain(pods) {
        for version in [Version::V4, Version::V6] {
            if !by_ports && facts.is_behind_netfilter(device, version) {
                continue;
            }
            let chosen = facts.of_device(device, version);
            for (index, one) in (0..MOST_SOURCES).zip(chosen) {
                let key = SourceKey::new(device, version, index);
                let (own, mask) = (address::from_ip(one.address), mask(one));
                entries.insert(key, SourceValue::new(&key, own, mask));
            }
        }
    }
    entries
}

/// What OWN_ADDRS shall hold: addresses that are no device's alone.
pub fn own(addresses: &[Address]) -> BTreeSet<IpAddr> {
    let is_wide = |one: &&Address| one.scope == RT_SCOPE_UNIVERSE;
    let wide = addresses.iter().filter(is_wide);
    wide.map(|one| one.address).collect()
}

impl<'a> Facts<'a> {
    /// Those of a device and family, in the order in which they are chosen from.
    fn of_device(self, device: u32, version: Version) -> Vec<&'a Address> {
        let there = self.addresses.iter();
        let there = there.filter(|one| one.device == device && self.may_be_source(one, version));
        let chosen = match version {
            // Secondary ones are for who binds to them.
            Version::V4 => there
                .filter(|one| one.flags & IFA_F_SECONDARY == 0)
                .collect(),
            Version::V6 => {
                let mut all: Vec<_> = there.collect();
                let is_deprecated = |one: &Address| one.flags & IFA_F_DEPRECATED != 0;
                if !all.iter().all(|one| is_deprecated(one)) {
                    all.retain(|one| !is_deprecated(one));
                }
                // Those that are equal in this keep their order.
                all.sort_by_key(|one| one.flags & IFA_F_TEMPORARY);
                all
            }
        };
        if chosen.is_empty() {
            return self.elsewhere(device, version).into_iter().collect();
        }
        self.kept(chosen)
    }

    /// As many as there is room for, in their order; those by which the cluster knows the node before
    /// others.
    fn kept(self, mut all: Vec<&'a Address>) -> Vec<&'a Address> {
        let mut left = usize::from(MOST_SOURCES);
        for are_known in [true, false] {
            let mut seen = 0;
            all.retain(|one| {
                let counts = self.node.contains(&one.address) == are_known;
                seen += usize::from(counts);
                !counts || seen <= left
            });
            left = left.saturating_sub(seen);
        }
        all
    }

    /// The node's own address of that family, if this host has it where packets that leave by `device`
    /// are routed.
    fn elsewhere(self, device: u32, version: Version) -> Option<&'a Address> {
        let mut known = self.node.iter();
        known.find_map(|known| {
            let mut there = self.addresses.iter();
            there.find(|one| {
                one.address == *known
                    && self.may_be_source(one, version)
                    && self.vrf(one.device) == self.vrf(device)
            })
        })
    }

    fn may_be_source(self, one: &Address, version: Version) -> bool {
        let is_of_family = match version {
            Version::V4 => one.address.is_ipv4(),
            Version::V6 => one.address.is_ipv6(),
        };
        let is_unproven = one.flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED) != 0;
        is_of_family
            && !is_unproven
            && one.scope == RT_SCOPE_UNIVERSE
            // What the cluster knows the node by, no other node has, whatever Services say (load balancers of
            // small clusters give them the addresses of nodes).
            && (self.node.contains(&one.address) || !self.virtual_addresses.contains(&one.address))
    }

    /// Whether netfilter meets what comes by a device before programs there do: it is a bridge, or stands on one.
    fn is_behind_netfilter(self, device: u32, version: Version) -> bool {
        let family = usize::from(version == Version::V6);
        let calls = |link: &Link| {
            link.kind.as_deref() == Some("bridge")
                && (self.bridges_call[family] || link.calls_netfilter[family])
        };
        let below = |link: &&'a Link| self.link(link.lower.filter(|_| !link.lower_is_elsewhere)?);
        // Devices of a pair stand on each other.
        iter::successors(self.link(device), below)
            .take(DEEPEST)
            .any(calls)
    }

    fn link(self, index: u32) -> Option<&'a Link> {
        self.links.iter().find(|link| link.index == index)
    }

    /// The VRF that a device is, or is in.
    fn vrf(self, device: u32) -> Option<u32> {
        let is_vrf = |link: &&Link| link.kind.as_deref() == Some("vrf");
        let device = self.link(device)?;
        let master = device.master.and_then(|master| self.link(master));
        let vrf = [Some(device), master].into_iter().flatten().find(is_vrf);
        vrf.map(|vrf| vrf.index)
    }
}

/// The bits that an address has in common with its neighbours, in the form that maps hold.
fn mask(one: &Address) -> address::Address {
    let (before, most) = match one.address {
        IpAddr::V4(_) => (96, 32),
        IpAddr::V6(_) => (0, 128),
    };
    let bits = before + u32::from(one.prefix).min(most);
    let beyond = u128::MAX.checked_shr(bits).unwrap_or(0);
    (!beyond).to_be_bytes()
}
