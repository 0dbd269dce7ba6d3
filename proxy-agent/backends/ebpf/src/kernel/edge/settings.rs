//! What the programs on devices are told about the node. Pure but for the random seed.

use std::{hash::BuildHasher as _, net::IpAddr, sync::Arc};

use ipnet::IpNet;
use proxy_common::{
    address,
    names::TRACKED_MAP,
    track::{ALONE, PODS_V4, PODS_V6, Prefix, Settings},
};
use proxy_model::{NodeState, PacketLayer, oracle::Detector};

use super::{
    super::{EbpfOptions, sizes},
    timeouts::Idle,
};

/// Seconds that a connection is remembered of which kube-proxy's file says nothing: the kernel's own
/// (`nf_conntrack_*_timeout`).
const TCP_CLOSED: u32 = 120;
const TCP_RESET: u32 = 10;
const TCP_BENEATH: u32 = 120;
/// Where room is scarce: whoever sends a FIN again has done so by then.
const TCP_CLOSED_CROWDED: u32 = 10;

/// Devices that only pods are behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodDevices {
    /// The one of this name.
    Named(Arc<str>),
    /// Those whose names begin so.
    Prefixed(Arc<str>),
}

impl PodDevices {
    /// Whether the device of this name is one.
    pub fn include(&self, device: &str) -> bool {
        match self {
            Self::Named(name) => device == &**name,
            Self::Prefixed(prefix) => device.starts_with(&**prefix),
        }
    }
}

/// The devices that pods are recognised by, if they are.
pub fn pod_devices(state: &NodeState) -> Option<PodDevices> {
    match &state.traffic.detector {
        Detector::BridgeInterface(name) => Some(PodDevices::Named(Arc::clone(name))),
        Detector::InterfaceNamePrefix(prefix) => Some(PodDevices::Prefixed(Arc::clone(prefix))),
        Detector::None | Detector::ClusterCidr(_) | Detector::NodeCidr => None,
    }
}

/// What SETTINGS shall hold; without a seed.
pub fn settings(
    state: &NodeState,
    options: &EbpfOptions,
    beneath: PacketLayer,
    idle: &Idle,
) -> Settings {
    let shape = proxy_common::names::EDGE_MAPS
        .iter()
        .find(|shape| shape.name == TRACKED_MAP)
        .expect("a name of the table");
    let mut settings = Settings {
        most_flows: sizes::asked(shape, &options.map_sizes),
        udp_unanswered: idle.udp_unanswered,
        udp_answered: idle.udp_answered,
        tcp_beneath: TCP_BENEATH,
        tcp_established: idle.tcp_established,
        tcp_half_closed: idle.tcp_half_closed,
        tcp_closed: TCP_CLOSED,
        tcp_reset: TCP_RESET,
        first_port: (*options.source_ports.start()).into(),
        last_port: (*options.source_ports.end()).into(),
        ..Settings::default()
    };
    if beneath == PacketLayer::Absent {
        settings.flags |= ALONE;
    }
    let ranges = match &state.traffic.detector {
        Detector::ClusterCidr(ranges) => ranges,
        Detector::NodeCidr => state.node.pod_cidrs(),
        Detector::None | Detector::BridgeInterface(_) | Detector::InterfaceNamePrefix(_) => &[],
    };
    for range in ranges {
        let (place, flag) = match range {
            IpNet::V4(_) => (0, PODS_V4),
            IpNet::V6(_) => (1, PODS_V6),
        };
        settings.flags |= flag;
        settings.pods[place] = prefix(range);
    }
    settings
}

/// The same settings while connections that are over take the room of new ones.
pub const fn crowded(settings: &Settings) -> Settings {
    Settings {
        tcp_closed: TCP_CLOSED_CROWDED,
        ..*settings
    }
}

/// A number that nobody outside can know.
pub fn seed() -> u32 {
    let [a, b, c, d, ..] = std::hash::RandomState::new().hash_one(0).to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

fn prefix(range: &IpNet) -> Prefix {
    let mask = match range.netmask() {
        IpAddr::V4(mask) => {
            let mut bytes = [0xff; 16];
            bytes[12..].copy_from_slice(&mask.octets());
            bytes
        }
        IpAddr::V6(mask) => mask.octets(),
    };
    Prefix {
        address: address::from_ip(range.network()),
        mask,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_a_range_are_pods_and_no_others() {
        let words = |ip: &str| address::to_words(&address::from_ip(ip.parse().unwrap()));
        let pods = |range: &str| {
            let range: IpNet = range.parse().unwrap();
            let (place, flags) = match range {
                IpNet::V4(_) => (0, PODS_V4),
                IpNet::V6(_) => (1, PODS_V6),
            };
            let mut settings = Settings {
                flags,
                ..Settings::default()
            };
            settings.pods[place] = prefix(&range);
            settings
        };
        for (range, inside, outside) in [
            ("10.244.0.0/16", "10.244.9.1", "10.245.0.1"),
            ("10.244.0.0/16", "10.244.0.0", "fd00::af4:1"),
            ("0.0.0.0/0", "192.0.2.1", "2001:db8::1"),
            ("fd00:10::/64", "fd00:10::7", "fd00:10:0:1::7"),
            ("192.0.2.7/32", "192.0.2.7", "192.0.2.6"),
        ] {
            let settings = pods(range);
            assert!(settings.is_pod(&words(inside)), "{range} {inside}");
            assert!(!settings.is_pod(&words(outside)), "{range} {outside}");
        }
        assert!(!Settings::default().is_pod(&words("0.0.0.0")));
    }
}
