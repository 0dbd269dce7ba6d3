//! Random cluster states: a small universe of names and addresses, so that walks meet the same
//! objects again and conflicts are common.

mod endpoints;
mod node;
mod objects;
mod order;
mod services;

use std::{net::IpAddr, sync::Arc};

use proptest::{prelude::*, sample::select};
use proxy_model::{Diagnostic, EndpointSlice, Node, ObjectName, Protocol, Service, ServiceCidr};

pub use self::{
    node::settings,
    objects::Objects,
    order::{interleave, shuffle},
};

/// The node that states are computed for.
pub const NODE: &str = "node-a";

/// One step of a walk.
#[derive(Debug, Clone)]
pub enum Step {
    Service(Service),
    DeleteService(ObjectName),
    Slice(EndpointSlice),
    DeleteSlice(ObjectName),
    /// Moves all endpoints of one slice into another, the target first or last.
    Move {
        from: ObjectName,
        to: ObjectName,
        target_first: bool,
    },
    Node(Node),
    DeleteNode(Arc<str>),
    /// Gives a Node another zone, and leaves the rest of it.
    Relabel {
        node: Arc<str>,
        zone: Option<Arc<str>>,
    },
    ServiceCidr(ServiceCidr),
    DeleteServiceCidr(Arc<str>),
    HostAddresses(Vec<IpAddr>),
    Diagnose(Arc<str>, Vec<Diagnostic>),
}

pub fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => services::service().prop_map(Step::Service),
        2 => services::name().prop_map(Step::DeleteService),
        8 => endpoints::slice().prop_map(Step::Slice),
        2 => endpoints::slice_name().prop_map(Step::DeleteSlice),
        3 => (endpoints::slice_name(), endpoints::slice_name(), any::<bool>())
            .prop_map(|(from, to, target_first)| Step::Move { from, to, target_first }),
        3 => node::node().prop_map(Step::Node),
        1 => node::name().prop_map(Step::DeleteNode),
        3 => (node::name(), node::zone()).prop_map(|(node, zone)| Step::Relabel { node, zone }),
        1 => node::service_cidr().prop_map(Step::ServiceCidr),
        1 => node::service_cidr_name().prop_map(Step::DeleteServiceCidr),
        1 => node::host_addresses().prop_map(Step::HostAddresses),
        1 => diagnose(),
    ]
}

/// A walk of fewer than `longest` steps.
pub fn steps(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..longest)
}

fn namespace() -> impl Strategy<Value = &'static str> {
    select(&["blue", "red"][..])
}

fn port_name() -> impl Strategy<Value = Arc<str>> {
    // Often the same, for the ports of Services and of slices to meet.
    select(&["", "dns", "http", "http", "http"][..]).prop_map(Into::into)
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![
        4 => Just(Protocol::Tcp),
        2 => Just(Protocol::Udp),
        1 => Just(Protocol::Sctp),
    ]
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Debug>>(texts: &[&str]) -> Vec<T> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn diagnose() -> impl Strategy<Value = Step> {
    let object = select(&["Service blue/web", "EndpointSlice red/s1"][..]);
    (object, select(vec![vec![], vec!["a"], vec!["b", "a"]])).prop_map(|(object, fields)| {
        let object: Arc<str> = object.into();
        let diagnostics = fields
            .iter()
            .map(|field| Diagnostic {
                object: Arc::clone(&object),
                field: (*field).to_owned(),
                message: "is odd".to_owned(),
            })
            .collect();
        Step::Diagnose(object, diagnostics)
    })
}
