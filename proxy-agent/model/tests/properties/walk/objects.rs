//! The objects that a walk has come to, and the events that lead there and away.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use proxy_model::{
    ClusterEvent, Diagnostic, EndpointSlice, Node, ObjectName, Service, ServiceCidr,
};

use super::Step;

/// The objects that are there.
#[derive(Debug, Default)]
pub struct Objects {
    pub services: BTreeMap<ObjectName, Service>,
    pub slices: BTreeMap<ObjectName, EndpointSlice>,
    pub nodes: BTreeMap<Arc<str>, Node>,
    pub service_cidrs: BTreeMap<Arc<str>, ServiceCidr>,
    /// `None` until they are told.
    pub host_addresses: Option<Vec<IpAddr>>,
    pub diagnosed: BTreeMap<Arc<str>, Vec<Diagnostic>>,
}

impl Objects {
    /// Takes one step; returns the events that a source would send.
    pub fn take(&mut self, step: Step) -> Vec<ClusterEvent> {
        match step {
            Step::Service(service) => {
                self.services.insert(service.name.clone(), service.clone());
                vec![ClusterEvent::ServiceUpserted(service)]
            }
            Step::DeleteService(name) => {
                self.services.remove(&name);
                vec![ClusterEvent::ServiceDeleted(name)]
            }
            Step::Slice(slice) => {
                self.slices.insert(slice.name.clone(), slice.clone());
                vec![ClusterEvent::SliceUpserted(slice)]
            }
            Step::DeleteSlice(name) => {
                self.slices.remove(&name);
                vec![ClusterEvent::SliceDeleted(name)]
            }
            Step::Move {
                from,
                to,
                target_first,
            } => self.move_endpoints(&from, &to, target_first),
            Step::Node(node) => {
                self.nodes.insert(Arc::clone(&node.name), node.clone());
                vec![ClusterEvent::NodeUpserted(node)]
            }
            Step::DeleteNode(name) => {
                self.nodes.remove(&name);
                vec![ClusterEvent::NodeDeleted(name)]
            }
            Step::Relabel { node, zone } => match self.nodes.get_mut(&node) {
                None => Vec::new(),
                Some(node) => {
                    node.zone = zone;
                    vec![ClusterEvent::NodeUpserted(node.clone())]
                }
            },
            Step::ServiceCidr(cidr) => {
                self.service_cidrs
                    .insert(Arc::clone(&cidr.name), cidr.clone());
                vec![ClusterEvent::ServiceCidrUpserted(cidr)]
            }
            Step::DeleteServiceCidr(name) => {
                self.service_cidrs.remove(&name);
                vec![ClusterEvent::ServiceCidrDeleted(name)]
            }
            Step::HostAddresses(addresses) => {
                self.host_addresses = Some(addresses.clone());
                vec![ClusterEvent::HostAddresses(addresses)]
            }
            Step::Diagnose(object, diagnostics) => {
                self.diagnosed
                    .insert(Arc::clone(&object), diagnostics.clone());
                vec![ClusterEvent::Diagnosed {
                    object,
                    diagnostics,
                }]
            }
        }
    }

    fn move_endpoints(
        &mut self,
        from: &ObjectName,
        to: &ObjectName,
        target_first: bool,
    ) -> Vec<ClusterEvent> {
        if from == to || !self.slices.contains_key(to) {
            return Vec::new();
        }
        let Some(source) = self.slices.get_mut(from) else {
            return Vec::new();
        };
        let moved = std::mem::take(&mut source.endpoints);
        let source = ClusterEvent::SliceUpserted(source.clone());
        let target = self.slices.get_mut(to).unwrap();
        target.endpoints.extend(moved);
        let target = ClusterEvent::SliceUpserted(target.clone());
        if target_first {
            vec![target, source]
        } else {
            vec![source, target]
        }
    }

    /// Events that lead from an empty cluster to these objects.
    pub fn events(&self) -> Vec<ClusterEvent> {
        let services = self
            .services
            .values()
            .cloned()
            .map(ClusterEvent::ServiceUpserted);
        let slices = self
            .slices
            .values()
            .cloned()
            .map(ClusterEvent::SliceUpserted);
        let nodes = self.nodes.values().cloned().map(ClusterEvent::NodeUpserted);
        let service_cidrs = self
            .service_cidrs
            .values()
            .cloned()
            .map(ClusterEvent::ServiceCidrUpserted);
        let diagnosed =
            self.diagnosed
                .iter()
                .map(|(object, diagnostics)| ClusterEvent::Diagnosed {
                    object: Arc::clone(object),
                    diagnostics: diagnostics.clone(),
                });
        services
            .chain(slices)
            .chain(nodes)
            .chain(service_cidrs)
            .chain(self.host())
            .chain(diagnosed)
            .collect()
    }

    /// The host's addresses, which cannot be untold.
    pub fn host(&self) -> Option<ClusterEvent> {
        let addresses = self.host_addresses.clone();
        addresses.map(ClusterEvent::HostAddresses)
    }

    /// Events that lead from these objects to an empty cluster, on the same host.
    pub fn deletions(&self) -> Vec<ClusterEvent> {
        let services = self
            .services
            .keys()
            .cloned()
            .map(ClusterEvent::ServiceDeleted);
        let slices = self.slices.keys().cloned().map(ClusterEvent::SliceDeleted);
        let nodes = self.nodes.keys().cloned().map(ClusterEvent::NodeDeleted);
        let service_cidrs = self
            .service_cidrs
            .keys()
            .cloned()
            .map(ClusterEvent::ServiceCidrDeleted);
        let diagnosed = self.diagnosed.keys().map(|object| ClusterEvent::Diagnosed {
            object: Arc::clone(object),
            diagnostics: Vec::new(),
        });
        services
            .chain(slices)
            .chain(nodes)
            .chain(service_cidrs)
            .chain(diagnosed)
            .collect()
    }
}
