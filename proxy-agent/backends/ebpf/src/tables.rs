//! The Service maps as a whole: brings them to a state, compares them with one, and repairs them.
//! Knows no kernel: the maps may be anywhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use proxy_model::{
    Change, ChangeSet, Difference, DifferenceKind, NodeState, ServicePortKey, ServiceState,
};

use super::{
    capacity::Capacity,
    describe,
    encode::{self, Leaves, Masqueraded},
    entry::{Key, MapError, ServiceMaps},
    program::{ProgramError, Programmer},
    programmed::Programmed,
};

/// The Service maps, and what is known about what they hold.
pub struct Tables<M> {
    programmer: Programmer<M>,
    /// What the maps hold is known to the programmer; otherwise it must be read back.
    known: bool,
    /// Service ports that could not be programmed, tried again on every sync.
    failed: BTreeMap<ServicePortKey, String>,
    /// Some addresses of the node could not be programmed, and are tried again on every sync.
    addresses_left_out: bool,
    beneath: Beneath,
    /// Endpoints on this node see clients outside, also where they would be masqueraded.
    keeps_clients: bool,
}

/// What decides what is left to a packet backend beneath.
#[derive(Debug, Clone, Copy, Default)]
struct Beneath {
    /// It serves.
    serves: bool,
    /// Whether the last state wanted endpoints of ClusterIPs to see this node.
    masquerade_all: bool,
    /// See [`Leaves::masqueraded`].
    masqueraded: Masqueraded,
}

impl Beneath {
    fn leaves(self) -> Leaves {
        Leaves {
            cluster_ips: self.serves && self.masquerade_all,
            what_does_not_fit: self.serves,
            masqueraded: self.masqueraded,
        }
    }
}

/// What changing the maps came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Entries written and removed.
    pub writes: usize,
    /// Service ports that could not be programmed, and why.
    pub failures: BTreeMap<ServicePortKey, String>,
    /// Addresses of the node on which no NodePort answers, because there is no room for them.
    pub left_out: Vec<IpAddr>,
}

/// What repairing the maps came to.
#[derive(Debug, Default)]
pub struct Repaired {
    /// What differed.
    pub differences: Vec<Difference>,
    /// What mending it came to.
    pub outcome: Outcome,
}

impl<M: ServiceMaps> Tables<M> {
    /// Maps of which nothing is known yet.
    pub fn new(maps: M, capacity: Capacity) -> Self {
        Self {
            programmer: Programmer::new(maps, capacity),
            known: false,
            failed: BTreeMap::new(),
            addresses_left_out: false,
            beneath: Beneath::default(),
            keeps_clients: false,
        }
    }

    /// What the maps hold, as far as it is known.
    pub fn programmed(&self) -> &Programmed {
        self.programmer.programmed()
    }

    /// Gives what is new the numbers that it has in `earlier`, until told otherwise: these maps take the
    /// place of those.
    pub fn remember(&mut self, earlier: Programmed) {
        self.programmer.remember(earlier);
    }

    /// Whether endpoints on this node see clients outside, also where they would be masqueraded: from
    /// the next sync on.
    pub fn keep_clients(&mut self, keeps: bool) {
        self.keeps_clients = keeps;
    }

    /// Whether a packet backend beneath serves. Returns whether the maps depend on that.
    pub fn lies_over(&mut self, serves: bool) -> bool {
        std::mem::replace(&mut self.beneath.serves, serves) != serves
            && (self.beneath.masquerade_all || !self.failed.is_empty())
    }

    /// Makes the maps equal to `state`. After an error what they hold is not known any more.
    pub fn sync(&mut self, state: &NodeState, change: &ChangeSet) -> Result<Outcome, MapError> {
        self.beneath.masquerade_all = state.traffic.masquerade_all;
        self.beneath.masqueraded = Masqueraded::of(state, self.keeps_clients);
        let leaves_others = self.programmer.leave(self.beneath.leaves());
        let whole = change.whole || !self.known || leaves_others;
        if !self.known {
            self.programmer.adopt()?;
        }
        let again = std::mem::take(&mut self.failed);
        if whole {
            let all = state.services.keys().filter(|key| encode::is_seen(key));
            let programmed = self.programmed().services.keys();
            let gone = programmed.filter(|key| !state.services.contains_key(*key));
            let work = Work {
                upserts: all.cloned().collect(),
                gone: gone.cloned().collect(),
                node: true,
                ..Work::default()
            };
            return self.bring_to(state, work);
        }
        let mut work = Work {
            again: again.into_keys().collect(),
            node: change.node,
            ..Work::default()
        };
        for change in &change.changes {
            match change {
                Change::Upsert { key, .. } if encode::is_seen(key) => {
                    work.upserts.push(key.clone());
                }
                Change::Upsert { .. } => {}
                Change::Delete { key } => work.gone.push(key.clone()),
            }
        }
        self.bring_to(state, work)
    }

    /// How the maps differ from `state`. Writes nothing.
    pub fn differences(&self, state: &NodeState) -> Result<Vec<Difference>, MapError> {
        if self.known {
            let mut differences = self.programmer.compare()?.differences;
            differences.extend(self.outdated(self.programmed(), state));
            Ok(differences)
        } else {
            let (programmed, repairs) = self.programmer.read()?;
            let mut differences = repairs.differences;
            differences.extend(self.outdated(&programmed, state));
            Ok(differences)
        }
    }

    /// Makes the maps equal to `state` by writing what differs.
    pub fn repair(&mut self, state: &NodeState) -> Result<Repaired, MapError> {
        let mut differences = if self.known {
            let repairs = self.programmer.compare()?;
            self.programmer.mend(&repairs)?;
            repairs.differences
        } else {
            self.programmer.adopt()?
        };
        let outdated = self.outdated(self.programmed(), state);
        let keys = outdated.iter().filter_map(|one| one.service.clone());
        let (upserts, gone) = keys.partition(|key| state.services.contains_key(key));
        let again = std::mem::take(&mut self.failed);
        let work = Work {
            upserts,
            gone,
            again: again.into_keys().collect(),
            node: true,
        };
        let outcome = self.bring_to(state, work)?;
        let mended = outdated.into_iter().filter(|one| {
            let key = one.service.as_ref();
            key.is_none_or(|key| !outcome.failures.contains_key(key))
        });
        differences.extend(mended);
        Ok(Repaired {
            differences,
            outcome,
        })
    }

    fn bring_to(&mut self, state: &NodeState, work: Work) -> Result<Outcome, MapError> {
        let Work {
            upserts,
            gone,
            mut again,
            node,
        } = work;
        self.known = false;
        let mut attempt = Attempt::default();
        let node = node || self.addresses_left_out;
        if node {
            self.programmer
                .remove_node_addresses(&state.node_port_addresses)?;
        }
        for key in &upserts {
            if let Some(service) = state.services.get(key) {
                attempt.upsert(&mut self.programmer, key, service)?;
            }
        }
        self.programmer.settle()?;
        for key in gone {
            self.programmer.remove(&key)?;
        }
        again.extend(attempt.refused.keys().cloned());
        again.retain(|key| !attempt.torn.contains(key));
        for key in &again {
            if let Some(service) = state.services.get(key) {
                attempt.upsert(&mut self.programmer, key, service)?;
            }
        }
        self.programmer.settle()?;
        let left_out = if node {
            self.programmer
                .add_node_addresses(&state.node_port_addresses)?
        } else {
            Vec::new()
        };
        // Half a Service may be written: the next sync reads back what became of it.
        self.known = attempt.torn.is_empty();
        self.failed.clone_from(&attempt.refused);
        self.addresses_left_out = !left_out.is_empty();
        Ok(Outcome {
            writes: self.programmer.take_writes(),
            failures: attempt.refused,
            left_out,
        })
    }

    /// Service ports for which what `programmed` says is not what `state` wants.
    fn outdated(&self, programmed: &Programmed, state: &NodeState) -> Vec<Difference> {
        let mut outdated = Vec::new();
        let leaves = self.beneath.leaves();
        for (key, service) in &state.services {
            let known = programmed.services.contains_key(key);
            // What is left to the layer beneath is as it should be.
            let left = !known && leaves.what_does_not_fit && self.failed.contains_key(key);
            if encode::is_seen(key) && !left && !programmed.is_current(key, service, leaves) {
                outdated.push(Difference {
                    object: format!("Service {key}"),
                    kind: if known {
                        DifferenceKind::Changed
                    } else {
                        DifferenceKind::Missing
                    },
                    service: Some(key.clone()),
                    wanted: Some(summary(service)),
                    found: self
                        .failed
                        .get(key)
                        .map(|reason| format!("refused: {reason}")),
                });
            }
        }
        for key in programmed.services.keys() {
            if !state.services.contains_key(key) {
                outdated.push(Difference {
                    object: format!("Service {key}"),
                    kind: DifferenceKind::Unexpected,
                    service: Some(key.clone()),
                    wanted: None,
                    found: None,
                });
            }
        }
        for address in &*state.node_port_addresses {
            if !programmed.node_addresses.contains(address) {
                outdated.push(outdated_address(*address, DifferenceKind::Missing));
            }
        }
        for address in &programmed.node_addresses {
            if state.node_port_addresses.binary_search(address).is_err() {
                outdated.push(outdated_address(*address, DifferenceKind::Unexpected));
            }
        }
        outdated
    }
}

fn outdated_address(address: IpAddr, kind: DifferenceKind) -> Difference {
    let (key, _) = encode::node_address(address);
    Difference {
        object: describe::object(&Key::NodeAddress(key)),
        kind,
        service: None,
        wanted: None,
        found: None,
    }
}

/// What a Service port shall be, in short.
fn summary(service: &ServiceState) -> String {
    let frontends = service.frontends.iter().map(ToString::to_string);
    let sets = [
        ("in the cluster", &service.cluster_endpoints),
        ("on this node", &service.local_endpoints),
    ];
    let sets = sets.iter().filter_map(|(place, set)| {
        let set = set.as_deref()?;
        Some(format!("{} endpoints {place}", set.len()))
    });
    let (frontends, sets): (Vec<_>, Vec<_>) = (frontends.collect(), sets.collect());
    format!("{} for {}", sets.join(" and "), frontends.join(", "))
}

/// What to do, in this order.
#[derive(Default)]
struct Work {
    upserts: Vec<ServicePortKey>,
    gone: Vec<ServicePortKey>,
    /// Did not fit before; removals may have made room.
    again: BTreeSet<ServicePortKey>,
    /// Whether the node's addresses may be others.
    node: bool,
}

/// What became of the Service ports of one sync.
#[derive(Default)]
struct Attempt {
    refused: BTreeMap<ServicePortKey, String>,
    /// Those of which a part may be written.
    torn: BTreeSet<ServicePortKey>,
}

impl Attempt {
    fn upsert<M: ServiceMaps>(
        &mut self,
        programmer: &mut Programmer<M>,
        key: &ServicePortKey,
        service: &ServiceState,
    ) -> Result<(), MapError> {
        match programmer.upsert(key, service) {
            // The kernel has no room for this one; others that need none must not wait for it.
            Err(ProgramError::Map(error)) if error.no_room => {
                self.torn.insert(key.clone());
                self.refused.insert(key.clone(), error.to_string());
            }
            Err(ProgramError::Map(error)) => return Err(error),
            Err(ProgramError::Refused(reason)) => {
                self.refused.insert(key.clone(), reason.to_string());
            }
            Ok(()) => {
                self.refused.remove(key);
            }
        }
        Ok(())
    }
}
