//! Who dials in a scenario, by address: what the node meets of a probe that it sends on as a packet.
//! Socket hooks know less, see [`judge`](super::judge). Pure.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result};
use proxy_model::{Protocol, oracle::Packet};

use super::{Probe, Scenario, objects};
use crate::world::NODE_ADDRESSES;

/// Addresses of the pod that sends probes.
pub const CLIENT: [&str; 2] = ["10.244.254.1", "fd00:10:244:fffe::1"];

/// The device by which packets of pods reach the node.
pub const BRIDGE: &str = "br0";

/// The addresses of whoever can send a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    node: Vec<IpAddr>,
    client: Vec<IpAddr>,
    endpoints: Vec<IpAddr>,
}

impl Sources {
    /// Those of `scenario`.
    pub fn of(scenario: &Scenario) -> Result<Self> {
        let more = &scenario.settings.node_addresses;
        let node = [&NODE_ADDRESSES[..], more].concat();
        let client: Result<_, _> = CLIENT.iter().map(|text| text.parse()).collect();
        let listen = objects::listeners(scenario)?;
        let mut endpoints: Vec<IpAddr> = listen.iter().map(|one| one.address.ip()).collect();
        endpoints.retain(|address| !node.contains(address));
        endpoints.sort_unstable();
        Ok(Self {
            node,
            client: client?,
            endpoints,
        })
    }

    /// The first packet that the socket of `probe` sends, if nothing leads it elsewhere before.
    pub fn packet(&self, probe: &Probe) -> Result<Packet> {
        let to = SocketAddr::new(probe.to.ip().to_canonical(), probe.to.port());
        let of = |addresses: &[IpAddr]| {
            let mut addresses = addresses.iter().copied();
            addresses.find(|address| address.is_ipv4() == to.is_ipv4())
        };
        let source = match probe.source.as_str() {
            // What is local is reached from there.
            "node" if self.node.contains(&to.ip()) || to.ip().is_loopback() => Some(to.ip()),
            "node" => of(&self.node),
            "pod" => of(&self.client),
            _ => of(&self.endpoints),
        };
        Ok(Packet {
            source: source.with_context(|| format!("{} has no such address", probe.source))?,
            destination: to,
            protocol: if probe.transport.is_udp() {
                Protocol::Udp
            } else {
                Protocol::Tcp
            },
            interface: (probe.source != "node").then(|| BRIDGE.into()),
        })
    }
}
