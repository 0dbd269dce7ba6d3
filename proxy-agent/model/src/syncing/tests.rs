//! What is handed to a backend, after whatever went before.

use std::collections::VecDeque;

use super::*;
use crate::{
    Capability, NodeInfo,
    PacketLayer::{Absent, Serves},
};

/// Remembers whether each call was about the whole state.
#[derive(Default)]
struct Fake {
    whole: Vec<bool>,
    /// What lies beneath it.
    over: PacketLayer,
    answers: VecDeque<SyncError>,
}

impl Backend for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn lacks(&self) -> &[Capability] {
        &[]
    }

    fn sync(&mut self, _: &NodeState, change: &ChangeSet) -> Result<SyncReport, SyncError> {
        self.whole.push(change.whole);
        match self.answers.pop_front() {
            Some(error) => Err(error),
            None => Ok(SyncReport::default()),
        }
    }

    fn disturbed(&mut self) -> bool {
        true
    }

    fn lies_over(&mut self, beneath: PacketLayer) -> bool {
        std::mem::replace(&mut self.over, beneath) != beneath
    }
}

fn state() -> NodeState {
    NodeState {
        node: NodeInfo {
            name: "node-a".into(),
            ..NodeInfo::default()
        },
        ..NodeState::default()
    }
}

fn some() -> ChangeSet {
    ChangeSet {
        node: true,
        ..ChangeSet::default()
    }
}

fn retry(seconds: u64) -> SyncError {
    SyncError::Retry {
        reason: "no room".to_owned(),
        after: Duration::from_secs(seconds),
    }
}

fn synced(syncing: &mut Syncing<Fake>) -> bool {
    let change = syncing.due(&state());
    assert!(!change.is_empty());
    syncing.sync(&state(), &change).is_ok()
}

#[test]
fn the_first_sync_is_whole_and_those_after_it_are_changes() {
    let mut syncing = Syncing::new(Fake::default());
    assert!(!syncing.in_force() && !syncing.disturbed());
    assert!(syncing.repair(&state()).is_none());
    let differences = syncing.differences(&state());
    assert_eq!(differences, Err(CompareError::Behind));
    syncing.changed(&some());
    assert!(synced(&mut syncing) && syncing.in_force() && syncing.disturbed());
    assert!(syncing.due(&state()).is_empty());
    syncing.changed(&some());
    assert!(!syncing.in_force());
    assert!(synced(&mut syncing));
    assert_eq!(syncing.backend().whole, [true, false]);
}

#[test]
fn whoever_missed_a_change_or_failed_gets_everything() {
    let mut syncing = Syncing::new(Fake::default());
    assert!(synced(&mut syncing));
    syncing.changed(&some());
    syncing.changed(&some());
    assert!(synced(&mut syncing));
    syncing.backend.answers.push_back(retry(1));
    syncing.changed(&some());
    assert!(!synced(&mut syncing) && syncing.is_behind());
    // Not only what has changed since.
    syncing.changed(&some());
    assert!(synced(&mut syncing));
    assert_eq!(syncing.backend().whole, [true, true, false, true]);
    // A repair that failed as well.
    syncing.backend.answers.push_back(retry(1));
    assert!(syncing.repair(&state()).unwrap().is_err());
    assert!(syncing.repair(&state()).is_none());
    assert!(synced(&mut syncing));
    assert_eq!(syncing.backend().whole[4..], [true, true]);
}

#[test]
fn what_lies_beneath_is_told_and_may_ask_for_everything_again() {
    let mut syncing = Syncing::new(Fake::default());
    syncing.lies_over(Absent);
    assert!(synced(&mut syncing));
    for beneath in [Absent, Serves, Serves, Absent] {
        let changes = syncing.backend.over != beneath;
        syncing.lies_over(beneath);
        assert_eq!(syncing.in_force(), !changes, "{beneath:?}");
        assert!(!changes || synced(&mut syncing));
    }
    assert_eq!(syncing.backend().whole, [true; 3]);
}

#[test]
fn a_failure_is_waited_out_twice_as_long_each_time() {
    let mut attempts = Attempts::default();
    for seconds in [1, 2, 4, 8, 16, 30, 30] {
        let wait = attempts.took::<()>(Err(retry(1))).unwrap().unwrap_err();
        assert_eq!(wait.as_secs(), seconds);
    }
    assert_eq!(
        (attempts.failure(), attempts.failures()),
        (Some("no room"), 7)
    );
    assert_eq!(attempts.took(Ok(5)), Ok(Ok(5)));
    assert_eq!((attempts.failure(), attempts.failures()), (None, 0));
    let fatal = attempts.took::<()>(Err(SyncError::Fatal {
        cause: FatalCause::Host,
        reason: "no BPF".to_owned(),
    }));
    assert_eq!(fatal.unwrap_err().cause, FatalCause::Host);
}
