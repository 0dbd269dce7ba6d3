//! Node-local state: what one node must do, with policy and readiness already applied. This is
//! all that a backend ever sees.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use imbl::OrdMap;
use ipnet::IpNet;

use crate::{Diagnostic, IpFamily, Node, Protocol, ServiceName, TrafficPolicy};

/// The node-local state. Cloning it is O(1): a snapshot shares all that did not change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeState {
    /// The node this state is for.
    pub node: NodeInfo,
    /// One entry per Service port and family, in key order.
    pub services: OrdMap<ServicePortKey, Arc<ServiceState>>,
    /// Where ClusterIPs are taken from, ordered and unique; empty when the cluster does not say.
    pub service_cidrs: Arc<[IpNet]>,
    /// What does not make sense, ordered.
    pub diagnostics: Arc<[Diagnostic]>,
}

/// The node that a [`NodeState`] is for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeInfo {
    /// The node's name, as given to the agent.
    pub name: Arc<str>,
    /// Its Node object; `None` while there is none.
    pub object: Option<Arc<Node>>,
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

    /// Its own addresses; empty while there is no Node object.
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
    /// The set for policy Cluster, ordered and unique; `None` when no frontend uses it.
    pub cluster_endpoints: Option<Arc<[Endpoint]>>,
    /// The set for policy Local, ordered and unique; `None` when no frontend uses it.
    pub local_endpoints: Option<Arc<[Endpoint]>>,
    /// Whether any endpoint of the cluster could serve. With an empty set, false means *reject*
    /// and true means *drop* (the endpoints exist, but policy forbids them from here).
    pub has_any_endpoints: bool,
    /// Which set serves ClusterIP frontends.
    pub internal_policy: TrafficPolicy,
}

/// An address that clients dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frontend {
    /// Where the address comes from.
    pub kind: FrontendKind,
    /// Address.
    pub address: IpAddr,
    /// Port number.
    pub port: u16,
}

/// Where a frontend's address comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrontendKind {
    /// `spec.clusterIPs`.
    ClusterIp,
}

impl FrontendKind {
    /// The name used in output: `ClusterIP`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
        }
    }
}

/// Where traffic may land.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// Address and target port.
    pub address: SocketAddr,
}
