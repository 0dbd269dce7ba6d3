//! The cluster as the events so far describe it, and which Services they touched. Decides
//! nothing about traffic: that is `local.rs`.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use crate::{
    ClusterEvent, Diagnostic, EndpointSlice, Node, Service, ServiceName, SliceName, claims::Claims,
};

/// Folded cluster objects.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    services: BTreeMap<ServiceName, Service>,
    /// EndpointSlices by the Service they belong to, whether or not it exists.
    slices: BTreeMap<ServiceName, BTreeMap<SliceName, EndpointSlice>>,
    /// Where each slice is filed, to find it again when its label changed.
    filed_under: BTreeMap<SliceName, ServiceName>,
    claims: Claims,
    zone: Option<Arc<str>>,
    /// What sources said about objects; no empty entries.
    diagnosed: BTreeMap<Arc<str>, Vec<Diagnostic>>,
    touched: Touched,
}

/// What events touched since it was last asked for.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// Services to compute again.
    pub(crate) services: BTreeSet<ServiceName>,
    /// Whether what sources said about objects changed.
    pub(crate) diagnosed: bool,
}

impl Cluster {
    /// Folds `event` in. `own_node` is the node that the state is for; other nodes' objects do
    /// not matter to it.
    pub(crate) fn apply(&mut self, event: ClusterEvent, own_node: &str) {
        match event {
            ClusterEvent::ServiceUpserted(service) => self.upsert_service(service),
            ClusterEvent::ServiceDeleted(name) => self.delete_service(&name),
            ClusterEvent::SliceUpserted(slice) => self.upsert_slice(slice),
            ClusterEvent::SliceDeleted(name) => self.delete_slice(&name),
            ClusterEvent::NodeUpserted(Node { name, zone }) if *name == *own_node => {
                self.zone = zone;
            }
            ClusterEvent::NodeDeleted(name) if *name == *own_node => self.zone = None,
            ClusterEvent::NodeUpserted(_) | ClusterEvent::NodeDeleted(_) => {}
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
            .flat_map(BTreeMap::values)
    }

    pub(crate) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// The zone of the own node.
    pub(crate) fn zone(&self) -> Option<&Arc<str>> {
        self.zone.as_ref()
    }

    /// What sources said about objects.
    pub(crate) fn diagnosed(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnosed.values().flatten()
    }

    fn upsert_service(&mut self, service: Service) {
        if self.services.get(&service.name) == Some(&service) {
            return;
        }
        self.delete_service(&service.name);
        let affected = self.claims.add(&service);
        self.touched.services.extend(affected);
        self.touched.services.insert(service.name.clone());
        self.services.insert(service.name.clone(), service);
    }

    fn delete_service(&mut self, name: &ServiceName) {
        if let Some(old) = self.services.remove(name) {
            let affected = self.claims.remove(&old);
            self.touched.services.extend(affected);
            self.touched.services.insert(old.name);
        }
    }

    fn upsert_slice(&mut self, slice: EndpointSlice) {
        // A source may repeat itself, when it lists everything again for example.
        if self.slice(&slice.name) == Some(&slice) {
            return;
        }
        // It may be filed under another Service.
        self.delete_slice(&slice.name);
        self.filed_under
            .insert(slice.name.clone(), slice.service.clone());
        self.touched.services.insert(slice.service.clone());
        self.slices
            .entry(slice.service.clone())
            .or_default()
            .insert(slice.name.clone(), slice);
    }

    fn slice(&self, name: &SliceName) -> Option<&EndpointSlice> {
        self.slices.get(self.filed_under.get(name)?)?.get(name)
    }

    fn delete_slice(&mut self, name: &SliceName) {
        let Some(service) = self.filed_under.remove(name) else {
            return;
        };
        if let Some(slices) = self.slices.get_mut(&service) {
            slices.remove(name);
            if slices.is_empty() {
                self.slices.remove(&service);
            }
        }
        self.touched.services.insert(service);
    }

    fn diagnose(&mut self, object: Arc<str>, diagnostics: Vec<Diagnostic>) {
        if diagnostics.is_empty() {
            self.touched.diagnosed |= self.diagnosed.remove(&object).is_some();
        } else if self.diagnosed.get(&object) != Some(&diagnostics) {
            self.diagnosed.insert(object, diagnostics);
            self.touched.diagnosed = true;
        }
    }
}
