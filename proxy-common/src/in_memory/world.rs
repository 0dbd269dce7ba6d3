//! Maps in memory, and what the agent writes into them.

use std::net::{IpAddr, SocketAddr};

use super::{
    cpu::Cpu,
    interleaved::{Order, Shared},
    maps::Maps,
};
use crate::{
    address,
    endpoint::Endpoint,
    frontend::{FrontendKey, FrontendValue, OUTSIDE_TO_LOCAL},
    node::NodeAddressKey,
    packet::Version,
    track::{SourceKey, SourceValue},
};

/// The maps, and who reaches them.
pub struct World(Shared<Maps>);

impl Default for World {
    /// Empty maps.
    fn default() -> Self {
        Self::of(Maps::default())
    }
}

/// The key of a frontend at this address.
fn dialled(at: &str, protocol: u8) -> FrontendKey {
    let at: SocketAddr = at.parse().unwrap();
    let address = address::to_words(&address::from_ip(at.ip()));
    FrontendKey::new(address, at.port(), protocol)
}

impl World {
    /// These maps.
    pub fn of(maps: Maps) -> Self {
        Self(Shared::new(maps, 1, Order::new()))
    }

    /// The maps alone.
    pub fn into_maps(self) -> Maps {
        self.0.into_maps()
    }

    /// Looks at the maps, or changes them.
    pub fn maps<R>(&self, act: impl FnOnce(&mut Maps) -> R) -> R {
        self.0.now(act)
    }

    /// What a program sees while nothing else runs.
    pub fn alone(&self) -> Cpu<'_> {
        Cpu::new(&self.0, None)
    }

    /// Lets time pass.
    pub fn pass(&self, seconds: u32) {
        self.maps(|maps| maps.seconds += seconds);
    }

    /// A frontend of this protocol that leads to `set`. `flags` are changed in those of a usual one.
    pub fn serve(&self, at: &str, protocol: u8, set: u32) -> FrontendKey {
        let key = dialled(at, protocol);
        self.put(key, |value| value.local_set = set);
        key
    }

    /// The same of a NodePort, dialled at one of the node's addresses.
    pub fn serve_node_port(&self, at: &str, protocol: u8, set: u32) -> FrontendKey {
        let key = dialled(at, protocol).of_node_port();
        self.put(key, |value| value.local_set = set);
        key
    }

    /// Changes a frontend.
    pub fn put(&self, key: FrontendKey, change: impl FnOnce(&mut FrontendValue)) {
        self.maps(|maps| {
            let usual = FrontendValue {
                service: 1,
                cluster_set: 0,
                local_set: 0,
                flags: OUTSIDE_TO_LOCAL,
                affinity: 0,
                check: 0,
            };
            let value = maps.frontends.entry(key).or_insert(usual);
            change(value);
            *value = value.sealed(&key);
        });
    }

    /// Whatever is sent to another node leaves by this device towards `hop`, and may do so as from these of
    /// its addresses, each with the length of its prefix. Ports of all of these mean nothing.
    pub fn leave_by(&self, device: u32, hop: &str, sources: &[(&str, u32)]) {
        let ip = |text: &str| text.parse::<SocketAddr>().unwrap().ip();
        let form = |text: &str| address::from_ip(ip(text));
        self.maps(|maps| {
            maps.way = (device, address::to_words(&form(hop)));
            maps.sources.clear();
            for (source, length) in sources {
                let (version, before) = match ip(source) {
                    IpAddr::V4(_) => (Version::V4, 96),
                    IpAddr::V6(_) => (Version::V6, 0),
                };
                let mask = u128::MAX << (128 - before - length);
                let family = SourceKey::new(device, version, 0).family;
                let others = maps.sources.keys().filter(|key| key.family == family);
                let index = u16::try_from(others.count()).unwrap();
                let key = SourceKey::new(device, version, index);
                let value = SourceValue::new(&key, form(source), mask.to_be_bytes());
                maps.sources.insert(key, value);
                maps.own_addresses.push(NodeAddressKey {
                    address: form(source),
                });
            }
        });
    }

    /// The endpoints of a set: their numbers and where they are.
    pub fn set(&self, set: u32, endpoints: &[(u32, &str)]) {
        let endpoints = endpoints.iter().map(|(number, at)| {
            let at: SocketAddr = at.parse().unwrap();
            Endpoint {
                number: *number,
                address: address::from_ip(at.ip()),
                port: at.port(),
                flags: 0,
            }
        });
        let endpoints = endpoints.collect();
        self.maps(|maps| maps.sets.insert(set, endpoints));
    }
}
