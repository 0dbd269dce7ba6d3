//! Clusters of a given size, and changes of them. Knows the model's public face only and has no
//! clock: whoever wants figures includes this module.

use std::{cell::RefCell, collections::BTreeSet, sync::Arc};

use proxy_model::{
    ClusterEvent, Conditions, EndpointSlice, IpFamily, Protocol, Service, ServiceName, ServicePort,
    SliceEndpoint, SliceName, SlicePort, TrafficPolicy,
};

/// A cluster: so many Services, each with so many slices of so many endpoints.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Services.
    pub services: u32,
    /// EndpointSlices of each Service.
    pub slices: u32,
    /// Endpoints of each slice, at most 250.
    pub endpoints: u32,
}

impl Size {
    /// Events that describe the whole cluster.
    pub fn events(self) -> impl Iterator<Item = ClusterEvent> {
        let services =
            (0..self.services).map(|index| ClusterEvent::ServiceUpserted(service(index)));
        let slices = (0..self.services).flat_map(move |service| {
            (0..self.slices)
                .map(move |slice| ClusterEvent::SliceUpserted(self.slice(service, slice, 0)))
        });
        services.chain(slices)
    }

    /// A slice; its first endpoint is another one in each `version`.
    pub fn slice(self, service: u32, slice: u32, version: u32) -> EndpointSlice {
        let endpoint = |index: u32| {
            let [high, middle, low, _] = (service * self.slices + slice).to_le_bytes();
            let last = if index == 0 { 250 + version % 2 } else { index };
            SliceEndpoint {
                address: [
                    10 + low,
                    middle,
                    high,
                    u8::try_from(last).unwrap_or(u8::MAX),
                ]
                .into(),
                conditions: Conditions {
                    ready: true,
                    serving: true,
                    terminating: false,
                },
                node: Some(held_once(&format!("node-{:04}", index * 37 % 5000))),
                hints: None,
            }
        };
        // A source does not know how many it will keep.
        let mut endpoints = Vec::with_capacity(16);
        endpoints.extend((0..self.endpoints).map(endpoint));
        EndpointSlice {
            name: SliceName::new(
                held_once("shop"),
                format!("service-{service:05}-{slice:05}"),
            ),
            service: ServiceName::new(held_once("shop"), format!("service-{service:05}")),
            family: IpFamily::V4,
            ports: vec![SlicePort {
                name: held_once("http"),
                protocol: Protocol::Tcp,
                port: 8080,
            }],
            endpoints,
        }
    }

    /// So many changes of one endpoint each, one after the other, spread over the Services. A
    /// model of this cluster has exactly one change to tell after each.
    pub fn changes(self, count: u32) -> impl Iterator<Item = ClusterEvent> {
        (0..count).map(move |index| {
            // Any odd stride that visits Services far apart.
            let service = index.wrapping_mul(7919) % self.services;
            let round = index / self.services;
            let slice = self.slice(service, round % self.slices, 1 + round / self.slices);
            ClusterEvent::SliceUpserted(slice)
        })
    }
}

fn service(index: u32) -> Service {
    let [low, high, ..] = index.to_le_bytes();
    Service {
        name: ServiceName::new(held_once("shop"), format!("service-{index:05}")),
        cluster_ips: vec![[10, 96, high, low].into()],
        ports: vec![ServicePort {
            name: held_once("http"),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: None,
        }],
        internal_policy: TrafficPolicy::Cluster,
        ..Service::default()
    }
}

/// Names of namespaces, nodes and ports, which a source holds once each.
fn held_once(name: &str) -> Arc<str> {
    thread_local! {
        static NAMES: RefCell<BTreeSet<Arc<str>>> = const { RefCell::new(BTreeSet::new()) };
    }
    NAMES.with_borrow_mut(|names| {
        if let Some(known) = names.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        names.insert(Arc::clone(&name));
        name
    })
}
