//! What a backend gets for nothing, and what a box hands on.

use std::time::Duration;

use super::*;
use crate::{ClusterEvent, IpFamily, Protocol, Service, ServiceName, ServicePort, compute};

/// No more than a backend must have. Remembers what it was handed.
#[derive(Default)]
struct Least {
    /// Whether the change was whole, and how many Service ports it named.
    calls: Vec<(bool, usize)>,
    /// What the next sync is answered, in place of success.
    failure: Option<SyncError>,
}

impl Backend for Least {
    fn name(&self) -> &'static str {
        "least"
    }

    fn lacks(&self) -> &'static [Capability] {
        &[Capability::Sctp]
    }

    fn sync(&mut self, state: &NodeState, change: &ChangeSet) -> Result<SyncReport, SyncError> {
        self.calls.push((change.whole, change.changes.len()));
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(SyncReport {
                writes: 3,
                failures: vec![failure(state)],
            }),
        }
    }
}

/// A state of two Service ports.
fn state() -> NodeState {
    let service = |number: u8| {
        ClusterEvent::ServiceUpserted(Service {
            name: ServiceName::new("shop", format!("s{number}")),
            cluster_ips: vec![[10, 96, 0, number].into()],
            ports: vec![ServicePort {
                name: "".into(),
                protocol: Protocol::Tcp,
                port: 80,
                node_port: None,
            }],
            ..Service::default()
        })
    };
    compute("node-a", [1, 2].map(service))
}

fn failure(state: &NodeState) -> ServiceFailure {
    let key = state.services.keys().next().unwrap().clone();
    assert_eq!(key.family, IpFamily::V4);
    ServiceFailure {
        key,
        reason: "no room".to_owned(),
    }
}

#[test]
fn a_repair_is_a_sync_of_everything_unless_a_backend_knows_better() {
    let mut backend = Least::default();
    let state = state();
    let report = backend.repair(&state).unwrap();
    assert_eq!(backend.calls, [(true, 2)]);
    let expected = RepairReport {
        writes: 3,
        failures: vec![failure(&state)],
        ..RepairReport::default()
    };
    assert_eq!(report, expected);
    backend.failure = Some(SyncError::Retry {
        reason: "busy".to_owned(),
        after: Duration::from_secs(7),
    });
    let error = backend.repair(&state).unwrap_err();
    let SyncError::Retry { reason, after } = error else {
        panic!("{error}")
    };
    assert_eq!((reason.as_str(), after.as_secs()), ("busy", 7));
}

#[test]
fn a_backend_that_cannot_compare_says_so_and_writes_nothing() {
    let mut backend = Least::default();
    let CompareError::Unable { reason } = backend.differences(&state()).unwrap_err() else {
        panic!("it can");
    };
    assert!(reason.contains("backend least cannot compare"), "{reason}");
    assert_eq!(backend.calls, []);
    assert_eq!(backend.figures(), []);
    assert!(!backend.lies_over(PacketLayer::Serves));
}

/// One that answers each method in its own way.
#[derive(Default)]
struct Most {
    tended: bool,
}

impl Backend for Most {
    fn name(&self) -> &'static str {
        "most"
    }

    fn lacks(&self) -> &'static [Capability] {
        &[Capability::Masquerade]
    }

    fn sync(&mut self, _: &NodeState, _: &ChangeSet) -> Result<SyncReport, SyncError> {
        Ok(SyncReport {
            writes: 1,
            failures: vec![],
        })
    }

    fn differences(&mut self, _: &NodeState) -> Result<Vec<Difference>, CompareError> {
        Err(CompareError::failed("differences of most"))
    }

    fn repair(&mut self, _: &NodeState) -> Result<RepairReport, SyncError> {
        Ok(RepairReport {
            problems: vec![Problem {
                reason: "problem of most".to_owned(),
                harms: true,
            }],
            ..RepairReport::default()
        })
    }

    fn disturbed(&mut self) -> bool {
        self.tended
    }

    fn tend(&mut self, state: &NodeState) {
        self.tended = !state.services.is_empty();
    }

    fn lies_over(&mut self, beneath: PacketLayer) -> bool {
        beneath == PacketLayer::Serves
    }

    fn devices(&self) -> Vec<Device> {
        vec![Device {
            name: "eth0".to_owned(),
            is_served: true,
            keeps_clients: false,
            reason: String::new(),
        }]
    }

    fn figures(&self) -> Vec<Figure> {
        vec![Figure {
            name: "places",
            kind: FigureKind::Gauge,
            help: "Places.",
            labels: vec![],
            value: 5.0,
        }]
    }
}

/// Asks for everything by way of the trait, as generic code does.
fn is_most(mut backend: impl Backend) {
    let state = state();
    assert_eq!(backend.name(), "most");
    assert_eq!(backend.lacks(), [Capability::Masquerade]);
    let change = state.as_change_set();
    assert_eq!(backend.sync(&state, &change).unwrap().writes, 1);
    let differences = backend.differences(&state).unwrap_err();
    assert_eq!(differences, CompareError::failed("differences of most"));
    let problems = backend.repair(&state).unwrap().problems;
    assert_eq!(problems[0].reason, "problem of most");
    assert!(!backend.disturbed());
    backend.tend(&state);
    assert!(backend.disturbed(), "tended");
    assert!(backend.lies_over(PacketLayer::Serves) && !backend.lies_over(PacketLayer::Waits));
    assert_eq!(backend.devices().len(), 1);
    assert_eq!(backend.figures().len(), 1);
}

#[test]
fn a_box_hands_every_method_on() {
    let boxed: Box<dyn Backend> = Box::new(Most::default());
    is_most(boxed);
}
