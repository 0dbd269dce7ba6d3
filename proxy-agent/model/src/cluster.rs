//! The cluster as the events so far describe it, and which Services they touched. Decides
//! nothing about traffic: that is `local.rs`.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;

use crate::{
    ClusterEvent, Diagnostic, EndpointSlice, IpFamily, Node, Service, ServiceCidr, ServiceName,
    SliceName, claims::Claims, settings::first_of, slices_of_service::SlicesOfService,
};

/// Folded cluster objects.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    services: BTreeMap<ServiceName, Service>,
    /// EndpointSlices by the Service they belong to, whether or not it exists.
    slices: BTreeMap<ServiceName, SlicesOfService>,
    /// Where each slice is filed, to find it again when its label changed.
    filed_under: BTreeMap<SliceName, ServiceName>,
    claims: Claims,
    /// The own node's object.
    node: Option<Arc<Node>>,
    /// Names of the others, as far as sources tell them: only for who looks for the own one.
    other_nodes: BTreeSet<Arc<str>>,
    /// Addresses of the host's interfaces, once they are known.
    host_addresses: Option<BTreeSet<IpAddr>>,
    service_cidrs: BTreeMap<Arc<str>, Vec<IpNet>>,
    /// What sources said about objects; no empty entries.
    diagnosed: BTreeMap<Arc<str>, Vec<Diagnostic>>,
    touched: Touched,
}

/// What events touched since it was last asked for.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// Services to compute again.
    pub(crate) services: BTreeSet<ServiceName>,
    /// Whether the ranges of ClusterIPs changed.
    pub(crate) service_cidrs: bool,
    /// Whether the node's object or the host's addresses changed.
    pub(crate) node: bool,
    /// Whether what sources said about objects changed.
    pub(crate) diagnosed: bool,
}

impl Cluster {
    /// Folds `event` in and returns whether that changed anything. `own_node` is the node that
    /// the state is for; other nodes' objects do not matter to it.
    pub(crate) fn apply(&mut self, event: ClusterEvent, own_node: &str) -> bool {
        match event {
            ClusterEvent::ServiceUpserted(service) => self.upsert_service(service),
            ClusterEvent::ServiceDeleted(name) => self.delete_service(&name),
            ClusterEvent::SliceUpserted(slice) => self.upsert_slice(slice),
            ClusterEvent::SliceDeleted(name) => self.delete_slice(&name),
            ClusterEvent::NodeUpserted(node) if *node.name == *own_node => {
                self.set_node(Some(node))
            }
            ClusterEvent::NodeDeleted(name) if *name == *own_node => self.set_node(None),
            ClusterEvent::NodeUpserted(node) => {
                self.other_nodes.insert(node.name);
                false
            }
            ClusterEvent::NodeDeleted(name) => {
                self.other_nodes.remove(&name);
                false
            }
            ClusterEvent::HostAddresses(addresses) => {
                let addresses = Some(addresses.into_iter().collect());
                let changed = self.host_addresses != addresses;
                self.host_addresses = addresses;
                self.touched.node |= changed;
                changed
            }
            ClusterEvent::ServiceCidrUpserted(cidr) => self.upsert_service_cidr(cidr),
            ClusterEvent::ServiceCidrDeleted(name) => {
                let changed = self.service_cidrs.remove(&name).is_some();
                self.touched.service_cidrs |= changed;
                changed
            }
            ClusterEvent::Diagnosed {
                object,
                diagnostics,
            } => self.diagnose(object, diagnostics),
        }
    }

    /// Takes the note of what was touched; the next one starts empty.
    pub(crate) fn take_touched(&mut self) -> Touched {
        mem::take(&mut self.touched)
    }

    pub(crate) fn service(&self, name: &ServiceName) -> Option<&Service> {
        self.services.get(name)
    }

    /// The EndpointSlices that belong to a Service, ordered by name.
    pub(crate) fn slices_of(
        &self,
        service: &ServiceName,
    ) -> impl Iterator<Item = &EndpointSlice> + Clone {
        self.slices
            .get(service)
            .into_iter()
            .flat_map(SlicesOfService::iter)
    }

    /// Services with a load balancer that serves `address` itself.
    pub(crate) fn proxied(&self, address: IpAddr) -> impl Iterator<Item = &ServiceName> {
        let serves = move |service: &&Service| {
            let external = service.external.as_deref();
            external.is_some_and(|external| external.proxied_ips.contains(&address))
        };
        let services = self.services.values().filter(serves);
        services.map(|service| &service.name)
    }

    pub(crate) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// The own node's object.
    pub(crate) fn node(&self) -> Option<&Arc<Node>> {
        self.node.as_ref()
    }

    /// Names that nodes have: those of other Node objects, and where endpoints say that they run.
    /// Looks at all endpoints; names come more than once.
    pub(crate) fn node_names(&self) -> impl Iterator<Item = &str> {
        let slices = self.slices.values().flat_map(SlicesOfService::iter);
        let of_endpoints = slices
            .flat_map(|slice| &slice.endpoints)
            .filter_map(|endpoint| endpoint.node.as_deref());
        self.other_nodes
            .iter()
            .map(|name| &**name)
            .chain(of_endpoints)
    }

    /// Addresses of this host: of its interfaces, or of its Node object while those are unknown.
    pub(crate) fn host_addresses(&self) -> BTreeSet<IpAddr> {
        match (&self.host_addresses, &self.node) {
            (Some(addresses), _) => addresses.clone(),
            (None, Some(node)) => node.addresses.iter().copied().collect(),
            (None, None) => BTreeSet::new(),
        }
    }

    /// All ranges that ClusterIPs are taken from, with the names of their objects.
    pub(crate) fn service_cidrs(&self) -> impl Iterator<Item = (&str, IpNet)> {
        let all = self.service_cidrs.iter();
        all.flat_map(|(name, ranges)| ranges.iter().map(|range| (&**name, *range)))
    }

    /// What sources said about objects.
    pub(crate) fn diagnosed(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnosed.values().flatten()
    }

    fn upsert_service(&mut self, mut service: Service) -> bool {
        if self.services.get(&service.name) == Some(&service) {
            return false;
        }
        service.ports.shrink_to_fit();
        service.cluster_ips.shrink_to_fit();
        self.delete_service(&service.name);
        let affected = self.claims.add(&service);
        self.touched.services.extend(affected);
        self.touched.services.insert(service.name.clone());
        self.services.insert(service.name.clone(), service);
        true
    }

    fn delete_service(&mut self, name: &ServiceName) -> bool {
        let Some(old) = self.services.remove(name) else {
            return false;
        };
        let affected = self.claims.remove(&old);
        self.touched.services.extend(affected);
        self.touched.services.insert(old.name);
        true
    }

    fn upsert_slice(&mut self, mut slice: EndpointSlice) -> bool {
        // A source may repeat itself, when it lists everything again for example.
        let filed_under = self.filed_under.get(&slice.name);
        let known =
            filed_under.and_then(|service| self.slices.get_mut(service)?.get_mut(&slice.name));
        if known.as_deref() == Some(&slice) {
            return false;
        }
        slice.ports.shrink_to_fit();
        slice.endpoints.shrink_to_fit();
        self.touched.services.insert(slice.service.clone());
        match known {
            Some(known) if known.service == slice.service => {
                // The strings that other places share already.
                let (name, service) = (known.name.clone(), known.service.clone());
                *known = EndpointSlice {
                    name,
                    service,
                    ..slice
                };
            }
            _ => {
                self.delete_slice(&slice.name);
                self.file_slice(slice);
            }
        }
        true
    }

    fn file_slice(&mut self, slice: EndpointSlice) {
        // One string for both objects, if the Service is there already.
        let service = match self.services.get_key_value(&slice.service) {
            Some((name, _)) => name.clone(),
            None => slice.service.clone(),
        };
        self.filed_under.insert(slice.name.clone(), service.clone());
        let slice = EndpointSlice {
            service: service.clone(),
            ..slice
        };
        self.slices.entry(service).or_default().insert(slice);
    }

    fn delete_slice(&mut self, name: &SliceName) -> bool {
        let Some(service) = self.filed_under.remove(name) else {
            return false;
        };
        if let Some(slices) = self.slices.get_mut(&service) {
            slices.remove(name);
            if slices.is_empty() {
                self.slices.remove(&service);
            }
        }
        self.touched.services.insert(service);
        true
    }

    fn set_node(&mut self, node: Option<Node>) -> bool {
        if self.node.as_deref() == node.as_ref() {
            return false;
        }
        let decisive = |node: Option<&Node>| {
            let addresses = node.map_or(&[][..], |node| &node.addresses);
            let first = [IpFamily::V4, IpFamily::V6].map(|family| first_of(family, addresses));
            (node.and_then(|node| node.zone.clone()), first)
        };
        if decisive(self.node.as_deref()) != decisive(node.as_ref()) {
            // Topology and source ranges follow from these: any Service may be another one now.
            let all = self.services.keys().cloned();
            self.touched.services.extend(all);
        }
        self.node = node.map(Arc::new);
        self.touched.node = true;
        true
    }

    fn upsert_service_cidr(&mut self, ServiceCidr { name, cidrs }: ServiceCidr) -> bool {
        let changed = self.service_cidrs.get(&name) != Some(&cidrs);
        if changed {
            self.service_cidrs.insert(name, cidrs);
            self.touched.service_cidrs = true;
        }
        changed
    }

    fn diagnose(&mut self, object: Arc<str>, diagnostics: Vec<Diagnostic>) -> bool {
        let changed = if diagnostics.is_empty() {
            self.diagnosed.remove(&object).is_some()
        } else if self.diagnosed.get(&object) == Some(&diagnostics) {
            false
        } else {
            self.diagnosed.insert(object, diagnostics);
            true
        };
        self.touched.diagnosed |= changed;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes of a large cluster report every few seconds.
    #[test]
    fn nodes_and_ranges_touch_no_service() {
        let node = |name: &str, eligible| {
            ClusterEvent::NodeUpserted(Node {
                name: name.into(),
                zone: None,
                pod_cidrs: Vec::new(),
                addresses: Vec::new(),
                eligible,
            })
        };
        let range = |cidr: &str| {
            ClusterEvent::ServiceCidrUpserted(ServiceCidr {
                name: "kubernetes".into(),
                cidrs: vec![cidr.parse().unwrap()],
            })
        };
        let gone = |name: &str| ClusterEvent::NodeDeleted(name.into());
        let mut cluster = Cluster::default();
        for (event, changes) in [
            (node("here", true), true),
            (node("here", true), false),
            (node("here", false), true),
            (node("there", true), false),
            (gone("there"), false),
            (gone("here"), true),
            (gone("here"), false),
            (range("10.96.0.0/16"), true),
            (range("10.96.0.0/16"), false),
            (range("10.97.0.0/16"), true),
            (ClusterEvent::ServiceCidrDeleted("kubernetes".into()), true),
            (ClusterEvent::ServiceCidrDeleted("kubernetes".into()), false),
        ] {
            let said = format!("{event:?}");
            assert_eq!(cluster.apply(event, "here"), changes, "{said}");
            assert!(cluster.take_touched().services.is_empty(), "{said}");
        }
    }
}
