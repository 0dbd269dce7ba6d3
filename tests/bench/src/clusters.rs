//! Clusters of any size: one Service port per Service, ten endpoints each.
//!
//! All Services share the same ten pods, so that a few servers make every one of them answer; in
//! the agent's eyes and in the maps they are as many endpoints as if each had pods of its own.
//! Of ten Services in a row one is UDP, one is IPv6, the others are TCP over IPv4.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::Range,
};

use serde_json::{Value, json};

/// Endpoints of each Service.
pub const ENDPOINTS: u8 = 10;
/// Where TCP endpoints listen.
pub const TCP_PORT: u16 = 8080;
/// Where UDP endpoints listen.
pub const UDP_PORT: u16 = 5353;

/// What a Service of such a cluster speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// TCP over IPv4.
    Tcp,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv4.
    Udp,
}

impl Kind {
    /// Of the Service `number`.
    pub const fn of(number: u32) -> Self {
        match number % 10 {
            0 => Self::Udp,
            1 => Self::Tcp6,
            _ => Self::Tcp,
        }
    }

    const fn is_ipv6(self) -> bool {
        matches!(self, Self::Tcp6)
    }

    const fn protocol(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp | Self::Tcp6 => "TCP",
        }
    }

    /// Port of its frontends.
    pub const fn port(self) -> u16 {
        match self {
            Self::Udp => 53,
            Self::Tcp | Self::Tcp6 => 80,
        }
    }

    /// Port of its endpoints.
    pub const fn target_port(self) -> u16 {
        match self {
            Self::Udp => UDP_PORT,
            Self::Tcp | Self::Tcp6 => TCP_PORT,
        }
    }

    /// All of its endpoints.
    pub fn endpoints(self) -> Vec<SocketAddr> {
        (1..=ENDPOINTS)
            .map(|number| SocketAddr::new(pod_address(number, self.is_ipv6()), self.target_port()))
            .collect()
    }
}

/// An address of the pod that all endpoints are on.
pub fn pod_address(number: u8, ipv6: bool) -> IpAddr {
    if ipv6 {
        Ipv6Addr::new(0xfd00, 0x10, 0x244, 0, 0, 0, 0, number.into()).into()
    } else {
        Ipv4Addr::new(10, 244, 0, number).into()
    }
}

/// What clients of the Service `number` dial. Numbers must be below 2^20.
pub fn frontend(number: u32) -> SocketAddr {
    let kind = Kind::of(number);
    let ip = if kind.is_ipv6() {
        let prefix = Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0).to_bits();
        Ipv6Addr::from_bits(prefix | u128::from(number + 1)).into()
    } else {
        let prefix = Ipv4Addr::new(10, 96, 0, 0).to_bits();
        IpAddr::V4(Ipv4Addr::from_bits(prefix | (number + 1)))
    };
    SocketAddr::new(ip, kind.port())
}

/// Manifest of these Services, each with all endpoints.
pub fn manifest(numbers: Range<u32>) -> String {
    let items: Vec<_> = numbers
        .flat_map(|number| [service(number), slice(number, ENDPOINTS)])
        .collect();
    list(&items)
}

/// Manifest of the Service `number` alone, with its first `endpoints` endpoints.
pub fn one(number: u32, endpoints: u8) -> String {
    list(&[service(number), slice(number, endpoints)])
}

fn list(items: &[Value]) -> String {
    json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string()
}

pub(super) fn service(number: u32) -> Value {
    let kind = Kind::of(number);
    let ip = frontend(number).ip().to_string();
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": format!("s{number}"), "namespace": "bench" },
        "spec": {
            "clusterIP": ip,
            "clusterIPs": [ip],
            "ipFamilies": [if kind.is_ipv6() { "IPv6" } else { "IPv4" }],
            "ports": [{ "name": "main", "port": kind.port(), "protocol": kind.protocol() }],
            "type": "ClusterIP"
        }
    })
}

pub(super) fn slice(number: u32, endpoints: u8) -> Value {
    let kind = Kind::of(number);
    let endpoints: Vec<_> = kind
        .endpoints()
        .into_iter()
        .take(endpoints.into())
        .map(|endpoint| {
            json!({
                "addresses": [endpoint.ip().to_string()],
                "conditions": { "ready": true },
                "nodeName": "node-a"
            })
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("s{number}-a"),
            "namespace": "bench",
            "labels": { "kubernetes.io/service-name": format!("s{number}") }
        },
        "addressType": if kind.is_ipv6() { "IPv6" } else { "IPv4" },
        "ports": [{ "name": "main", "port": kind.target_port(), "protocol": kind.protocol() }],
        "endpoints": endpoints
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_service_has_a_frontend_of_its_own() {
        let all: BTreeSet<_> = (0..20_000).map(frontend).collect();
        assert_eq!(all.len(), 20_000);
        assert_eq!(frontend(9_999).to_string(), "10.96.39.16:80");
        assert_eq!(frontend(1).to_string(), "[fd00:10:96::2]:80");
    }

    #[test]
    fn a_manifest_holds_two_objects_per_service() {
        let list: Value = serde_json::from_str(&manifest(0..30)).unwrap();
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), 60);
        let protocols = |name: &str| {
            let of = |item: &&Value| item["spec"]["ports"][0]["protocol"] == name;
            items.iter().filter(of).count()
        };
        assert_eq!((protocols("TCP"), protocols("UDP")), (27, 3));
        assert_eq!(
            items[1]["endpoints"].as_array().unwrap().len(),
            usize::from(ENDPOINTS)
        );
    }
}
