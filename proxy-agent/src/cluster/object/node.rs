//! Objects of the cluster as a whole: `v1` Node, `networking.k8s.io/v1` `ServiceCIDR`.

use serde::Deserialize;

use super::{Metadata, Object, list, map, maps};

/// A Node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    /// What it says of itself.
    #[serde(deserialize_with = "map")]
    pub metadata: Metadata,
    /// What is wanted.
    #[serde(deserialize_with = "map")]
    pub spec: NodeSpec,
    /// What it has.
    #[serde(deserialize_with = "map")]
    pub status: NodeStatus,
}

impl Object for Node {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// `spec` of a Node
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// The first of [`Self::pod_cidrs`].
    #[serde(rename = "podCIDR")]
    pub pod_cidr: Option<String>,
    /// Ranges of the addresses of its pods.
    #[serde(rename = "podCIDRs", deserialize_with = "list")]
    pub pod_cidrs: Vec<String>,
    /// What keeps pods away.
    #[serde(deserialize_with = "maps")]
    pub taints: Vec<Taint>,
}

/// One of `spec.taints`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Name.
    pub key: Option<String>,
}

/// `status` of a Node
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Addresses and names.
    #[serde(deserialize_with = "maps")]
    pub addresses: Vec<NodeAddress>,
}

/// One of `status.addresses`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeAddress {
    /// `InternalIP`, `ExternalIP`, `Hostname` or the like.
    pub r#type: Option<String>,
    /// IP address or name.
    pub address: Option<String>,
}

/// A `ServiceCIDR`: where ClusterIPs are taken from.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ServiceCidr {
    /// What it says of itself.
    #[serde(deserialize_with = "map")]
    pub metadata: Metadata,
    /// What is wanted.
    #[serde(deserialize_with = "map")]
    pub spec: ServiceCidrSpec,
}

impl Object for ServiceCidr {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// `spec` of a `ServiceCIDR`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ServiceCidrSpec {
    /// Ranges, at most one per family.
    #[serde(deserialize_with = "list")]
    pub cidrs: Vec<String>,
}
