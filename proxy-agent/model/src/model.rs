//! The model's public face: events in, state and changes out. Owns the order of the steps; each
//! step is a module of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    ChangeSet, ClusterEvent, Diagnostic, NodeInfo, NodeState, ServiceName, ServicePortKey,
    SliceName, Standing, TrafficPolicy,
    cluster::Cluster,
    diff::Diff,
    local::{LocalService, localize},
    select::standings,
    slices::merge,
};

/// Folds cluster events and keeps the node-local state that follows from them.
///
/// The state depends on the present objects only: any sequence of events that leads to the same
/// objects leads to the same state. An update costs what the events since the last one touched,
/// whatever the size of the cluster.
#[derive(Debug)]
pub struct Model {
    cluster: Cluster,
    /// Addresses that several Services claim; no empty entries.
    conflicts: BTreeMap<ServiceName, Vec<Diagnostic>>,
    state: NodeState,
}

impl Model {
    /// A model of an empty cluster for the node `node_name`. EndpointSlices name the node they
    /// run on; they are compared with `node_name` as written.
    pub fn new(node_name: impl Into<Arc<str>>) -> Self {
        Self {
            cluster: Cluster::default(),
            conflicts: BTreeMap::new(),
            state: NodeState {
                node: NodeInfo {
                    name: node_name.into(),
                    object: None,
                },
                ..NodeState::default()
            },
        }
    }

    /// The model of a cluster that is looked at a single time: after all `events`, up to date.
    pub fn after(
        node_name: impl Into<Arc<str>>,
        events: impl IntoIterator<Item = ClusterEvent>,
    ) -> Self {
        let mut model = Self::new(node_name);
        for event in events {
            model.apply(event);
        }
        model.update();
        model
    }

    /// Folds one event and returns whether it changed what the model knows of the cluster: a
    /// source may repeat itself. Nothing is computed before [`Self::update`].
    pub fn apply(&mut self, event: ClusterEvent) -> bool {
        self.cluster.apply(event, &self.state.node.name)
    }

    /// Brings the state up to date and returns how it differs from before, in the order in which
    /// a backend must apply it. The node's facts, the ranges of ClusterIPs and diagnostics can
    /// change without a change here.
    pub fn update(&mut self) -> ChangeSet {
        let touched = self.cluster.take_touched();
        let mut diff = Diff::default();
        let mut diagnostics_changed = touched.diagnosed;
        for name in &touched.services {
            let local = match self.cluster.service(name) {
                Some(service) => localize(&self.cluster, service, &self.state.node.name),
                None => LocalService::default(),
            };
            diff.replace(&mut self.state.services, name, local.entries);
            diagnostics_changed |= self.note_conflicts(name, local.diagnostics);
        }
        if diagnostics_changed {
            let mut diagnostics: Vec<_> = self
                .cluster
                .diagnosed()
                .chain(self.conflicts.values().flatten())
                .cloned()
                .collect();
            diagnostics.sort_unstable();
            diagnostics.dedup();
            self.state.diagnostics = diagnostics.into();
        }
        if touched.service_cidrs {
            let cidrs: BTreeSet<_> = self.cluster.service_cidrs().collect();
            self.state.service_cidrs = cidrs.into_iter().collect();
        }
        self.state.node.object = self.cluster.node().cloned();
        diff.into_change_set()
    }

    /// The state as of the last [`Self::update`].
    pub fn state(&self) -> &NodeState {
        &self.state
    }

    /// What becomes of each endpoint that a Service port could use, under `policy`, ordered by
    /// address; as of the events so far. Empty without such a Service port.
    pub fn standings(&self, key: &ServicePortKey, policy: TrafficPolicy) -> Vec<Standing<'_>> {
        let slices = self.cluster.slices_of(&key.service);
        let candidates = merge(slices, &key.port, key.protocol, key.family);
        standings(&candidates, policy, &self.state.node.name)
    }

    /// The EndpointSlices that belong to a Service, ordered.
    pub fn slice_names(&self, service: &ServiceName) -> impl Iterator<Item = &SliceName> {
        self.cluster.slices_of(service).map(|slice| &slice.name)
    }

    /// Returns whether that changed anything.
    fn note_conflicts(&mut self, name: &ServiceName, conflicts: Vec<Diagnostic>) -> bool {
        if conflicts.is_empty() {
            self.conflicts.remove(name).is_some()
        } else {
            self.conflicts.insert(name.clone(), conflicts.clone()) != Some(conflicts)
        }
    }
}

/// The state of the node `node_name` after `events`, computed at once: for commands that look at
/// a cluster a single time.
pub fn compute(
    node_name: impl Into<Arc<str>>,
    events: impl IntoIterator<Item = ClusterEvent>,
) -> NodeState {
    Model::after(node_name, events).state
}
