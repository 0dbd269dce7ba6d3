//! Which Service port a flow is for, by the Service maps that are pinned.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::SocketAddr,
};

use aya::maps::{HashMap as KernelMap, MapData};
use proxy_common::{
    address,
    frontend::{FrontendKey, FrontendValue},
    node::{NodeAddressKey, NodeAddressValue, as_dialled},
    service::{ServiceKey, ServiceValue},
};
use proxy_model::{Protocol, ServicePortKey};

use super::super::{in_force, pins::Peek};
use crate::{connections::Identity, encode};

/// The names of Service ports. A map that cannot be read names none.
pub struct Names {
    services: Option<KernelMap<MapData, ServiceKey, ServiceValue>>,
    frontends: Option<KernelMap<MapData, FrontendKey, FrontendValue>>,
    node_addresses: Option<KernelMap<MapData, NodeAddressKey, NodeAddressValue>>,
    /// What was asked before: many flows share a frontend.
    known: HashMap<(u32, Protocol, SocketAddr), Option<ServicePortKey>>,
}

impl Names {
    /// Those in the maps of this directory.
    pub fn of(pins: &Peek) -> Self {
        let services = pins.services();
        Self {
            services: in_force::open(&services, "SERVICES"),
            frontends: in_force::open(&services, "FRONTENDS"),
            node_addresses: in_force::open(&services, "NODE_ADDRS"),
            known: HashMap::new(),
        }
    }

    /// Forgets what was asked: the maps may have changed.
    pub fn refresh(&mut self) {
        self.known.clear();
    }

    /// The Service port of a flow that began under this number. Where nothing has that number any more,
    /// whoever has the frontend now: Service maps that were rebuilt number everything anew.
    pub fn name(&mut self, flow: &Identity, number: u32) -> Option<ServicePortKey> {
        let (protocol, frontend) = (flow.protocol, flow.frontend);
        if let Entry::Occupied(known) = self.known.entry((number, protocol, frontend)) {
            return known.get().clone();
        }
        let named = self
            .numbered(number)
            .or_else(|| self.numbered(self.dialled(protocol, frontend)?));
        let key = (number, protocol, frontend);
        self.known.insert(key, named.clone());
        named
    }

    fn numbered(&self, service: u32) -> Option<ServicePortKey> {
        let key = ServiceKey { service };
        let value = self.services.as_ref()?.get(&key, 0).ok()?;
        encode::service_key(key, &value)
    }

    /// The number of the Service port that clients outside reach here.
    fn dialled(&self, protocol: Protocol, at: SocketAddr) -> Option<u32> {
        let frontends = self.frontends.as_ref()?;
        let dialled = address::from_ip(at.ip());
        let protocol = encode::protocol_number(protocol)?;
        let key = FrontendKey::new(address::to_words(&dialled), at.port(), protocol);
        if let Ok(value) = frontends.get(&key, 0) {
            return Some(value.service);
        }
        let (here, _) = as_dialled(&dialled);
        self.node_addresses.as_ref()?.get(&here, 0).ok()?;
        let value = frontends.get(&key.of_node_port(), 0).ok()?;
        Some(value.service)
    }
}
