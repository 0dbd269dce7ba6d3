//! Node-local state: what one node must do, with policy and readiness already applied. This is
//! all that a backend ever sees.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    num::{NonZeroU16, NonZeroU32},
    sync::Arc,
};

use imbl::OrdMap;
use ipnet::IpNet;

use crate::{Diagnostic, IpFamily, Node, Protocol, ServiceName, TrafficPolicy, oracle::Traffic};

/// The node-local state. Cloning it is O(1): a snapshot shares all that did not change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeState {
    /// The node this state is for.
    pub node: NodeInfo,
    /// How it recognises sources, and what it masquerades.
    pub traffic: Traffic,
    /// One entry per Service port and family, in key order.
    pub services: OrdMap<ServicePortKey, Arc<ServiceState>>,
    /// Where NodePorts answer, ordered and unique. Loopback addresses among them are for processes
    /// of this node, by way of sockets only; 127.0.0.1 stands for all of 127.0.0.0/8.
    pub node_port_addresses: Arc<[IpAddr]>,
    /// The answers to load balancers that query whether to send connections here.
    pub health_checks: OrdMap<HealthCheckKey, HealthCheck>,
    /// Where ClusterIPs are taken from, ordered and unique; empty when the cluster does not say.
    pub service_cidrs: Arc<[IpNet]>,
    /// Diagnostics, ordered.
    pub diagnostics: Arc<[Diagnostic]>,
}

/// The node that a [`NodeState`] is for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeInfo {
    /// The node's name, as given to the agent.
    pub name: Arc<str>,
    /// Its Node object; `None` while there is none.
    pub object: Option<Arc<Node>>,
    /// The addresses of its interfaces, ordered and unique; those of its Node object while the
    /// former are not known.
    pub host_addresses: Arc<[IpAddr]>,
}

impl NodeInfo {
    /// Its zone, if its Node object is known and carries the label.
    pub fn zone(&self) -> Option<&str> {
        self.object.as_ref()?.zone.as_deref()
    }

    /// Where the addresses of its pods come from; empty while there is no Node object.
    pub fn pod_cidrs(&self) -> &[IpNet] {
        self.object.as_ref().map_or(&[], |node| &node.pod_cidrs)
    }

    /// Whether `address` is one of this host: what it sends from there is its own.
    pub fn is_host(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.host_addresses.binary_search(&address).is_ok()
    }

    /// The addresses that its Node object names; empty while there is none.
    pub fn addresses(&self) -> &[IpAddr] {
        self.object.as_ref().map_or(&[], |node| &node.addresses)
    }

    /// Whether load balancers may send it new connections: never without a Node object.
    pub fn eligible(&self) -> bool {
        self.object.as_ref().is_some_and(|node| node.eligible)
    }
}

/// Identity of one entry of the node-local state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServicePortKey {
    /// The Service.
    pub service: ServiceName,
    /// The port's name, `""` when unnamed.
    pub port: Arc<str>,
    /// Protocol. Part of the key: TCP and UDP ports may share name and number.
    pub protocol: Protocol,
    /// Address family.
    pub family: IpFamily,
}

impl fmt::Display for ServicePortKey {
    /// `shop/web:http/TCP/IPv4`; the port is left out when unnamed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.service)?;
        if !self.port.is_empty() {
            write!(f, ":{}", self.port)?;
        }
        write!(f, "/{}/{}", self.protocol, self.family)
    }
}

/// What this node must do for one Service port in one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceState {
    /// Addresses that clients dial, ordered and unique. Empty when another Service holds them.
    pub frontends: Vec<Frontend>,
    /// The set for policy Cluster, ordered and unique; `None` when no frontend uses it that the
    /// Service asks for, whether or not it has that frontend.
    pub cluster_endpoints: Option<Arc<[Endpoint]>>,
    /// The set for policy Local, likewise.
    pub local_endpoints: Option<Arc<[Endpoint]>>,
    /// Whether any endpoint of the cluster could serve. With an empty set, false means *reject*
    /// and true means *drop* (the endpoints exist, but policy forbids them from here).
    pub has_any_endpoints: bool,
    /// Which set serves ClusterIP frontends.
    pub internal_policy: TrafficPolicy,
    /// Which set serves all other frontends; Cluster if there are none. With Local, clients on this
    /// node still use the cluster set.
    pub external_policy: TrafficPolicy,
    /// How long a client keeps its endpoint after its last connection, in seconds; `None` if each
    /// connection goes to a random one.
    pub affinity: Option<NonZeroU32>,
    /// Who may dial load-balancer IPs; `None` if everyone may.
    pub source_ranges: Option<Arc<SourceRanges>>,
}

/// Who may dial the load-balancer IPs of a Service port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRanges {
    /// Sources in these ranges, ordered and unique, all of one family.
    pub ranges: Vec<IpNet>,
    /// The dialled address itself as well: this node is in one of the ranges, and may have the
    /// address on one of its interfaces and send from it.
    pub own_address: bool,
}

/// Identity of the answer about one Service's health.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HealthCheckKey {
    /// The Service.
    pub service: ServiceName,
    /// Family of the addresses that give this answer.
    pub family: IpFamily,
}

/// The answer to load balancers about a Service with external policy Local (on its
/// `healthCheckNodePort`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthCheck {
    /// The port that they query.
    pub port: NonZeroU16,
    /// Different IP addresses of ready endpoints on this node. Those that terminate do not count
    /// even while they are the last resort, so that load balancers turn away in time.
    pub local_endpoints: usize,
}

/// An address that clients dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frontend {
    /// Where the address comes from.
    pub kind: FrontendKind,
    /// Address; `None` for every one of [`NodeState::node_port_addresses`] of the family.
    pub address: Option<IpAddr>,
    /// Port number.
    pub port: u16,
}

impl fmt::Display for Frontend {
    /// `10.96.0.1:80`, or `*:30080` on the node's own addresses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => SocketAddr::new(address, self.port).fmt(f),
            None => write!(f, "*:{}", self.port),
        }
    }
}

/// Where a frontend's address comes from. Of two Services that claim one address, the one whose
/// kind comes first has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrontendKind {
    /// `spec.clusterIPs`, which the API server hands out.
    ClusterIp,
    /// `status.loadBalancer.ingress`, which a controller writes.
    LoadBalancerIp,
    /// `spec.externalIPs`, which any user may write.
    ExternalIp,
    /// `spec.ports[].nodePort`.
    NodePort,
}

impl FrontendKind {
    /// The name used in output: `ClusterIP`, `LoadBalancerIP`, `ExternalIP` or `NodePort`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
            Self::LoadBalancerIp => "LoadBalancerIP",
            Self::ExternalIp => "ExternalIP",
            Self::NodePort => "NodePort",
        }
    }

    /// Whether clients outside the cluster dial it.
    pub const fn is_external(self) -> bool {
        !matches!(self, Self::ClusterIp)
    }
}

/// Where traffic may land. Sets are ordered by address, and have each address once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// Address and target port.
    pub address: SocketAddr,
    /// Whether it runs on this node; `None` if its `EndpointSlice` names no node, and where a brain
    /// does not say.
    pub local: Option<bool>,
}

impl Endpoint {
    /// Whether it is known to run on this node.
    pub fn is_here(&self) -> bool {
        self.local == Some(true)
    }

    /// One of which only the address is known.
    pub const fn at(address: SocketAddr) -> Self {
        Self {
            address,
            local: None,
        }
    }
}
