//! Random clusters, one change after the other, from a number: the same number, the same clusters.
//!
//! All of it happens among few names and addresses, so that Services share endpoints, claim each
//! other's addresses and the node's own, come back, and lose what they had.

mod chance;
mod objects;
mod text;

use std::{collections::BTreeMap, net::IpAddr};

use proxy_model::{
    ClusterEvent, EndpointSlice, Node, NodePortSelection, NodeState, ObjectName, Service,
    ServiceCidr, compute,
    oracle::{Detector, Traffic},
};

pub use chance::Chance;

use crate::scenario::Settings;

/// Changes that lead to the next state, at most.
const CHANGES: usize = 4;

/// Addresses that the node has besides its usual ones.
const OWN: [&str; 3] = ["192.0.2.11", "198.51.100.11", "2001:db8::11"];

/// A cluster that changes.
#[derive(Debug)]
pub struct Walk {
    chance: Chance,
    settings: Settings,
    services: BTreeMap<ObjectName, Service>,
    slices: BTreeMap<ObjectName, EndpointSlice>,
    node: Option<Node>,
    ranges: Option<ServiceCidr>,
    begun: bool,
    affinity: bool,
}

impl Walk {
    /// The one with this number.
    pub fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let settings = settings(&mut chance);
        Self {
            chance,
            settings,
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            node: None,
            ranges: None,
            begun: false,
            affinity: true,
        }
    }

    /// The same, without session affinity.
    pub fn without_affinity(seed: u64) -> Self {
        Self {
            affinity: false,
            ..Self::new(seed)
        }
    }

    /// The node, and how it is configured: the same for the whole walk.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// For choices that the walk does not make.
    pub fn chance(&mut self) -> &mut Chance {
        &mut self.chance
    }

    /// Goes on to the next cluster.
    pub fn step(&mut self) {
        if !self.begun {
            self.begin();
        }
        let changes = 1 + self.chance.below(CHANGES);
        for _ in 0..changes {
            self.change();
        }
    }

    /// What the node must do now.
    pub fn state(&self) -> NodeState {
        compute(self.settings.model.clone(), self.events())
    }

    /// The cluster as the text of a scenario file of one step.
    pub fn text(&self) -> String {
        self.heading() + &self.files()
    }

    /// The beginning of such a text: the settings.
    pub fn heading(&self) -> String {
        text::heading(&self.settings)
    }

    /// The rest of it: one step.
    pub fn files(&self) -> String {
        text::files(self)
    }

    /// A cluster in which there is something of everything.
    fn begin(&mut self) {
        self.begun = true;
        for name in objects::service_names() {
            let service = Service {
                name,
                ..objects::service(&mut self.chance)
            };
            self.put_service(service);
        }
        for name in objects::slice_names() {
            let slice = objects::slice(&mut self.chance, name);
            self.slices.insert(slice.name.clone(), slice);
        }
    }

    fn put_service(&mut self, mut service: Service) {
        service.affinity = service.affinity.filter(|_| self.affinity);
        self.services.insert(service.name.clone(), service);
    }

    fn change(&mut self) {
        let chance = &mut self.chance;
        match chance.below(20) {
            0..6 => {
                let service = objects::service(chance);
                self.put_service(service);
            }
            6..15 => {
                let name = objects::slice_name(chance);
                let slice = objects::slice(chance, name);
                self.slices.insert(slice.name.clone(), slice);
            }
            15 => {
                self.services.remove(&objects::service_name(chance));
            }
            16 => {
                self.slices.remove(&objects::slice_name(chance));
            }
            17 => self.node = chance.often().then(|| objects::node(chance)),
            18 => self.ranges = chance.often().then(|| objects::ranges(chance)),
            // All pods of a Service go, or are on their way.
            _ => {
                let name = objects::slice_name(chance);
                if let Some(slice) = self.slices.get_mut(&name) {
                    for endpoint in &mut slice.endpoints {
                        endpoint.conditions.ready = false;
                        endpoint.conditions.serving &= chance.often();
                        endpoint.conditions.terminating = true;
                    }
                }
            }
        }
    }

    fn events(&self) -> Vec<ClusterEvent> {
        let services = self.services.values().cloned();
        let slices = self.slices.values().cloned();
        let node = self.node.iter().cloned();
        let ranges = self.ranges.iter().cloned();
        std::iter::once(self.settings.host_addresses())
            .chain(services.map(ClusterEvent::ServiceUpserted))
            .chain(slices.map(ClusterEvent::SliceUpserted))
            .chain(node.map(ClusterEvent::NodeUpserted))
            .chain(ranges.map(ClusterEvent::ServiceCidrUpserted))
            .collect()
    }
}

fn settings(chance: &mut Chance) -> Settings {
    let cidrs = |texts: &[&str]| objects::parsed(texts);
    let detector = match chance.below(7) {
        0 => Detector::None,
        1 => Detector::ClusterCidr(cidrs(&["10.244.0.0/16"])),
        2 => Detector::ClusterCidr(cidrs(&["10.244.0.0/16", "fd00:10:244::/48"])),
        3 | 4 => Detector::NodeCidr,
        5 => Detector::BridgeInterface("cbr0".into()),
        _ => Detector::InterfaceNamePrefix("veth".into()),
    };
    let node_ports = match chance.below(6) {
        0 => NodePortSelection::Primary,
        1 => NodePortSelection::Cidrs(cidrs(&["192.0.2.0/24"])),
        2 => NodePortSelection::Cidrs(cidrs(&["198.51.100.0/24", "2001:db8::/64"])),
        _ => NodePortSelection::All,
    };
    let mut settings = Settings {
        node_addresses: objects::parsed::<IpAddr>(&OWN),
        ..Settings::default()
    };
    settings.model.node_ports = node_ports;
    settings.model.traffic = Traffic {
        detector,
        masquerade_all: chance.seldom(),
    };
    settings
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proxy_agent::cluster::manifests::load_once;
    use proxy_model::oracle::{Path, verdict};

    use super::*;
    use crate::{Scenario, conformance::packets, world::NODE_ADDRESSES};

    #[test]
    fn the_same_number_is_the_same_walk() {
        let walk = |seed| {
            let mut walk = Walk::new(seed);
            let mut states = Vec::new();
            for _ in 0..5 {
                walk.step();
                states.push(walk.state());
            }
            states
        };
        assert_eq!(walk(7), walk(7));
        assert_ne!(walk(7), walk(8));
    }

    #[test]
    fn walks_come_by_everything_that_can_happen_to_a_packet() {
        let mut outcomes = BTreeSet::new();
        let mut kinds = BTreeSet::new();
        for seed in 0..40 {
            let mut walk = Walk::new(seed);
            for _ in 0..5 {
                walk.step();
            }
            let state = walk.state();
            let own = [&NODE_ADDRESSES[..], &walk.settings().node_addresses].concat();
            let places = packets::places(&state, &own);
            for packet in packets::all(&state, &places, &own) {
                let says = verdict(&state, &packet, Path::Packet);
                let (frontend, targets) = (says.frontend, says.targets.iter());
                for masquerade in targets.map(|target| target.masquerade) {
                    outcomes.insert(format!("{masquerade:?}"));
                }
                outcomes.insert(format!("{:?}", says.reason));
                kinds.extend(frontend.map(|one| (one.kind, packet.protocol)));
            }
        }
        for outcome in [
            "None",
            "Some(All)",
            "Some(NotLocal)",
            "Some(External)",
            "Some(Host)",
            "Some(Hairpin)",
            "ClusterSet",
            "LocalSet",
            "LocalClient",
            "SourceRange",
            "NoEndpoints",
            "NoneByPolicy",
            "UnknownPort",
            "Unallocated",
            "NoFrontend",
        ] {
            assert!(
                outcomes.contains(outcome),
                "{outcome} is not in {outcomes:?}"
            );
        }
        // Four kinds of frontends, three protocols.
        assert_eq!(kinds.len(), 12, "{kinds:?}");
    }

    /// What is printed when a walk fails leads to the same state.
    #[test]
    fn a_cluster_can_be_told_as_a_scenario() {
        for seed in 0..20 {
            let mut walk = Walk::new(seed);
            walk.step();
            let text = walk.text();
            let told = Scenario::parse("random".to_owned(), "random.txt".into(), &text).unwrap();
            assert_eq!(told.settings, *walk.settings(), "{text}");
            let dir = tempfile::tempdir().unwrap();
            told.steps[0].write(dir.path()).unwrap();
            let events = load_once(vec![dir.path().to_owned()]).unwrap();
            let events = std::iter::once(told.settings.host_addresses()).chain(events);
            // Of addresses that make no sense, only text can tell.
            let quiet = |state| NodeState {
                diagnostics: [].into(),
                ..state
            };
            let state = compute(told.settings.model.clone(), events);
            assert_eq!(quiet(state), quiet(walk.state()), "{text}");
        }
    }
}
