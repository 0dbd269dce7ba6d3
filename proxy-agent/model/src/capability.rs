//! What a backend may be unable to do, and which Service ports need it.

use std::{fmt, net::IpAddr};

use crate::{FrontendKind, IpFamily, NodeState, Protocol, ServicePortKey, ServiceState};

/// Something that not every backend can do. What a backend lacks is reported, never skipped
/// silently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// Ports of protocol SCTP.
    Sctp,
    /// Connections that reach this node from elsewhere, for NodePorts, external IPs and
    /// load-balancer IPs.
    ExternalTraffic,
    /// `loadBalancerSourceRanges`.
    SourceRanges,
    /// `sessionAffinity: ClientIP`.
    Affinity,
    /// Clients other than sockets of this node's processes: virtual machines, raw sockets, kernel
    /// clients, and anything else that sends packets to ClusterIPs.
    ForeignClients,
    /// Masquerading: `masqueradeAll`, clients outside the pod network, endpoints that dial
    /// themselves.
    Masquerade,
    /// Refusing unknown ports of ClusterIPs, and dropping packets to ClusterIPs that are not
    /// allocated.
    StrayTraffic,
    /// NodePorts on 127.0.0.0/8, for processes of this node.
    LoopbackNodePorts,
    /// NodePorts on `::1`, for processes of this node.
    Ipv6LoopbackNodePorts,
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Sctp,
        Self::ExternalTraffic,
        Self::SourceRanges,
        Self::Affinity,
        Self::ForeignClients,
        Self::Masquerade,
        Self::StrayTraffic,
        Self::LoopbackNodePorts,
        Self::Ipv6LoopbackNodePorts,
    ];

    /// The name used in output and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sctp => "sctp",
            Self::ExternalTraffic => "external-traffic",
            Self::SourceRanges => "source-ranges",
            Self::Affinity => "affinity",
            Self::ForeignClients => "foreign-clients",
            Self::Masquerade => "masquerade",
            Self::StrayTraffic => "stray-traffic",
            Self::LoopbackNodePorts => "loopback-node-ports",
            Self::Ipv6LoopbackNodePorts => "ipv6-loopback-node-ports",
        }
    }

    /// What does not work without it.
    pub const fn without(self) -> &'static str {
        match self {
            Self::Sctp => "SCTP ports are not served",
            Self::ExternalTraffic => {
                "NodePorts, external and load-balancer IPs answer processes of this node only, not \
                 connections from elsewhere"
            }
            Self::SourceRanges => {
                "load-balancer IPs with source ranges are not served to every client that the ranges \
                 admit, and to no other"
            }
            Self::Affinity => "each connection goes to a random endpoint",
            Self::ForeignClients => {
                "virtual machines, raw sockets and kernel clients do not reach Services"
            }
            Self::Masquerade => {
                "endpoints see the true source of every connection that begins on this node"
            }
            Self::StrayTraffic => {
                "connections to unknown ports and unallocated ClusterIPs leave this node"
            }
            Self::LoopbackNodePorts => {
                "NodePorts do not answer on 127.0.0.1, only on the other addresses of this node"
            }
            Self::Ipv6LoopbackNodePorts => {
                "NodePorts do not answer on ::1, only on the other addresses of this node"
            }
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl NodeState {
    /// Families in which NodePorts answer on loopback addresses.
    pub fn loopback_node_ports(&self) -> impl Iterator<Item = IpFamily> {
        let addresses = self.node_port_addresses.iter().copied();
        addresses.filter(IpAddr::is_loopback).map(IpFamily::of)
    }

    /// What a backend must be able to do for this Service port.
    pub fn needs(
        &self,
        key: &ServicePortKey,
        service: &ServiceState,
    ) -> impl Iterator<Item = Capability> {
        let has = |wanted: fn(FrontendKind) -> bool| {
            let mut kinds = service.frontends.iter().map(|frontend| frontend.kind);
            kinds.any(wanted)
        };
        let on_loopback = |family| {
            key.family == family
                && has(|kind| kind == FrontendKind::NodePort)
                && self.loopback_node_ports().any(|one| one == family)
        };
        [
            (Capability::Sctp, key.protocol == Protocol::Sctp),
            (Capability::ExternalTraffic, has(FrontendKind::is_external)),
            (Capability::SourceRanges, service.source_ranges.is_some()),
            (Capability::Affinity, service.affinity.is_some()),
            (
                Capability::Masquerade,
                self.traffic.masquerade_all && has(|kind| !kind.is_external()),
            ),
            (Capability::LoopbackNodePorts, on_loopback(IpFamily::V4)),
            (Capability::Ipv6LoopbackNodePorts, on_loopback(IpFamily::V6)),
        ]
        .into_iter()
        .filter_map(|(capability, needed)| needed.then_some(capability))
    }

    /// Which of these needs a backend that lacks `lacks` cannot meet.
    pub fn missing(
        &self,
        key: &ServicePortKey,
        service: &ServiceState,
        lacks: &[Capability],
    ) -> impl Iterator<Item = Capability> {
        self.needs(key, service)
            .filter(move |capability| lacks.contains(capability))
    }
}
