//! The JSON form of node-local state. Documented in `docs/state-json.md`; fields are only ever
//! added.

use std::{
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
};

use proxy_model::{
    Capability, Diagnostic, Endpoint, Frontend, HealthCheck, HealthCheckKey, IpNet, NodeState,
    ServicePortKey, ServiceState, TrafficPolicy, oracle::Detector,
};
use serde::Serialize;

/// Everything that one node must do.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State<'a> {
    /// The node.
    pub node: Node<'a>,
    /// One entry per Service port and IP family, ordered by namespace, name, port, protocol and
    /// family.
    pub services: Vec<Service<'a>>,
    /// What load balancers are told that ask, ordered by namespace, name and family.
    pub health_checks: Vec<Check<'a>>,
    /// Ranges that ClusterIPs are taken from, ordered; empty if the cluster does not say.
    #[serde(rename = "serviceCIDRs")]
    pub service_cidrs: Vec<String>,
    /// What does not make sense or is not served, ordered by object.
    pub diagnostics: Vec<Problem<'a>>,
}

/// The node that the state is for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node<'a> {
    /// As given to the agent.
    pub name: &'a str,
    /// Label `topology.kubernetes.io/zone` of the Node object, `null` if unknown.
    pub zone: Option<&'a str>,
    /// Whether its Node object is known. Without it, what follows is empty and false.
    pub known: bool,
    /// `spec.podCIDRs` of the Node object.
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
    /// The node's own addresses.
    pub addresses: &'a [IpAddr],
    /// Where NodePorts answer, ordered. Loopback addresses are for processes of this node only,
    /// and 127.0.0.1 stands for all of 127.0.0.0/8.
    pub node_port_addresses: &'a [IpAddr],
    /// Whether load balancers may send it new connections.
    pub eligible: bool,
    /// Addresses of its interfaces, ordered; those above while they are not known.
    pub host_addresses: &'a [IpAddr],
    /// How traffic of its pods is told; `null` if nothing tells.
    pub detect_local: Option<Detection>,
    /// Whether everything that dials a ClusterIP is masqueraded.
    pub masquerade_all: bool,
}

/// How traffic of this node's pods is told.
#[derive(Debug, Serialize)]
pub struct Detection {
    /// `ClusterCIDR`, `NodeCIDR`, `BridgeInterface` or `InterfaceNamePrefix`.
    pub mode: &'static str,
    /// Where it comes from; empty for the modes that look at interfaces.
    pub cidrs: Vec<String>,
    /// Name, or start of names, of the interface it comes in by; `null` for the other modes.
    pub interface: Option<String>,
}

/// One Service port in one IP family.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Service<'a> {
    /// Namespace of the Service.
    pub namespace: &'a str,
    /// Name of the Service.
    pub name: &'a str,
    /// The port's name, `""` when unnamed.
    pub port: &'a str,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: &'static str,
    /// `IPv4` or `IPv6`.
    pub family: &'static str,
    /// Addresses that clients dial.
    pub frontends: Vec<Dialled>,
    /// `ip:port` or `[ip]:port` of each endpoint for traffic policy Cluster, ordered; `null` if
    /// no frontend uses that set.
    pub cluster_endpoints: Option<Vec<SocketAddr>>,
    /// The same for traffic policy Local.
    pub local_endpoints: Option<Vec<SocketAddr>>,
    /// Whether any endpoint of the cluster could serve. If false, connections are refused; if
    /// true and the set in use is empty, they are unreachable.
    pub has_any_endpoints: bool,
    /// `Cluster` or `Local`: which set serves ClusterIPs.
    pub internal_policy: &'static str,
    /// `Cluster` or `Local`: which set serves all other frontends.
    pub external_policy: &'static str,
    /// Seconds for which a client keeps its endpoint; `null` if each connection goes to a random
    /// one.
    pub affinity_seconds: Option<u32>,
    /// Who may dial load-balancer IPs; `null` if everyone may.
    pub source_ranges: Option<Ranges>,
    /// What the backend lacks and this Service port needs; only with a running agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<Vec<&'static str>>,
}

/// Who may dial load-balancer IPs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ranges {
    /// Sources in these.
    pub ranges: Vec<String>,
    /// The dialled address itself as well.
    pub own_address: bool,
}

/// What load balancers are told about one Service in one IP family.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check<'a> {
    /// Namespace of the Service.
    pub namespace: &'a str,
    /// Name of the Service.
    pub name: &'a str,
    /// `IPv4` or `IPv6`.
    pub family: &'static str,
    /// Where they ask.
    pub port: u16,
    /// Different addresses of ready endpoints on this node.
    pub local_endpoints: usize,
}

/// An address that clients dial.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Dialled {
    /// `ClusterIP`, `LoadBalancerIP`, `ExternalIP` or `NodePort`.
    pub kind: &'static str,
    /// IP address without brackets; `null` for a NodePort, which answers on every one of
    /// [`Node::node_port_addresses`] of its family.
    pub address: Option<IpAddr>,
    /// Port number.
    pub port: u16,
}

/// Something about one object that does not make sense or is not served.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem<'a> {
    /// Kind, namespace and name: `Service shop/web`.
    pub object: &'a str,
    /// Field path: `spec.ports[0].port`.
    pub field: &'a str,
    /// What is wrong and what happens because of it, for a person.
    pub message: &'a str,
}

/// Indented, with a line end.
pub(super) fn pretty(report: &impl Serialize) -> String {
    let mut text =
        serde_json::to_string_pretty(report).expect("strings, numbers and lists always serialise");
    text.push('\n');
    text
}

impl<'a> State<'a> {
    /// The JSON form of `state`, with what a backend lacks that Service ports need.
    pub fn with_missing(state: &'a NodeState, lacks: &[Capability]) -> Self {
        let mut report = Self::of(state);
        for ((key, service), report) in state.services.iter().zip(&mut report.services) {
            let missing = state.missing(key, service, lacks).map(Capability::as_str);
            report.missing = Some(missing.collect());
        }
        report
    }

    /// The JSON form of `state`.
    pub fn of(state: &'a NodeState) -> Self {
        Self {
            node: Node {
                name: &state.node.name,
                zone: state.node.zone(),
                known: state.node.object.is_some(),
                pod_cidrs: cidrs(state.node.pod_cidrs()),
                addresses: state.node.addresses(),
                node_port_addresses: &state.node_port_addresses,
                eligible: state.node.eligible(),
                host_addresses: &state.node.host_addresses,
                detect_local: Detection::of(&state.traffic.detector, state.node.pod_cidrs()),
                masquerade_all: state.traffic.masquerade_all,
            },
            health_checks: state
                .health_checks
                .iter()
                .map(|(key, check)| Check::of(key, *check))
                .collect(),
            service_cidrs: cidrs(&state.service_cidrs),
            services: state
                .services
                .iter()
                .map(|(key, state)| Service::of(key, state))
                .collect(),
            diagnostics: state.diagnostics.iter().map(Problem::of).collect(),
        }
    }
}

impl<'a> Service<'a> {
    fn of(key: &'a ServicePortKey, state: &ServiceState) -> Self {
        Self {
            namespace: &key.service.namespace,
            name: &key.service.name,
            port: &key.port,
            protocol: key.protocol.as_str(),
            family: key.family.as_str(),
            frontends: state.frontends.iter().map(Dialled::of).collect(),
            cluster_endpoints: state.cluster_endpoints.as_deref().map(addresses),
            local_endpoints: state.local_endpoints.as_deref().map(addresses),
            has_any_endpoints: state.has_any_endpoints,
            internal_policy: policy(state.internal_policy),
            external_policy: policy(state.external_policy),
            affinity_seconds: state.affinity.map(NonZeroU32::get),
            source_ranges: state.source_ranges.as_deref().map(|ranges| Ranges {
                ranges: cidrs(&ranges.ranges),
                own_address: ranges.own_address,
            }),
            missing: None,
        }
    }
}

impl Detection {
    fn of(detector: &Detector, pod_cidrs: &[IpNet]) -> Option<Self> {
        let (mode, ranges, interface) = match detector {
            Detector::None => return None,
            Detector::ClusterCidr(ranges) => ("ClusterCIDR", &**ranges, None),
            Detector::NodeCidr => ("NodeCIDR", pod_cidrs, None),
            Detector::BridgeInterface(name) => ("BridgeInterface", &[][..], Some(name)),
            Detector::InterfaceNamePrefix(name) => ("InterfaceNamePrefix", &[][..], Some(name)),
        };
        Some(Self {
            mode,
            cidrs: cidrs(ranges),
            interface: interface.map(ToString::to_string),
        })
    }
}

impl<'a> Check<'a> {
    fn of(key: &'a HealthCheckKey, check: HealthCheck) -> Self {
        Self {
            namespace: &key.service.namespace,
            name: &key.service.name,
            family: key.family.as_str(),
            port: check.port.get(),
            local_endpoints: check.local_endpoints,
        }
    }
}

impl Dialled {
    fn of(frontend: &Frontend) -> Self {
        Self {
            kind: frontend.kind.as_str(),
            address: frontend.address,
            port: frontend.port,
        }
    }
}

impl<'a> Problem<'a> {
    fn of(diagnostic: &'a Diagnostic) -> Self {
        Self {
            object: &diagnostic.object,
            field: &diagnostic.field,
            message: &diagnostic.message,
        }
    }
}

fn addresses(endpoints: &[Endpoint]) -> Vec<SocketAddr> {
    endpoints.iter().map(|endpoint| endpoint.address).collect()
}

fn policy(policy: TrafficPolicy) -> &'static str {
    match policy {
        TrafficPolicy::Cluster => "Cluster",
        TrafficPolicy::Local => "Local",
    }
}

fn cidrs(cidrs: &[IpNet]) -> Vec<String> {
    cidrs.iter().map(ToString::to_string).collect()
}
