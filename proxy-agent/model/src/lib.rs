//! The brain of Culvert: cluster objects in, node-local state and ordered changes out.
//!
//! ```text
//! ClusterEvent ──> Model { cluster objects, dirty Services }
//!                    │ update()
//!                    ├──> NodeState   what this node must do
//!                    └──> ChangeSet   ordered difference to the state before ──> Backend
//! ```
//!
//! Pure and synchronous: no clock, no I/O, no async runtime, no Kubernetes client; the manifest
//! proves it. The state depends on the present objects only, never on the history of events.
#![forbid(unsafe_code)]

mod backend;
mod backoff;
mod capability;
mod change;
mod claims;
mod cluster;
mod diff;
mod event;
mod frontends;
mod granted;
mod local;
mod local_pods;
mod model;
mod name;
mod net;
mod object;
pub mod oracle;
mod select;
mod service_cidrs;
mod settings;
mod slices;
mod slices_of_service;
mod standing;
mod state;
mod syncing;
mod topology;

pub use backend::{
    Backend, CompareError, Device, Difference, DifferenceKind, FatalCause, Figure, FigureKind,
    PacketLayer, Problem, RepairReport, ServiceFailure, SyncError, SyncReport,
};
pub use backoff::Backoff;
pub use capability::Capability;
pub use change::{Change, ChangeSet};
pub use ipnet::IpNet;

pub use event::{ClusterEvent, Diagnostic};
pub use local_pods::LocalPods;
pub use model::{Model, compute};
pub use name::{ObjectName, ServiceName, SliceName};
pub use net::{IpFamily, Protocol};
pub use object::{
    Conditions, EndpointSlice, ExternalAccess, Hints, Node, Service, ServiceCidr, ServicePort,
    SliceEndpoint, SlicePort, TrafficPolicy,
};
pub use settings::{NodePortSelection, Settings};
pub use standing::{Role, Standing};
pub use state::{
    Endpoint, Frontend, FrontendKind, HealthCheck, HealthCheckKey, NodeInfo, NodeState,
    ServicePortKey, ServiceState, SourceRanges,
};
pub use syncing::{Attempts, Fatal, Syncing};
