//! Backends that take the place of one that cannot, or that lacks what Services need.

use std::{collections::VecDeque, sync::Mutex};

use super::*;
use crate::backend::choice::Choice;

/// Backends that a test gave, and what was asked of them.
#[derive(Clone, Default)]
struct FakeAlternatives {
    better: Arc<Mutex<VecDeque<Fake>>>,
    next: Arc<Mutex<VecDeque<Fake>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FakeAlternatives {
    fn note(&self, what: String) {
        self.asked.lock().unwrap().push(what);
    }

    /// What was asked since the last time.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl Alternatives for FakeAlternatives {
    fn better(&mut self, wanting: Wanting) -> Option<Box<dyn Backend>> {
        self.note(format!("better: {wanting}"));
        let better = self.better.lock().unwrap().pop_front();
        better.map(|fake| -> Box<dyn Backend> { Box::new(fake) })
    }

    fn instead(&mut self, reason: &str) -> Result<Box<dyn Backend>, NoneLeft> {
        self.note(format!("instead: {reason}"));
        match self.next.lock().unwrap().pop_front() {
            Some(fake) => Ok(Box::new(fake)),
            None => Err(NoneLeft::Only {
                reason: format!("none is left: {reason}"),
            }),
        }
    }

    fn retire_others(&mut self, name: &str) {
        self.note(format!("{name} serves"));
    }

    fn chosen(&mut self, _: &str) -> Option<Choice> {
        None
    }
}

fn pipeline(fake: &Fake, alternatives: &FakeAlternatives) -> Pipeline {
    start_log();
    let pipeline = fake.pipeline_with(Demand::Everything);
    pipeline.with_alternatives(Some(Box::new(alternatives.clone())))
}

fn fatal(reason: &str) -> Result<SyncReport, SyncError> {
    Err(SyncError::Fatal {
        cause: FatalCause::Host,
        reason: reason.to_owned(),
    })
}

fn sctp(event: ClusterEvent) -> ClusterEvent {
    let ClusterEvent::ServiceUpserted(mut service) = event else {
        panic!("{event:?}")
    };
    service.ports[0].protocol = proxy_model::Protocol::Sctp;
    ClusterEvent::ServiceUpserted(service)
}

#[test]
fn where_this_host_lets_one_not_serve_the_next_one_does() {
    let (first, second, third) = (Fake::default(), Fake::default(), Fake::default());
    let alternatives = FakeAlternatives::default();
    alternatives
        .next
        .lock()
        .unwrap()
        .extend([second.clone(), third.clone()]);
    first.answer(fatal("attaching: denied"));
    second.answer(fatal("no tables"));
    let mut pipeline = pipeline(&first, &alternatives);
    assert_eq!(pipeline.take(vec![upsert("a", 1)]).unwrap(), None);
    for fake in [first, second, third.clone()] {
        assert_eq!(fake.calls(), [call(true, &["+a"])]);
    }
    let expected = [
        "instead: attaching: denied",
        "instead: no tables",
        "fake serves",
    ];
    assert_eq!(alternatives.asked(), expected);
    assert!(pipeline.in_force());
    pipeline.take(vec![upsert("b", 2)]).unwrap();
    assert_eq!(third.calls(), [call(false, &["+b"])]);
    assert_eq!(alternatives.asked(), [""; 0]);
}

#[test]
fn where_this_host_lets_one_not_serve_any_more_the_next_one_does() {
    let (first, second) = (Fake::default(), Fake::default());
    let alternatives = FakeAlternatives::default();
    alternatives.next.lock().unwrap().push_back(second.clone());
    let mut pipeline = pipeline(&first, &alternatives);
    assert_eq!(pipeline.take(vec![upsert("a", 1)]).unwrap(), None);
    // A repair finds out, between two changes.
    first.repair(fatal("reading the table: denied").map(|_| Vec::new()));
    first.answer(fatal("writing: denied"));
    let repair = pipeline.repair().unwrap().unwrap();
    assert_eq!(repair.retry, Some(Duration::ZERO));
    assert_eq!(pipeline.failure(), Some("reading the table: denied"));
    assert_eq!(pipeline.advance().unwrap().retry(), None);
    assert_eq!(second.calls(), [call(true, &["+a"])]);
    assert!(pipeline.in_force());
    let expected = ["fake serves", "instead: writing: denied", "fake serves"];
    assert_eq!(alternatives.asked(), expected);
    // Where there is none, it ends with the next sync.
    second.repair(fatal("reading the table: denied").map(|_| Vec::new()));
    second.answer(fatal("writing: denied"));
    assert!(pipeline.repair().unwrap().is_some());
    let fatal = pipeline.advance().unwrap_err();
    assert_eq!(fatal.cause, FatalCause::Host);
    assert_eq!(fatal.reason, "none is left: writing: denied");
}

#[test]
fn the_next_one_may_need_several_attempts() {
    let (first, second) = (Fake::default(), Fake::default());
    let alternatives = FakeAlternatives::default();
    alternatives.next.lock().unwrap().push_back(second.clone());
    first.answer(fatal("attaching: denied"));
    second.answer(retry(Duration::from_secs(1)));
    let mut pipeline = pipeline(&first, &alternatives);
    assert!(pipeline.take(vec![upsert("a", 1)]).unwrap().is_some());
    assert_eq!(alternatives.asked(), ["instead: attaching: denied"]);
    assert_eq!(pipeline.advance().unwrap().retry(), None);
    assert_eq!(alternatives.asked(), ["fake serves"]);
    assert_eq!(second.calls(), [call(true, &["+a"]), call(true, &["+a"])]);
}

#[test]
fn where_none_is_left_the_error_tells_of_all() {
    let first = Fake::default();
    first.answer(fatal("attaching: denied"));
    let alternatives = FakeAlternatives::default();
    let fatal = pipeline(&first, &alternatives).take(vec![]).unwrap_err();
    assert_eq!(fatal.cause, FatalCause::Host);
    assert_eq!(fatal.reason, "none is left: attaching: denied");
}

#[test]
fn one_that_does_more_and_fails_keeps_nobody_from_what_can_be_served() {
    let (first, better) = (Fake::lacking(&[Capability::Sctp]), Fake::default());
    let alternatives = FakeAlternatives::default();
    let failures = PATIENCE as usize + 1;
    for _ in 0..failures {
        better.answer(retry(Duration::from_secs(1)));
        alternatives
            .better
            .lock()
            .unwrap()
            .push_back(better.clone());
    }
    let mut pipeline = pipeline(&first, &alternatives);
    let mut retry = pipeline
        .take(vec![upsert("a", 1), sctp(upsert("b", 2))])
        .unwrap();
    for _ in 1..failures {
        assert!(retry.is_some() && first.calls().is_empty());
        retry = pipeline.advance().unwrap().retry();
    }
    assert_eq!(retry, None);
    assert_eq!(better.calls().len(), failures);
    assert_eq!(first.calls(), [call(true, &["+a", "+b"])]);
    assert_eq!(alternatives.asked().last().unwrap(), "fake serves");
}

#[test]
fn one_that_does_more_is_looked_for_again() {
    let (first, better) = (Fake::lacking(&[Capability::Sctp]), Fake::default());
    let alternatives = FakeAlternatives::default();
    let mut pipeline = pipeline(&first, &alternatives);
    pipeline.take(vec![sctp(upsert("b", 2))]).unwrap();
    assert_eq!(
        alternatives.asked(),
        ["better: shop/b/SCTP/IPv4 needs sctp", "fake serves"]
    );
    // Not with every change, and nothing is said again.
    let told = logged(|| assert!(pipeline.take(vec![upsert("a", 1)]).is_ok()));
    assert!(
        !told.iter().any(|line| line.contains("suffice")),
        "{told:?}"
    );
    assert_eq!(alternatives.asked(), [""; 0]);
    assert!(!pipeline.looks_again());

    pipeline.changeover.looked_long_ago();
    assert!(pipeline.looks_again());
    alternatives
        .better
        .lock()
        .unwrap()
        .push_back(better.clone());
    // Nothing has changed.
    assert_eq!(pipeline.advance().unwrap().retry(), None);
    assert_eq!(
        alternatives.asked(),
        ["better: shop/b/SCTP/IPv4 needs sctp", "fake serves"]
    );
    assert_eq!(better.calls(), [call(true, &["+a", "+b"])]);
    assert!(pipeline.suffices() && !pipeline.looks_again());
}

#[test]
fn another_backend_closes_the_gaps_of_the_one_before_and_the_log_says_so() {
    let first = Fake::lacking(&[Capability::Sctp]);
    let better = Fake::lacking(&[Capability::LoopbackNodePorts]);
    let alternatives = FakeAlternatives::default();
    alternatives
        .better
        .lock()
        .unwrap()
        .push_back(better.clone());
    let mut pipeline = pipeline(&first, &alternatives);
    let told = logged(|| assert!(pipeline.take(vec![sctp(upsert("b", 2))]).is_ok()));
    let about = |line: &&String| line.contains("capability gap");
    let told: Vec<_> = told.iter().filter(about).collect();
    let text = Capability::Sctp.without();
    let expected = [
        &format!("WARN|capability gap|shop/b/SCTP/IPv4|sctp|{text}"),
        "INFO|capability gap closed|shop/b/SCTP/IPv4|sctp",
    ];
    assert_eq!(told, expected);
    let open = pipeline.gaps().filter(|(_, count)| *count > 0);
    assert_eq!(open.count(), 0);
}
