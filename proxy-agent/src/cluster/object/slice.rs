//! `discovery.k8s.io/v1` EndpointSlice.

use serde::Deserialize;

use super::{Metadata, Object, list, map, maps};

/// An EndpointSlice.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EndpointSlice {
    /// What it says of itself.
    #[serde(deserialize_with = "map")]
    pub metadata: Metadata,
    /// `IPv4`, `IPv6` or `FQDN`.
    pub address_type: Option<String>,
    /// Ports that all endpoints have.
    #[serde(deserialize_with = "maps")]
    pub ports: Vec<EndpointPort>,
    /// Endpoints.
    #[serde(deserialize_with = "maps")]
    pub endpoints: Vec<Endpoint>,
}

impl Object for EndpointSlice {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// One of `ports`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct EndpointPort {
    /// Name, equal to that of a port of the Service.
    pub name: Option<String>,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Option<String>,
    /// Port number of the endpoints.
    pub port: Option<i32>,
}

/// One of `endpoints`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Endpoint {
    /// Addresses, of which the first counts.
    #[serde(deserialize_with = "list")]
    pub addresses: Vec<String>,
    /// State.
    #[serde(deserialize_with = "map")]
    pub conditions: Conditions,
    /// The node that it is on.
    pub node_name: Option<String>,
    /// Who should use it.
    #[serde(deserialize_with = "map")]
    pub hints: Hints,
}

/// `endpoints[].conditions`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// Serving and not terminating, or published all the same.
    pub ready: Option<bool>,
    /// Passes its readiness checks.
    pub serving: Option<bool>,
    /// Is being deleted.
    pub terminating: Option<bool>,
}

/// `endpoints[].hints`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Hints {
    /// Zones.
    #[serde(deserialize_with = "maps")]
    pub for_zones: Vec<Hint>,
    /// Nodes.
    #[serde(deserialize_with = "maps")]
    pub for_nodes: Vec<Hint>,
}

/// One of `endpoints[].hints.forZones` or `forNodes`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Hint {
    /// Of the zone or node.
    pub name: Option<String>,
}
