//! What the model knows of cluster objects: the fields that decide where traffic goes, already
//! parsed. A source turns API objects into these values and reports what it could not parse.

use std::{
    net::IpAddr,
    num::{NonZeroU16, NonZeroU32},
    sync::Arc,
};

use ipnet::IpNet;

use crate::{IpFamily, Protocol, ServiceName, SliceName};

/// A Service that this proxy serves.
///
/// Services that no proxy serves (headless, `ExternalName`) or that another proxy serves
/// (label `service.kubernetes.io/service-proxy-name`) are never made into this value; a source
/// reports them as deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// Namespace and name.
    pub name: ServiceName,
    /// ClusterIPs, at most one per family.
    pub cluster_ips: Vec<IpAddr>,
    /// Ports, unique by (name, protocol).
    pub ports: Vec<ServicePort>,
    /// `spec.internalTrafficPolicy`: which endpoints the ClusterIPs lead to (KEP-2086).
    pub internal_policy: TrafficPolicy,
    /// `spec.sessionAffinity` ClientIP: how long a client keeps its endpoint after its last
    /// connection, in seconds.
    pub affinity: Option<NonZeroU32>,
    /// What it specifies for clients outside the cluster; `None` if it specifies nothing, as most
    /// do.
    pub external: Option<Box<ExternalAccess>>,
}

/// What a [`Service`] specifies for clients outside the cluster, besides NodePorts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalAccess {
    /// `spec.externalTrafficPolicy`: which endpoints all other addresses lead to, which clients
    /// outside the cluster dial.
    pub policy: TrafficPolicy,
    /// `spec.externalIPs`.
    pub ips: Vec<IpAddr>,
    /// Addresses in `status.loadBalancer.ingress` that nodes must serve: those whose `ipMode` is
    /// VIP or absent (KEP-1860).
    pub load_balancer_ips: Vec<IpAddr>,
    /// The other addresses there: the load balancer delivers to nodes or pods itself. Only to
    /// explain why nothing answers on them.
    pub proxied_ips: Vec<IpAddr>,
    /// `spec.loadBalancerSourceRanges`; without a range of a family, all its clients are admitted.
    pub source_ranges: Vec<IpNet>,
    /// `spec.healthCheckNodePort` of a Service of type `LoadBalancer` whose external policy is
    /// Local; `None` for every other one.
    pub health_check_node_port: Option<NonZeroU16>,
}

/// One port of a [`Service`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// Port name, `""` when unnamed. EndpointSlice ports are matched by this name.
    pub name: Arc<str>,
    /// Protocol.
    pub protocol: Protocol,
    /// Port number on every address of the Service, 1 to 65535.
    pub port: u16,
    /// Port number on this node's own addresses; `None` if it is not served there
    /// (`allocateLoadBalancerNodePorts: false`, for one).
    pub node_port: Option<NonZeroU16>,
}

/// Which endpoints a frontend may lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TrafficPolicy {
    /// Any endpoint of the cluster.
    #[default]
    Cluster,
    /// Only endpoints on this node.
    Local,
}

/// An EndpointSlice (`discovery.k8s.io/v1`) of address type IPv4 or IPv6.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Namespace and name.
    pub name: SliceName,
    /// The Service it belongs to (label `kubernetes.io/service-name`), in the slice's namespace.
    pub service: ServiceName,
    /// Family of every address in it.
    pub family: IpFamily,
    /// Ports that all its endpoints have.
    pub ports: Vec<SlicePort>,
    /// Endpoints.
    pub endpoints: Vec<SliceEndpoint>,
}

/// One port of an [`EndpointSlice`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlicePort {
    /// Port name, equal to the Service port's name.
    pub name: Arc<str>,
    /// Protocol.
    pub protocol: Protocol,
    /// Target port number, 1 to 65535.
    pub port: u16,
}

/// One endpoint of an [`EndpointSlice`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// `addresses[0]`: the API promises that the others are interchangeable, and kube-proxy uses
    /// the first.
    pub address: IpAddr,
    /// Conditions, with the API's meaning of absent ones already applied.
    pub conditions: Conditions,
    /// The node it runs on, as written.
    pub node: Option<Arc<str>>,
    /// Who should use it; `None` if not specified.
    pub hints: Option<Arc<Hints>>,
}

/// Who should use an endpoint (KEP-2433, KEP-3015). Written by a controller for
/// `trafficDistribution`, for all endpoints of a Service or for none.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hints {
    /// Clients in these zones.
    pub zones: Vec<Arc<str>>,
    /// Clients on these nodes.
    pub nodes: Vec<Arc<str>>,
}

/// Endpoint conditions (KEP-1672). Absent `ready` and `serving` mean true, absent
/// `terminating` means false.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conditions {
    /// May receive traffic.
    pub ready: bool,
    /// Answers, even if it is terminating.
    pub serving: bool,
    /// Is being deleted.
    pub terminating: bool,
}

/// A Node object, as far as the model uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Name.
    pub name: Arc<str>,
    /// Label `topology.kubernetes.io/zone`.
    pub zone: Option<Arc<str>>,
    /// `spec.podCIDRs`: where the addresses of its pods come from.
    pub pod_cidrs: Vec<IpNet>,
    /// `status.addresses` that are IP addresses and reach the node itself: internal ones first, otherwise
    /// in the object's order.
    pub addresses: Vec<IpAddr>,
    /// Whether load balancers may send it new connections (KEP-3836): it is not being deleted,
    /// and no autoscaler is about to (taint `ToBeDeletedByClusterAutoscaler`).
    pub eligible: bool,
}

/// A `ServiceCIDR` (`networking.k8s.io/v1`, KEP-1880): a range that ClusterIPs are taken from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceCidr {
    /// Name.
    pub name: Arc<str>,
    /// `spec.cidrs`, at most one per family.
    pub cidrs: Vec<IpNet>,
}
