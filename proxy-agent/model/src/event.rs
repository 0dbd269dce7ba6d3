//! The model's only input.

use std::{fmt, net::IpAddr, sync::Arc};

use crate::{EndpointSlice, Node, Service, ServiceCidr, ServiceName, SliceName};

/// A change of one cluster object. Events about the same object are applied in order; the order
/// of events about different objects does not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterEvent {
    /// A Service that this proxy serves was added or changed.
    ServiceUpserted(Service),
    /// A Service was deleted, or is no longer served by this proxy.
    ServiceDeleted(ServiceName),
    /// An EndpointSlice was added or changed.
    SliceUpserted(EndpointSlice),
    /// An EndpointSlice was deleted, or no longer belongs to a Service.
    SliceDeleted(SliceName),
    /// A Node was added or changed.
    NodeUpserted(Node),
    /// A Node was deleted.
    NodeDeleted(Arc<str>),
    /// A `ServiceCIDR` was added or changed.
    ServiceCidrUpserted(ServiceCidr),
    /// A `ServiceCIDR` was deleted.
    ServiceCidrDeleted(Arc<str>),
    /// The addresses of this host's interfaces, all of them. Until they are known, those of the
    /// Node object are used.
    HostAddresses(Vec<IpAddr>),
    /// The diagnostics of one object, replacing all earlier ones; empty when nothing is wrong.
    Diagnosed {
        /// The object, as in [`Diagnostic::object`].
        object: Arc<str>,
        /// Its diagnostics.
        diagnostics: Vec<Diagnostic>,
    },
}

/// Something about one cluster object that is invalid or not served. The rest of the object and of
/// the cluster proceeds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    /// Kind, namespace and name: `Service shop/web`.
    pub object: Arc<str>,
    /// Field path: `spec.ports[0].port`.
    pub field: String,
    /// What is wrong, and what happens because of it.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.object, self.field, self.message)
    }
}
