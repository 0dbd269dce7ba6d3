//! The pipeline with a backend that does what a test says and remembers what it was asked.

mod alternatives;
mod gaps;
mod layers;
mod logged;

use std::{sync::Arc, time::SystemTime};

use proxy_model::{
    ChangeSet, ClusterEvent, Diagnostic, DifferenceKind, FatalCause, IpFamily, Service,
    ServiceFailure, ServiceName, ServicePort, SyncError, SyncReport, TrafficPolicy,
};

use self::logged::{logged, start_log};
use super::{
    fake::{self, Call, Fake},
    *,
};

fn pipeline(fake: &Fake) -> Pipeline {
    start_log();
    fake.pipeline()
}

impl Pipeline {
    /// Folds events and brings them into force, when all that failed before is due; says how long to
    /// wait until something is to be tried again.
    fn take(&mut self, events: Vec<ClusterEvent>) -> Result<Option<Duration>, Fatal> {
        let now = self.all_due();
        self.take_at(events, now)
    }

    /// The same at this time.
    fn take_at(
        &mut self,
        events: Vec<ClusterEvent>,
        now: Instant,
    ) -> Result<Option<Duration>, Fatal> {
        let update = |event| Update {
            event,
            trigger: None,
        };
        self.fold(events.into_iter().map(update).collect());
        self.settle();
        self.advance(now)?;
        Ok(self.due().map(|due| due - now))
    }

    /// A time at which nothing waits any more.
    fn all_due(&self) -> Instant {
        let all = self.layers.iter().filter_map(Layer::due);
        all.chain([Instant::now()]).max().unwrap()
    }

    /// An advance at that time.
    fn advance_now(&mut self) -> Result<Advance, Fatal> {
        let now = self.all_due();
        self.advance(now)
    }

    fn repair_all(&mut self) -> Option<Repair> {
        self.repair(Which::All, Instant::now())
    }
}

fn name(name: &str) -> ServiceName {
    ServiceName::new("shop", name)
}

/// A Service of one port, on 10.96.0.`number`.
fn upsert(service: &str, number: u8) -> ClusterEvent {
    ClusterEvent::ServiceUpserted(Service {
        name: name(service),
        cluster_ips: vec![[10, 96, 0, number].into()],
        ports: vec![ServicePort {
            name: "".into(),
            protocol: proxy_model::Protocol::Tcp,
            port: 80,
            node_port: None,
        }],
        internal_policy: TrafficPolicy::Cluster,
        ..Service::default()
    })
}

fn delete(service: &str) -> ClusterEvent {
    ClusterEvent::ServiceDeleted(name(service))
}

fn call(whole: bool, names: &[&str]) -> Call {
    (whole, names.iter().map(|one| (*one).to_owned()).collect())
}

fn retry(after: Duration) -> Result<SyncReport, SyncError> {
    Err(SyncError::Retry {
        reason: "writing FRONTENDS: interrupted".to_owned(),
        after,
    })
}

#[test]
fn the_first_sync_is_whole_and_later_ones_name_what_changed() {
    let fake = Fake::default();
    let mut pipeline = pipeline(&fake);
    let both = vec![upsert("a", 1), upsert("b", 2)];
    assert_eq!(pipeline.take(both).unwrap(), None);
    assert_eq!(fake.calls(), [call(true, &["+a", "+b"])]);
    pipeline.take(vec![upsert("c", 3)]).unwrap();
    pipeline.take(vec![delete("a")]).unwrap();
    assert_eq!(fake.calls(), [call(false, &["+c"]), call(false, &["-a"])]);
}

#[test]
fn an_empty_cluster_is_synced_once_so_that_what_was_left_goes() {
    let fake = Fake::default();
    let mut pipeline = pipeline(&fake);
    pipeline.take(vec![]).unwrap();
    assert_eq!(fake.calls(), [call(true, &[])]);
    pipeline.take(vec![]).unwrap();
    assert_eq!(fake.calls(), []);
}

#[test]
fn events_of_one_call_are_one_sync_of_what_they_come_to() {
    let fake = Fake::default();
    let mut pipeline = pipeline(&fake);
    pipeline.take(vec![upsert("a", 1)]).unwrap();
    fake.calls();
    let events = vec![
        upsert("a", 7),
        upsert("b", 2),
        upsert("a", 8),
        delete("b"),
        upsert("c", 3),
    ];
    pipeline.take(events).unwrap();
    assert_eq!(fake.calls(), [call(false, &["+a", "+c"])]);
    // What comes to nothing is no sync.
    let events = vec![upsert("d", 4), delete("d"), upsert("a", 8)];
    assert_eq!(pipeline.take(events).unwrap(), None);
    assert_eq!(fake.calls(), []);
}

#[test]
fn after_a_failed_sync_the_next_is_whole_until_one_succeeds() {
    let fake = Fake::default();
    let mut pipeline = pipeline(&fake);
    pipeline.take(vec![upsert("a", 1)]).unwrap();
    fake.answer(retry(Duration::from_secs(1)));
    fake.answer(retry(Duration::from_secs(1)));
    let wait = pipeline.take(vec![upsert("b", 2)]).unwrap();
    assert_eq!(wait, Some(Duration::from_secs(1)));
    // A change comes in while the backend is behind; it is part of the whole.
    assert!(pipeline.take(vec![upsert("c", 3)]).unwrap().is_some());
    assert_eq!(pipeline.take(vec![]).unwrap(), None);
    pipeline.take(vec![delete("b")]).unwrap();
    let expected = [
        call(true, &["+a"]),
        call(false, &["+b"]),
        call(true, &["+a", "+b", "+c"]),
        call(true, &["+a", "+b", "+c"]),
        call(false, &["-b"]),
    ];
    assert_eq!(fake.calls(), expected);
}

#[test]
fn waits_double_up_to_the_longest_and_start_anew_after_a_success() {
    let fake = Fake::default();
    let mut pipeline = pipeline(&fake);
    let waits = |pipeline: &mut Pipeline, count| -> Vec<u64> {
        let mut wait = || {
            fake.answer(retry(Duration::from_secs(1)));
            pipeline.take(vec![]).unwrap().unwrap().as_secs()
        };
        (0..count).map(|_| wait()).collect()
    };
    // More often than a 32-bit factor can double.
    let many = waits(&mut pipeline, 40);
    assert_eq!(many[..7], [1, 2, 4, 8, 16, 30, 30]);
    assert!(many[7..].iter().all(|wait| *wait == 30), "{many:?}");
    pipeline.take(vec![]).unwrap();
    fake.answer(retry(Duration::from_secs(1)));
    let wait = pipeline.take(vec![upsert("a", 1)]).unwrap();
    assert_eq!(wait, Some(Duration::from_secs(1)));
    // A backend may ask for any wait.
    fake.answer(retry(Duration::MAX));
    let wait = pipeline.take(vec![upsert("b", 2)]).unwrap();
    assert_eq!(wait, Some(Duration::from_secs(30)));
}

#[test]
fn a_fatal_error_ends_with_its_cause_and_reason() {
    for cause in [FatalCause::Host, FatalCause::Other] {
        let fake = Fake::default();
        fake.answer(Err(SyncError::Fatal {
            cause,
            reason: "attaching: not permitted".to_owned(),
        }));
        let fatal = pipeline(&fake).take(vec![]).unwrap_err();
        assert_eq!(fatal.cause, cause);
        assert_eq!(fatal.to_string(), "attaching: not permitted");
    }
}

fn slice(endpoint: u8) -> ClusterEvent {
    ClusterEvent::SliceUpserted(proxy_model::EndpointSlice {
        name: proxy_model::SliceName::new("shop", "a-1"),
        service: name("a"),
        family: IpFamily::V4,
        ports: vec![],
        endpoints: vec![proxy_model::SliceEndpoint {
            address: [10, 244, 0, endpoint].into(),
            conditions: proxy_model::Conditions {
                ready: true,
                serving: true,
                terminating: false,
            },
            node: None,
            hints: None,
        }],
    })
}

#[test]
fn events_that_change_something_are_counted_by_kind() {
    let fake = Fake::default();
    let mut pipeline = pipeline(&fake);
    let events = [upsert("a", 1), upsert("a", 1), slice(1), slice(1), slice(2)];
    let update = |event| Update {
        event,
        trigger: None,
    };
    pipeline.fold(events.map(update).into());
    pipeline.settle();
    let advance = pipeline.advance_now().unwrap();
    assert_eq!(advance.events, 5);
    assert_eq!((advance.service_changes, advance.endpoint_changes), (1, 2));
    assert_eq!(pipeline.advance_now().unwrap(), Advance::default());
    assert_eq!(pipeline.revision(), 1);
}

#[test]
fn triggers_are_kept_until_what_they_stand_for_is_in_force() {
    let fake = Fake::default();
    let mut pipeline = pipeline(&fake);
    pipeline.take(vec![upsert("a", 1)]).unwrap();
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
    let fold = |pipeline: &mut Pipeline, event| {
        let trigger = Some(at);
        pipeline.fold(vec![Update { event, trigger }]);
        assert_eq!(pipeline.settle(), [(IpFamily::V4, at)]);
        pipeline.advance_now().unwrap().sync
    };
    // A slice without ports changes no Service port: nothing is programmed, nothing observed.
    assert_eq!(fold(&mut pipeline, slice(1)), None);
    fake.answer(retry(Duration::from_secs(1)));
    let change = ClusterEvent::SliceUpserted(with_port(slice(1)));
    assert_eq!(fold(&mut pipeline, change), None);
    let sync = pipeline.advance_now().unwrap().sync.unwrap();
    assert_eq!(sync.triggers, [(IpFamily::V4, at)]);
    assert!(sync.whole);
}

/// The slice of an event, with the port that Service `a` wants.
fn with_port(event: ClusterEvent) -> proxy_model::EndpointSlice {
    let ClusterEvent::SliceUpserted(mut slice) = event else {
        panic!("{event:?}")
    };
    slice.ports = vec![proxy_model::SlicePort {
        name: "".into(),
        protocol: proxy_model::Protocol::Tcp,
        port: 8080,
    }];
    slice
}

#[test]
fn what_is_settled_is_not_lost_on_a_backend_that_does_not_take_it_at_once() {
    let fake = Fake::default();
    let mut pipeline = pipeline(&fake);
    let settle = |pipeline: &mut Pipeline, event| {
        let trigger = None;
        pipeline.fold(vec![Update { event, trigger }]);
        pipeline.settle();
    };
    pipeline.take(vec![upsert("a", 1)]).unwrap();
    fake.calls();
    settle(&mut pipeline, upsert("b", 2));
    // The state is there, and not in force: nothing can be compared with it.
    assert_eq!(pipeline.state().services.len(), 2);
    assert!(!pipeline.in_force());
    assert!(pipeline.repair_all().is_none());
    // Nothing new, so the change stays what it was.
    pipeline.settle();
    pipeline.advance_now().unwrap();
    assert_eq!(fake.calls(), [call(false, &["+b"])]);
    assert!(pipeline.in_force());
    // Two changes, of which the second undoes a part of the first.
    settle(&mut pipeline, upsert("c", 3));
    settle(&mut pipeline, delete("c"));
    pipeline.advance_now().unwrap();
    assert_eq!(fake.calls(), [call(true, &["+a", "+b"])]);
    // While the backend fails, the state goes on.
    fake.answer(retry(Duration::from_secs(1)));
    pipeline.take(vec![upsert("d", 4)]).unwrap();
    settle(&mut pipeline, upsert("e", 5));
    assert_eq!(pipeline.state().services.len(), 4);
    pipeline.advance_now().unwrap();
    let all = ["+a", "+b", "+d", "+e"];
    assert_eq!(fake.calls(), [call(false, &["+d"]), call(true, &all)]);
}

#[test]
fn what_is_owed_besides_the_state_waits_until_that_is_in_force() {
    let fake = Fake::default();
    let mut pipeline = pipeline(&fake);
    pipeline.tend();
    fake.answer(retry(Duration::from_secs(1)));
    pipeline.take(vec![upsert("a", 1)]).unwrap();
    pipeline.tend();
    assert!(fake.tended().is_empty(), "nothing is in force");
    pipeline.take(vec![]).unwrap();
    pipeline.tend();
    assert_eq!(fake.tended(), [1]);
}

#[test]
fn a_repair_is_counted_and_logged_and_one_that_fails_is_a_sync_to_be_made() {
    let fake = Fake::default();
    let mut pipeline = pipeline(&fake);
    let differs = Difference {
        object: "SETS 3".to_owned(),
        kind: DifferenceKind::Missing,
        service: None,
        wanted: Some("count 1".to_owned()),
        found: None,
    };
    fake.repair(Ok(vec![differs.clone()]));
    // Nothing was synced yet: the first sync looks at everything itself.
    assert!(pipeline.repair_all().is_none());
    pipeline.take(vec![upsert("a", 1)]).unwrap();
    let mut repaired = Vec::new();
    let lines = logged(|| repaired = pipeline.repair_all().unwrap().differences);
    assert_eq!(repaired, [("fake", vec![differs])]);
    assert_eq!(
        lines,
        ["WARN|repaired|SETS 3", "WARN|kernel state repaired"]
    );
    assert_eq!(logged(|| drop(pipeline.repair_all())), [""; 0]);
    fake.repair(Err(fake::retry("reading SETS: interrupted")));
    let repair = pipeline.repair_all().unwrap();
    assert_eq!(repair.failed, ["fake"]);
    assert!(pipeline.due().is_some() && !pipeline.in_force());
    fake.calls();
    pipeline.advance_now().unwrap();
    assert_eq!(fake.calls(), [call(true, &["+a"])]);
    assert!(pipeline.in_force());
}

#[test]
fn while_nothing_is_synced_what_events_touched_is_not_piled_up() {
    let fake = Fake::default();
    let mut pipeline = pipeline(&fake);
    let events = (0..=MOST_UNSETTLED).map(|number| {
        let number = u8::try_from(number % 200).unwrap();
        let event = slice(number);
        Update {
            event: ClusterEvent::SliceUpserted(with_port(event)),
            trigger: Some(SystemTime::UNIX_EPOCH),
        }
    });
    pipeline.fold(vec![Update {
        event: upsert("a", 1),
        trigger: None,
    }]);
    assert!(pipeline.state().services.is_empty());
    pipeline.fold(events.collect());
    // Up to date, and still nothing is programmed.
    assert_eq!(pipeline.state().services.len(), 1);
    assert_eq!(fake.calls(), []);
    assert_eq!(pipeline.settle().len(), 10_000);
    let advance = pipeline.advance_now().unwrap();
    assert_eq!(fake.calls(), [call(true, &["+a"])]);
    assert_eq!(advance.events, 2 + MOST_UNSETTLED as u64);
    assert_eq!(advance.sync.unwrap().triggers.len(), 10_000);
    assert_eq!(pipeline.revision(), 1);
}
