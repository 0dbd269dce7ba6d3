//! Node-local state in parts: what is sent, kept and deleted as one.

use std::{net::IpAddr, sync::Arc};

use proxy_model::{
    Diagnostic, HealthCheck, HealthCheckKey, IpNet, NodeInfo, NodeState, ServicePortKey,
    ServiceState, oracle::Traffic,
};

/// A part of the node-local state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// Facts about the node. There is exactly one.
    Node(Box<NodeFacts>),
    /// What to do for one Service port in one family.
    ServicePort(ServicePortKey, Arc<ServiceState>),
    /// The answer to load balancers about one Service.
    HealthCheck(HealthCheckKey, HealthCheck),
    /// What is wrong with one object, ordered by field and message; all of one object, and at
    /// least one.
    Diagnostics(Vec<Diagnostic>),
}

/// The identity of an [`Item`] that can be deleted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ItemKey {
    /// A Service port.
    ServicePort(ServicePortKey),
    /// The answer to load balancers about a Service.
    HealthCheck(HealthCheckKey),
    /// The object that diagnostics are about, as in [`Diagnostic::object`].
    Diagnostics(Arc<str>),
}

/// All that a [`NodeState`] says about the node itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFacts {
    /// See [`NodeState::node`].
    pub node: NodeInfo,
    /// See [`NodeState::traffic`].
    pub traffic: Traffic,
    /// See [`NodeState::node_port_addresses`].
    pub node_port_addresses: Arc<[IpAddr]>,
    /// See [`NodeState::service_cidrs`].
    pub service_cidrs: Arc<[IpNet]>,
}

impl NodeFacts {
    /// Those of `state`.
    pub fn of(state: &NodeState) -> Self {
        Self {
            node: state.node.clone(),
            traffic: state.traffic.clone(),
            node_port_addresses: Arc::clone(&state.node_port_addresses),
            service_cidrs: Arc::clone(&state.service_cidrs),
        }
    }

    /// Puts them into `state`.
    pub fn put(self, state: &mut NodeState) {
        let Self {
            node,
            traffic,
            node_port_addresses,
            service_cidrs,
        } = self;
        state.node = node;
        state.traffic = traffic;
        state.node_port_addresses = node_port_addresses;
        state.service_cidrs = service_cidrs;
    }
}
