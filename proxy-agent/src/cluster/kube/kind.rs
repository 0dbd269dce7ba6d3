//! What is followed: for each kind of objects where it is, which of them are wanted, and what
//! they mean to the model. Pure.

use std::{fmt, hash::Hash, sync::Arc, time::SystemTime};

use k8s_openapi::api::{
    core::v1 as core, discovery::v1 as discovery, networking::v1 as networking,
};
use kube::Resource;
use proxy_model::{ClusterEvent, EndpointSlice, Node, ObjectName, Service, ServiceCidr};

use super::counters::ObjectKind;
use crate::cluster::{
    convert::{self, Converted},
    names::{Names, plain},
    object::{self, Metadata},
};

/// What no proxy serves, and what another one serves, is not even sent.
const OURS: &str = "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name";

/// A kind of objects that is followed.
pub(super) trait Followed: Send + Sync + 'static {
    /// Of metrics and logs.
    const KIND: ObjectKind;
    /// Clusters that do not serve this kind, or do not let this proxy read it, do without.
    const OPTIONAL: bool = false;
    /// Label selector.
    const LABELS: Option<&'static str> = None;
    /// Field selector, where servers know these fields.
    const FIELDS: Option<&'static str> = None;
    type Object: object::Object + Send;
    type Value: Send;
    type Key: Clone + Eq + Hash + fmt::Display + Send + Sync;

    /// URL path of all objects of this kind.
    fn path() -> String;
    /// `services`, and `endpointslices.discovery.k8s.io`: as RBAC rules name it.
    fn resource() -> String;
    /// `Service`: as objects say what they are.
    fn object_kind() -> String;
    /// `None` without a name.
    fn key(metadata: &Metadata, names: &mut Names) -> Option<Self::Key>;
    fn key_of(value: &Self::Value) -> Self::Key;
    fn convert(object: &Self::Object, names: &mut Names) -> Converted<Self::Value>;
    fn upserted(value: Self::Value) -> ClusterEvent;
    fn deleted(key: Self::Key) -> ClusterEvent;
    /// How many things in it are kept beside the object itself.
    fn parts(_value: &Self::Value) -> usize {
        0
    }
    /// When that happened which made the object change.
    fn trigger(_object: &Self::Object) -> Option<SystemTime> {
        None
    }
}

fn path<K: Resource<DynamicType = ()>>() -> String {
    K::url_path(&(), None)
}

fn resource<K: Resource<DynamicType = ()>>() -> String {
    match K::group(&()) {
        group if group.is_empty() => K::plural(&()).into_owned(),
        group => format!("{}.{group}", K::plural(&())),
    }
}

fn cluster_name(metadata: &Metadata) -> Option<Arc<str>> {
    let name = metadata.name.as_deref().filter(|name| !name.is_empty())?;
    Some((*plain(name)).into())
}

pub(super) struct Services;

impl Followed for Services {
    const KIND: ObjectKind = ObjectKind::Service;
    const LABELS: Option<&'static str> = Some(OURS);
    const FIELDS: Option<&'static str> = Some("spec.clusterIP!=None");
    type Object = object::Service;
    type Value = Service;
    type Key = ObjectName;

    fn path() -> String {
        path::<core::Service>()
    }

    fn resource() -> String {
        resource::<core::Service>()
    }

    fn object_kind() -> String {
        core::Service::kind(&()).into_owned()
    }

    fn key(metadata: &Metadata, names: &mut Names) -> Option<Self::Key> {
        convert::object_name(metadata, names)
    }

    fn key_of(value: &Self::Value) -> Self::Key {
        value.name.clone()
    }

    fn convert(object: &Self::Object, names: &mut Names) -> Converted<Self::Value> {
        convert::service(object, names)
    }

    fn upserted(value: Self::Value) -> ClusterEvent {
        ClusterEvent::ServiceUpserted(value)
    }

    fn deleted(key: Self::Key) -> ClusterEvent {
        ClusterEvent::ServiceDeleted(key)
    }

    fn parts(value: &Self::Value) -> usize {
        value.ports.len()
    }
}

pub(super) struct EndpointSlices;

impl Followed for EndpointSlices {
    const KIND: ObjectKind = ObjectKind::EndpointSlice;
    const LABELS: Option<&'static str> = Some(OURS);
    type Object = object::EndpointSlice;
    type Value = EndpointSlice;
    type Key = ObjectName;

    fn path() -> String {
        path::<discovery::EndpointSlice>()
    }

    fn resource() -> String {
        resource::<discovery::EndpointSlice>()
    }

    fn object_kind() -> String {
        discovery::EndpointSlice::kind(&()).into_owned()
    }

    fn key(metadata: &Metadata, names: &mut Names) -> Option<Self::Key> {
        convert::object_name(metadata, names)
    }

    fn key_of(value: &Self::Value) -> Self::Key {
        value.name.clone()
    }

    fn convert(object: &Self::Object, names: &mut Names) -> Converted<Self::Value> {
        convert::slice(object, names)
    }

    fn upserted(value: Self::Value) -> ClusterEvent {
        ClusterEvent::SliceUpserted(value)
    }

    fn deleted(key: Self::Key) -> ClusterEvent {
        ClusterEvent::SliceDeleted(key)
    }

    fn parts(value: &Self::Value) -> usize {
        value.ports.len() + value.endpoints.len()
    }

    fn trigger(object: &Self::Object) -> Option<SystemTime> {
        let text = object
            .metadata
            .annotations
            .last_change_trigger_time
            .as_deref()?;
        Some(text.parse::<jiff::Timestamp>().ok()?.into())
    }
}

pub(super) struct Nodes;

impl Followed for Nodes {
    const KIND: ObjectKind = ObjectKind::Node;
    type Object = object::Node;
    type Value = Node;
    type Key = Arc<str>;

    fn path() -> String {
        path::<core::Node>()
    }

    fn resource() -> String {
        resource::<core::Node>()
    }

    fn object_kind() -> String {
        core::Node::kind(&()).into_owned()
    }

    fn key(metadata: &Metadata, _: &mut Names) -> Option<Self::Key> {
        cluster_name(metadata)
    }

    fn key_of(value: &Self::Value) -> Self::Key {
        Arc::clone(&value.name)
    }

    fn convert(object: &Self::Object, _: &mut Names) -> Converted<Self::Value> {
        convert::node(object)
    }

    fn upserted(value: Self::Value) -> ClusterEvent {
        ClusterEvent::NodeUpserted(value)
    }

    fn deleted(key: Self::Key) -> ClusterEvent {
        ClusterEvent::NodeDeleted(key)
    }
}

pub(super) struct ServiceCidrs;

impl Followed for ServiceCidrs {
    const KIND: ObjectKind = ObjectKind::ServiceCidr;
    const OPTIONAL: bool = true;
    type Object = object::ServiceCidr;
    type Value = ServiceCidr;
    type Key = Arc<str>;

    fn path() -> String {
        path::<networking::ServiceCIDR>()
    }

    fn resource() -> String {
        resource::<networking::ServiceCIDR>()
    }

    fn object_kind() -> String {
        networking::ServiceCIDR::kind(&()).into_owned()
    }

    fn key(metadata: &Metadata, _: &mut Names) -> Option<Self::Key> {
        cluster_name(metadata)
    }

    fn key_of(value: &Self::Value) -> Self::Key {
        Arc::clone(&value.name)
    }

    fn convert(object: &Self::Object, _: &mut Names) -> Converted<Self::Value> {
        convert::service_cidr(object)
    }

    fn upserted(value: Self::Value) -> ClusterEvent {
        ClusterEvent::ServiceCidrUpserted(value)
    }

    fn deleted(key: Self::Key) -> ClusterEvent {
        ClusterEvent::ServiceCidrDeleted(key)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn paths_and_resources_are_those_of_the_api() {
        assert_eq!(Services::path(), "/api/v1/services");
        assert_eq!(Services::resource(), "services");
        assert_eq!(
            EndpointSlices::path(),
            "/apis/discovery.k8s.io/v1/endpointslices"
        );
        assert_eq!(
            EndpointSlices::resource(),
            "endpointslices.discovery.k8s.io"
        );
        assert_eq!(Nodes::path(), "/api/v1/nodes");
        assert_eq!(
            ServiceCidrs::path(),
            "/apis/networking.k8s.io/v1/servicecidrs"
        );
        assert_eq!(ServiceCidrs::resource(), "servicecidrs.networking.k8s.io");
    }

    #[test]
    fn a_slice_says_when_its_change_was_triggered() {
        let trigger = |text: &str| {
            let annotation = "endpoints.kubernetes.io/last-change-trigger-time";
            let object = serde_json::json!({"metadata": {"annotations": {annotation: text}}});
            EndpointSlices::trigger(&serde_json::from_value(object).unwrap())
        };
        assert_eq!(
            trigger("1970-01-01T00:00:10.5Z"),
            Some(UNIX_EPOCH + Duration::from_millis(10_500))
        );
        assert_eq!(trigger("yesterday"), None);
        assert_eq!(
            EndpointSlices::trigger(&object::EndpointSlice::default()),
            None
        );
    }
}
