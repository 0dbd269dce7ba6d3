//! Devices of pods: by which endpoints on this node are reached that must see it in the place of clients
//! outside. Pure.
//!
//! A route without a gateway leads to such an endpoint: out of the device of its pod, or of a bridge, of which it
//! is behind some port. Programs are on ports then: what netfilter is told of what a bridge carries
//! (`br_netfilter`), it is told before programs on the bridge itself meet it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use ipnet::IpNet;
use proxy_netlink::route::{Link, Route};

use super::{Choice, Device, Facts, LinkLayer, is_every_devices, kinds};

/// The devices that packets for endpoints leave by, with those that the programs are on.
pub type Ways = BTreeMap<u32, Vec<u32>>;

/// Decides which devices lead to these `endpoints`, but for those that are `served` for clients outside: the
/// programs there do the same, and more. `programs` tells those of others on a device, by name.
pub fn ways<'a>(
    facts: Facts<'_>,
    served: &BTreeSet<u32>,
    endpoints: impl IntoIterator<Item = &'a IpAddr>,
    mut programs: impl FnMut(&Link) -> Vec<String>,
) -> Ways {
    let routes = Routes::of(facts.routes);
    let devices: BTreeSet<u32> = endpoints
        .into_iter()
        .filter_map(|endpoint| routes.device(*endpoint))
        .filter(|device| !served.contains(device))
        .collect();
    let links: BTreeMap<u32, &Link> = facts.links.iter().map(|link| (link.index, link)).collect();
    let devices = devices.into_iter().filter_map(|index| {
        let link = links.get(&index)?;
        let hooks: Vec<_> = if link.kind.as_deref() == Some("bridge") {
            let links = facts.links.iter();
            links.filter(|port| port.master == Some(index)).collect()
        } else {
            vec![*link]
        };
        let mut may_be = hooks.iter().filter(|hook| hook.is_up());
        let are_ours = may_be.all(|hook| may_serve(hook, &mut programs));
        let hooks: Vec<_> = hooks
            .into_iter()
            .filter(|hook| hook.is_up())
            .map(|hook| hook.index)
            .collect();
        (are_ours && !hooks.is_empty()).then_some((index, hooks))
    });
    devices.collect()
}

/// Serves the devices that programs are to be `on` for pods, but for those that are served for clients outside.
pub fn add(devices: &mut [Device], on: &BTreeSet<u32>) {
    for device in devices {
        let is_there = on.contains(&device.index);
        if is_there && matches!(device.choice, Choice::Not(_)) {
            device.choice = Choice::Pods;
        }
    }
}

/// Whether programs of ours may be on a device.
fn may_serve(link: &Link, programs: &mut impl FnMut(&Link) -> Vec<String>) -> bool {
    let mut others = programs(link).into_iter();
    !link.is_loopback()
        && kinds::layer(link.hardware) == Some(LinkLayer::Ethernet)
        && kinds::balancer_of_device(&link.name) != Some("Cilium")
        && !others.any(|name| kinds::balancer_of_program(&name).is_some())
}

/// Routes by where they lead.
struct Routes {
    /// The device, where no gateway is between.
    to: HashMap<IpNet, Option<u32>>,
    /// Lengths of prefixes, the longest one first: IPv4, IPv6.
    lengths: [BTreeSet<std::cmp::Reverse<u8>>; 2],
}

impl Routes {
    fn of(all: &[Route]) -> Self {
        let mut routes = Self {
            to: HashMap::new(),
            lengths: Default::default(),
        };
        for route in all.iter().filter(|route| !is_every_devices(route)) {
            let Ok(to) = IpNet::new(route.destination, route.prefix) else {
                continue;
            };
            let direct = route.hops.iter().find(|hop| !hop.has_gateway);
            let device = direct.map(|hop| hop.device);
            // Of several tables, one may lead there directly.
            let known = routes.to.entry(to.trunc()).or_default();
            *known = known.or(device);
            let family = usize::from(route.destination.is_ipv6());
            routes.lengths[family].insert(std::cmp::Reverse(route.prefix));
        }
        routes
    }

    /// The device by which packets reach this address without a gateway.
    fn device(&self, address: IpAddr) -> Option<u32> {
        let lengths = self.lengths[usize::from(address.is_ipv6())].iter();
        let mut found = lengths.filter_map(|length| {
            let net = IpNet::new(address, length.0).ok()?;
            self.to.get(&net.trunc())
        });
        *found.next()?
    }
}
