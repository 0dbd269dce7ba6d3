//! API objects, as far as this proxy reads them: what every source decodes, and what `convert`
//! takes. Decides nothing about what a value means.
//!
//! An object of the API server is mostly what a proxy never looks at (managed fields, the last
//! applied configuration, owner references). These types have the used fields only, so that the
//! rest is skipped while it is read and costs no memory. A test holds them against the generated
//! types of `k8s-openapi`.
//!
//! As everywhere in the API, `null` is the same as absent.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor, value::MapAccessDeserializer},
};

mod node;
mod service;
mod slice;

pub use node::{Node, NodeAddress, NodeSpec, NodeStatus, ServiceCidr, ServiceCidrSpec, Taint};
pub use service::{
    ClientIpConfig, Ingress, LoadBalancer, Service, ServicePort, ServiceSpec, ServiceStatus,
    SessionAffinityConfig,
};
pub use slice::{Conditions, Endpoint, EndpointPort, EndpointSlice, Hint, Hints};

/// What every object says of itself.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// Name.
    pub name: Option<String>,
    /// Namespace; absent for objects of the cluster.
    pub namespace: Option<String>,
    /// At which version of the cluster's data it has this form.
    pub resource_version: Option<String>,
    /// The labels that matter.
    #[serde(deserialize_with = "map")]
    pub labels: Labels,
    /// The annotations that matter.
    #[serde(deserialize_with = "map")]
    pub annotations: Annotations,
    /// Present while it is being deleted.
    pub deletion_timestamp: Option<IgnoredAny>,
}

/// The labels that matter, of any kind of object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Labels {
    /// A Service whose value is any string belongs to the proxy of that name (KEP-2447).
    #[serde(rename = "service.kubernetes.io/service-proxy-name")]
    pub proxy_name: Option<String>,
    /// Set on headless Services and on their EndpointSlices.
    #[serde(rename = "service.kubernetes.io/headless")]
    pub headless: Option<String>,
    /// The Service that an EndpointSlice belongs to.
    #[serde(rename = "kubernetes.io/service-name")]
    pub service_name: Option<String>,
    /// The zone that a Node is in.
    #[serde(rename = "topology.kubernetes.io/zone")]
    pub zone: Option<String>,
}

/// The annotations that matter, of any kind of object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Annotations {
    /// On an EndpointSlice: when the pod or Service changed that made the slice change.
    #[serde(rename = "endpoints.kubernetes.io/last-change-trigger-time")]
    pub last_change_trigger_time: Option<String>,
}

/// Kinds of objects that a source decodes.
pub trait Object: for<'de> Deserialize<'de> {
    /// What the object says of itself.
    fn metadata(&self) -> &Metadata;
}

/// Wraps what must be a map. The derived implementations would take a list too, its elements for
/// the fields in order.
#[derive(Debug)]
pub struct Map<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Map<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for MapVisitor<T> {
            type Value = Map<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Map)
            }
        }

        deserializer.deserialize_map(MapVisitor(PhantomData))
    }
}

/// A field that holds a map, or nothing.
fn map<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    let map = Option::<Map<T>>::deserialize(deserializer)?;
    Ok(map.map(|Map(value)| value).unwrap_or_default())
}

/// A field that holds a map, and of which it matters whether it is there.
fn optional_map<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let map = Option::<Map<T>>::deserialize(deserializer)?;
    Ok(map.map(|Map(value)| value))
}

/// A field that holds a list of maps, or nothing.
fn maps<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let maps = Option::<Vec<Map<T>>>::deserialize(deserializer)?;
    Ok(maps
        .unwrap_or_default()
        .into_iter()
        .map(|Map(value)| value)
        .collect())
}

/// A field that holds a list of plain values, or nothing.
fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests;
