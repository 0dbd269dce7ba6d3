//! `v1` Service.

use serde::Deserialize;

use super::{Metadata, Object, list, map, maps, optional_map};

/// A Service.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Service {
    /// What it says of itself.
    #[serde(deserialize_with = "map")]
    pub metadata: Metadata,
    /// What is wanted.
    #[serde(deserialize_with = "optional_map")]
    pub spec: Option<ServiceSpec>,
    /// What load balancers made of it.
    #[serde(deserialize_with = "map")]
    pub status: ServiceStatus,
}

impl Object for Service {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// `spec`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
    pub r#type: Option<String>,
    /// The first of [`Self::cluster_ips`].
    #[serde(rename = "clusterIP")]
    pub cluster_ip: Option<String>,
    /// Addresses, or `None`.
    #[serde(rename = "clusterIPs", deserialize_with = "list")]
    pub cluster_ips: Vec<String>,
    /// Further addresses, given by the user.
    #[serde(rename = "externalIPs", deserialize_with = "list")]
    pub external_ips: Vec<String>,
    /// Ports.
    #[serde(deserialize_with = "maps")]
    pub ports: Vec<ServicePort>,
    /// `Cluster` or `Local`.
    pub internal_traffic_policy: Option<String>,
    /// `None` or `ClientIP`.
    pub session_affinity: Option<String>,
    /// What `ClientIP` means.
    #[serde(deserialize_with = "map")]
    pub session_affinity_config: SessionAffinityConfig,
    /// `Cluster` or `Local`.
    pub external_traffic_policy: Option<String>,
    /// CIDRs.
    #[serde(deserialize_with = "list")]
    pub load_balancer_source_ranges: Vec<String>,
    /// Where load balancers ask whether this node has endpoints.
    pub health_check_node_port: Option<i32>,
}

/// `spec.sessionAffinityConfig`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SessionAffinityConfig {
    /// For `ClientIP`.
    #[serde(rename = "clientIP", deserialize_with = "map")]
    pub client_ip: ClientIpConfig,
}

/// `spec.sessionAffinityConfig.clientIP`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClientIpConfig {
    /// How long a client keeps its endpoint.
    pub timeout_seconds: Option<i32>,
}

/// One of `spec.ports`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServicePort {
    /// Name, which may be left out if there is one port only.
    pub name: Option<String>,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Option<String>,
    /// Port number of the Service.
    pub port: Option<i32>,
    /// Port number on every node.
    pub node_port: Option<i32>,
}

/// `status`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceStatus {
    /// What the load balancer is.
    #[serde(deserialize_with = "map")]
    pub load_balancer: LoadBalancer,
}

/// `status.loadBalancer`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct LoadBalancer {
    /// Where it is reached.
    #[serde(deserialize_with = "maps")]
    pub ingress: Vec<Ingress>,
}

/// One of `status.loadBalancer.ingress`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Ingress {
    /// Address.
    pub ip: Option<String>,
    /// `VIP` or `Proxy` (KEP-1860).
    pub ip_mode: Option<String>,
}
