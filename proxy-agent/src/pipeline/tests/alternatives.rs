//! Backends that take the place of a layer that can never serve.

use std::{collections::VecDeque, sync::Mutex};

use super::*;
use crate::backend::choice::fixtures::lacking;

/// Backends that a test gave, and what was asked of them.
#[derive(Clone, Default)]
struct FakeAlternatives {
    /// What takes the place of the next layer that cannot serve: a backend, or nothing. When they
    /// are used up, the node cannot do without.
    next: Arc<Mutex<VecDeque<Option<Fake>>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FakeAlternatives {
    fn with(next: impl IntoIterator<Item = Option<Fake>>) -> Self {
        Self {
            next: Arc::new(Mutex::new(next.into_iter().collect())),
            ..Self::default()
        }
    }

    fn note(&self, what: String) {
        self.asked.lock().unwrap().push(what);
    }

    /// What was asked since the last time.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl Alternatives for FakeAlternatives {
    fn instead(&mut self, name: &str, reason: &str) -> Result<Instead, NoneLeft> {
        self.note(format!("instead of {name}: {reason}"));
        let Some(next) = self.next.lock().unwrap().pop_front() else {
            return Err(NoneLeft::Required {
                reason: format!("none is left: {reason}"),
            });
        };
        Ok(Instead {
            backend: next.map(|fake| -> Box<dyn Backend> { Box::new(fake) }),
            choice: lacking(&[]),
        })
    }

    fn retire_all_but(&mut self, names: &[&'static str]) {
        self.note(format!("{} serve", names.join(" over ")));
    }
}

fn pipeline(layers: &[&Fake], alternatives: &FakeAlternatives) -> Pipeline {
    start_log();
    fake::pipeline(layers).with_alternatives(Some(Box::new(alternatives.clone())))
}

fn fatal(reason: &str) -> Result<SyncReport, SyncError> {
    Err(SyncError::Fatal {
        cause: FatalCause::Host,
        reason: reason.to_owned(),
    })
}

#[test]
fn where_this_host_lets_one_not_serve_the_next_one_does() {
    let [first, second, third] = ["first", "second", "third"].map(Fake::named);
    let alternatives = FakeAlternatives::with([Some(second.clone()), Some(third.clone())]);
    first.answer(fatal("attaching: denied"));
    second.answer(fatal("no tables"));
    let mut pipeline = pipeline(&[&first], &alternatives);
    assert_eq!(pipeline.take(vec![upsert("a", 1)]).unwrap(), None);
    for fake in [first, second, third.clone()] {
        assert_eq!(fake.calls(), [call(true, &["+a"])]);
    }
    let expected = [
        "instead of first: attaching: denied",
        "instead of second: no tables",
        "third serve",
    ];
    assert_eq!(alternatives.asked(), expected);
    assert!(pipeline.in_force());
    pipeline.take(vec![upsert("b", 2)]).unwrap();
    assert_eq!(third.calls(), [call(false, &["+b"])]);
    assert_eq!(alternatives.asked(), [""; 0]);
}

#[test]
fn where_a_layer_cannot_serve_and_none_is_left_for_it_the_others_go_on() {
    let [above, beneath] = ["above", "beneath"].map(Fake::named);
    for (fails, serves) in [(&above, &beneath), (&beneath, &above)] {
        let alternatives = FakeAlternatives::with([None]);
        let mut pipeline = pipeline(&[&above, &beneath], &alternatives);
        assert_eq!(pipeline.take(vec![upsert("a", 1)]).unwrap(), None);
        fails.answer(fatal("lost its rights"));
        drop((above.calls(), beneath.calls()));
        pipeline.take(vec![upsert("b", 2)]).unwrap();
        assert!(pipeline.in_force());
        assert_eq!(serves.calls(), [call(false, &["+b"])]);
        let names: Vec<_> = pipeline.layers().map(Layer::name).collect();
        assert_eq!(names.len(), 1);
        let expected = [
            "above over beneath serve".to_owned(),
            format!(
                "instead of {}: lost its rights",
                if names[0] == "above" {
                    "beneath"
                } else {
                    "above"
                }
            ),
            format!("{} serve", names[0]),
        ];
        assert_eq!(alternatives.asked(), expected);
        drop((above.calls(), beneath.calls()));
    }
}

#[test]
fn where_this_host_lets_one_not_serve_any_more_the_next_one_does() {
    let [first, second] = ["first", "second"].map(Fake::named);
    let alternatives = FakeAlternatives::with([Some(second.clone())]);
    let mut pipeline = pipeline(&[&first], &alternatives);
    assert_eq!(pipeline.take(vec![upsert("a", 1)]).unwrap(), None);
    // A repair finds out, between two changes.
    first.repair(fatal("reading the table: denied").map(|_| Vec::new()));
    first.answer(fatal("writing: denied"));
    let now = Instant::now();
    let repair = pipeline.repair(Which::All, now).unwrap();
    assert_eq!((repair.failed, pipeline.due()), (vec!["first"], Some(now)));
    let failure = pipeline.layers().next().unwrap().failure();
    assert_eq!(failure, Some("reading the table: denied"));
    let advance = pipeline.advance(now).unwrap();
    assert!(advance.chosen.is_some() && advance.sync.is_some());
    assert_eq!(second.calls(), [call(true, &["+a"])]);
    assert!(pipeline.in_force());
    let expected = [
        "first serve",
        "instead of first: writing: denied",
        "second serve",
    ];
    assert_eq!(alternatives.asked(), expected);
    // Where there is none, it ends with the next sync.
    second.repair(fatal("reading the table: denied").map(|_| Vec::new()));
    second.answer(fatal("writing: denied"));
    assert!(pipeline.repair_all().is_some());
    let fatal = pipeline.advance_now().unwrap_err();
    assert_eq!(fatal.cause, FatalCause::Host);
    assert_eq!(fatal.reason, "none is left: writing: denied");
}

#[test]
fn what_others_left_stays_until_every_layer_serves() {
    let [above, beneath] = ["above", "beneath"].map(Fake::named);
    let alternatives = FakeAlternatives::default();
    beneath.answer(retry(Duration::from_secs(1)));
    let mut pipeline = pipeline(&[&above, &beneath], &alternatives);
    assert!(pipeline.take(vec![upsert("a", 1)]).unwrap().is_some());
    assert_eq!(above.calls(), [call(true, &["+a"])]);
    assert_eq!(alternatives.asked(), [""; 0]);
    pipeline.take(vec![]).unwrap();
    assert_eq!(alternatives.asked(), ["above over beneath serve"]);
}

#[test]
fn where_none_is_left_the_error_tells_of_all() {
    let first = Fake::default();
    first.answer(fatal("attaching: denied"));
    let alternatives = FakeAlternatives::default();
    let mut pipeline = pipeline(&[&first], &alternatives);
    let fatal = pipeline.take(vec![]).unwrap_err();
    assert_eq!(fatal.cause, FatalCause::Host);
    assert_eq!(fatal.reason, "none is left: attaching: denied");
}
