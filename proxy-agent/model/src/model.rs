//! The model's public face: events in, state and changes out. Owns the order of the steps; each
//! step is a module of its own.

use std::{collections::BTreeMap, net::IpAddr};

use imbl::OrdMap;

use crate::{
    ChangeSet, ClusterEvent, Diagnostic, HealthCheck, HealthCheckKey, IpFamily, NodeInfo,
    NodeState, ServiceName, ServicePortKey, Settings, SliceName, Standing, TrafficPolicy,
    cluster::Cluster,
    diff::Diff,
    local::{LocalService, localize},
    select::standings,
    service_cidrs,
    slices::merge,
    topology::Place,
};

/// Folds cluster events and keeps the node-local state that follows from them.
///
/// The state depends on the present objects only: any sequence of events that leads to the same
/// objects leads to the same state. An update costs what the events since the last one touched,
/// whatever the size of the cluster.
#[derive(Debug)]
pub struct Model {
    settings: Settings,
    cluster: Cluster,
    /// Addresses that several Services claim; no empty entries.
    conflicts: BTreeMap<ServiceName, Vec<Diagnostic>>,
    /// What is wrong with ranges of ClusterIPs.
    unusable_cidrs: Vec<Diagnostic>,
    state: NodeState,
}

impl Model {
    /// A model of an empty cluster for one node.
    pub fn new(settings: impl Into<Settings>) -> Self {
        let settings = settings.into();
        let mut model = Self {
            cluster: Cluster::default(),
            conflicts: BTreeMap::new(),
            unusable_cidrs: Vec::new(),
            state: NodeState {
                node: NodeInfo {
                    name: settings.node.clone(),
                    ..NodeInfo::default()
                },
                traffic: settings.traffic.clone(),
                ..NodeState::default()
            },
            settings,
        };
        model.update_node();
        model
    }

    /// The model of a cluster that is examined only once: after all `events`, up to date.
    pub fn after(
        settings: impl Into<Settings>,
        events: impl IntoIterator<Item = ClusterEvent>,
    ) -> Self {
        let mut model = Self::new(settings);
        for event in events {
            model.apply(event);
        }
        model.update();
        model
    }

    /// Folds one event and returns whether it changed what the model knows of the cluster: a
    /// source may repeat itself. Nothing is computed before [`Self::update`].
    pub fn apply(&mut self, event: ClusterEvent) -> bool {
        self.cluster.apply(event, &self.settings.node)
    }

    /// Brings the state up to date and returns how it differs from before, in the order in which a
    /// backend must apply it. What a backend does not use (diagnostics, health checks, facts about
    /// the node) can change without a change here.
    pub fn update(&mut self) -> ChangeSet {
        let touched = self.cluster.take_touched();
        let mut diff = Diff::default();
        let mut diagnostics_changed = touched.diagnosed;
        for name in &touched.services {
            let local = match self.cluster.service(name) {
                Some(service) => localize(&self.cluster, service, &self.settings),
                None => LocalService::default(),
            };
            diff.replace(&mut self.state.services, name, local.entries);
            note_health_checks(&mut self.state.health_checks, name, &local.health_checks);
            diagnostics_changed |= self.note_conflicts(name, local.diagnostics);
        }
        let mut node_changed = false;
        if touched.service_cidrs || touched.node {
            let node = self.cluster.node().map_or(&[][..], |node| &node.addresses);
            let (usable, diagnostics) = service_cidrs::usable(self.cluster.service_cidrs(), node);
            diagnostics_changed |= diagnostics != self.unusable_cidrs;
            self.unusable_cidrs = diagnostics;
            if !self.state.service_cidrs.iter().eq(&usable) {
                self.state.service_cidrs = usable.into_iter().collect();
                node_changed = true;
            }
        }
        if diagnostics_changed {
            let mut diagnostics: Vec<_> = self
                .cluster
                .diagnosed()
                .chain(self.conflicts.values().flatten())
                .chain(&self.unusable_cidrs)
                .cloned()
                .collect();
            diagnostics.sort_unstable();
            diagnostics.dedup();
            self.state.diagnostics = diagnostics.into();
        }
        node_changed |= touched.node && self.update_node();
        diff.into_change_set(node_changed)
    }

    /// Takes over what is known of the node. Returns whether that matters to a backend.
    fn update_node(&mut self) -> bool {
        let state = &mut self.state;
        let object = self.cluster.node();
        let pod_cidrs_changed =
            state.node.pod_cidrs() != object.map_or(&[][..], |node| &node.pod_cidrs);
        state.node.object = object.cloned();
        let host: Vec<_> = self.cluster.host_addresses().into_iter().collect();
        let node_ports = self
            .settings
            .node_port_addresses(&host, state.node.addresses());
        let addresses_changed = *state.node.host_addresses != *host
            || !state.node_port_addresses.iter().eq(&node_ports);
        if addresses_changed {
            state.node.host_addresses = host.into();
            state.node_port_addresses = node_ports.into_iter().collect();
        }
        pod_cidrs_changed || addresses_changed
    }

    /// What the model was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
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
        let place = Place {
            node: &self.settings.node,
            zone: self.cluster.node().and_then(|node| node.zone.as_deref()),
        };
        standings(&candidates, policy, place)
    }

    /// Names that nodes of the cluster have, as far as objects tell them: those of other Node
    /// objects, and of nodes that endpoints run on, which may be the own one. In no order, and more
    /// than once. Looks at all endpoints.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.cluster.node_names()
    }

    /// Services with a load balancer that serves `address` itself (`ipMode: Proxy`), ordered.
    /// Looks at all of them.
    pub fn proxied(&self, address: IpAddr) -> impl Iterator<Item = &ServiceName> {
        self.cluster.proxied(address)
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

/// Replaces what load balancers are told about `service`.
fn note_health_checks(
    all: &mut OrdMap<HealthCheckKey, HealthCheck>,
    service: &ServiceName,
    now: &[(HealthCheckKey, HealthCheck)],
) {
    for family in [IpFamily::V4, IpFamily::V6] {
        let key = HealthCheckKey {
            service: service.clone(),
            family,
        };
        match now.iter().find(|(of, _)| *of == key) {
            Some((_, check)) if all.get(&key) != Some(check) => {
                all.insert(key, *check);
            }
            Some(_) => {}
            None => {
                all.remove(&key);
            }
        }
    }
}

/// The state of a node after `events`, computed at once: for commands that look at a cluster a
/// single time.
pub fn compute(
    settings: impl Into<Settings>,
    events: impl IntoIterator<Item = ClusterEvent>,
) -> NodeState {
    Model::after(settings, events).state
}
