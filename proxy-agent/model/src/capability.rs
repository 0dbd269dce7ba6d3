//! What a backend may be unable to do, and which Service ports need it.

use std::fmt;

use crate::{FrontendKind, Protocol, ServicePortKey, ServiceState};

/// Something that not every backend can do. What one lacks is reported, never skipped in silence.
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
    /// Clients that are no sockets of this node's processes: virtual machines, raw sockets,
    /// kernel clients, and whatever else sends packets to ClusterIPs.
    ForeignClients,
    /// Masquerading: `masqueradeAll`, clients outside the pod network, endpoints that dial
    /// themselves.
    Masquerade,
    /// Refusing unknown ports of ClusterIPs, and dropping what is sent to ClusterIPs that are not
    /// allocated.
    StrayTraffic,
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Sctp,
        Self::ExternalTraffic,
        Self::SourceRanges,
        Self::Affinity,
        Self::ForeignClients,
        Self::Masquerade,
        Self::StrayTraffic,
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
                "load-balancer IPs with source ranges are not served to anyone, so that nobody \
                 passes who may not"
            }
            Self::Affinity => "each connection goes to a random endpoint",
            Self::ForeignClients => {
                "virtual machines, raw sockets and kernel clients do not reach Services"
            }
            Self::Masquerade => "endpoints see the true source of every connection",
            Self::StrayTraffic => {
                "connections to unknown ports and unallocated ClusterIPs leave this node"
            }
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl ServiceState {
    /// What a backend must be able to do for this Service port.
    pub fn needs(&self, key: &ServicePortKey) -> impl Iterator<Item = Capability> {
        let has = |wanted: fn(FrontendKind) -> bool| {
            let mut kinds = self.frontends.iter().map(|frontend| frontend.kind);
            kinds.any(wanted)
        };
        [
            (Capability::Sctp, key.protocol == Protocol::Sctp),
            (Capability::ExternalTraffic, has(FrontendKind::is_external)),
            (Capability::SourceRanges, self.source_ranges.is_some()),
            (Capability::Affinity, self.affinity.is_some()),
        ]
        .into_iter()
        .filter_map(|(capability, needed)| needed.then_some(capability))
    }

    /// What of it a backend that lacks `lacks` cannot do.
    pub fn missing(
        &self,
        key: &ServicePortKey,
        lacks: &[Capability],
    ) -> impl Iterator<Item = Capability> {
        self.needs(key)
            .filter(move |capability| lacks.contains(capability))
    }
}
