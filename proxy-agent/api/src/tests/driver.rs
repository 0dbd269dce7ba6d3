//! A whole backend, driven by a brain.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use proxy_model::{Backend, Capability, ChangeSet, FatalCause, NodeState, SyncError, SyncReport};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use super::{
    brain::{Brain, Place, options, soon},
    states,
};
use crate::{
    Batch, Token,
    driver::{BatchSink, DriverError, DriverOptions, Replicating, Stopped, run},
};

/// What a backend was asked to do.
#[derive(Debug, PartialEq)]
struct Asked {
    whole: bool,
    changes: usize,
    state: NodeState,
}

type Answer = Result<SyncReport, SyncError>;

/// Notes what it is asked, and answers what it was given, then success.
#[derive(Clone)]
struct Recording {
    asked: mpsc::UnboundedSender<Asked>,
    answers: Arc<Mutex<Vec<Answer>>>,
}

impl Backend for Recording {
    fn name(&self) -> &'static str {
        "recording"
    }

    fn lacks(&self) -> &'static [Capability] {
        &[Capability::Affinity]
    }

    fn sync(&mut self, state: &NodeState, change: &ChangeSet) -> Answer {
        let asked = Asked {
            whole: change.whole,
            changes: change.changes.len(),
            state: state.clone(),
        };
        self.asked.send(asked).unwrap();
        let next = self.answers.lock().unwrap().pop();
        next.unwrap_or_else(|| Ok(SyncReport::default()))
    }
}

/// A driver that runs, and what its backend was asked.
struct Driven {
    asked: mpsc::UnboundedReceiver<Asked>,
    answers: Arc<Mutex<Vec<Answer>>>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<Stopped, DriverError>>,
}

impl Driven {
    fn start(options: DriverOptions) -> Self {
        let (sender, asked) = mpsc::unbounded_channel();
        let answers = Arc::default();
        let backend = Recording {
            asked: sender,
            answers: Arc::clone(&answers),
        };
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(run(Replicating::new(backend), options, async {
            // Also when the test is over.
            drop(stopped.await);
        }));
        Self {
            asked,
            answers,
            stop,
            task,
        }
    }

    async fn next(&mut self) -> Asked {
        soon(self.asked.recv()).await.unwrap()
    }

    async fn stop(self) -> Option<Token> {
        self.stop.send(()).unwrap();
        soon(self.task).await.unwrap().unwrap().token
    }
}

fn driven_by(brain: &Brain) -> DriverOptions {
    DriverOptions {
        client: options(brain.path.clone(), "recording"),
        resume: None,
        once: false,
        repair_every: None,
    }
}

/// Until the brain knows that `applied` is in force.
async fn until_applied(brain: &Brain, applied: u64) {
    soon(async {
        while brain
            .publisher
            .clients()
            .first()
            .and_then(|one| one.applied)
            != Some(applied)
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_backend_is_kept_up_to_date_and_the_brain_is_told() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    let mut driven = Driven::start(driven_by(&brain));
    for (version, whole, changes) in [(1, true, 2), (2, false, 2)] {
        brain.publish(&states::numbered(2, version));
        let asked = driven.next().await;
        let state = states::numbered(2, version);
        assert_eq!(
            asked,
            Asked {
                whole,
                changes,
                state
            }
        );
        until_applied(&brain, version.into()).await;
    }
    assert_eq!(driven.stop().await, Some(brain.publisher.token()));
}

#[tokio::test]
async fn what_failed_is_tried_again_as_a_whole_also_without_a_brain() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    let mut driven = Driven::start(driven_by(&brain));
    brain.publish(&states::numbered(2, 1));
    driven.next().await;
    until_applied(&brain, 1).await;
    let failed = || {
        Err(SyncError::Retry {
            reason: "no memory".to_owned(),
            after: Duration::from_millis(1),
        })
    };
    driven.answers.lock().unwrap().extend([failed(), failed()]);
    brain.publish(&states::numbered(3, 2));
    assert!(!driven.next().await.whole);
    brain.kill().await;
    for _ in 0..2 {
        let again = driven.next().await;
        assert!(again.whole);
        assert_eq!(again.state, states::numbered(3, 2));
    }
    driven.stop().await.unwrap();
}

#[tokio::test]
async fn what_fails_does_not_keep_the_cure_away() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    let mut driven = Driven::start(driven_by(&brain));
    let never_again = Err(SyncError::Retry {
        reason: "this one cannot be programmed".to_owned(),
        after: Duration::from_hours(1),
    });
    driven.answers.lock().unwrap().push(never_again);
    brain.publish(&states::numbered(3, 1));
    driven.next().await;
    soon(async {
        while brain
            .publisher
            .clients()
            .iter()
            .all(|one| one.error.is_none())
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    brain.publish(&states::numbered(2, 1));
    let cured = driven.next().await;
    assert!(cured.whole);
    assert_eq!(cured.state, states::numbered(2, 1));
    until_applied(&brain, 2).await;
}

#[tokio::test]
async fn failures_are_reported_with_their_service() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    let mut driven = Driven::start(driven_by(&brain));
    let failure = states::failure("full");
    driven.answers.lock().unwrap().push(Ok(SyncReport {
        writes: 0,
        failures: vec![failure.clone()],
    }));
    brain.publish(&states::numbered(2, 1));
    driven.next().await;
    until_applied(&brain, 1).await;
    let known = brain.publisher.clients().remove(0);
    assert_eq!(known.failures, std::slice::from_ref(&failure));
    // What is nothing for a backend leaves it as it is.
    let mut state = states::numbered(2, 1);
    state.node.name = "node-a".into();
    brain.publish(&state);
    until_applied(&brain, 2).await;
    let known = brain.publisher.clients().remove(0);
    assert_eq!(known.failures, [failure]);
    assert_eq!(
        known.lacks,
        [Capability::Sctp],
        "as the client was told to say"
    );
}

#[tokio::test]
async fn a_backend_that_cannot_go_on_ends_the_driver_and_the_brain_knows_why() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    let mut driven = Driven::start(driven_by(&brain));
    driven.answers.lock().unwrap().push(Err(SyncError::Fatal {
        cause: FatalCause::Host,
        reason: "no such kernel".to_owned(),
    }));
    brain.publish(&states::numbered(2, 1));
    driven.next().await;
    let error = soon(driven.task).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "no such kernel");
    let known = brain.publisher.clients().remove(0);
    assert_eq!(known.error.as_deref(), Some("no such kernel"));
    assert_eq!(known.applied, Some(0));
}

#[tokio::test]
async fn a_brain_that_comes_back_disturbs_nothing() {
    let place = Place::new();
    let path = place.socket("brain");
    let brain = Brain::start(path.clone()).await;
    let mut driven = Driven::start(driven_by(&brain));
    brain.publish(&states::numbered(3, 1));
    driven.next().await;
    brain.kill().await;
    let brain = Brain::start(path).await;
    brain.publish(&states::numbered(3, 1));
    until_applied(&brain, 1).await;
    let mut changed = states::numbered(3, 1);
    changed.services.remove(&states::first_key());
    brain.publish(&changed);
    let asked = driven.next().await;
    assert_eq!(
        (asked.whole, asked.changes),
        (false, 1),
        "nothing came of the same state"
    );
    driven.stop().await.unwrap();
}

#[tokio::test]
async fn once_brings_one_state_into_force_and_tells_where_to_go_on() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    brain.publish(&states::numbered(2, 1));
    let once = DriverOptions {
        once: true,
        ..driven_by(&brain)
    };
    let mut driven = Driven::start(once.clone());
    assert!(driven.next().await.whole);
    let token = soon(driven.task).await.unwrap().unwrap().token;
    assert_eq!(token, Some(brain.publisher.token()));
    until_applied(&brain, 1).await;
    // The same state is no other one.
    let mut driven = Driven::start(DriverOptions {
        resume: token,
        ..once
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(driven.asked.try_recv().is_err());
    brain.publish(&states::numbered(2, 2));
    assert_eq!(driven.next().await.state, states::numbered(2, 2));
}

#[tokio::test]
async fn a_state_that_is_in_force_already_is_not_synced_again() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    brain.publish(&states::numbered(2, 1));
    let resume = Some(brain.publisher.token());
    let mut driven = Driven::start(DriverOptions {
        resume,
        ..driven_by(&brain)
    });
    until_applied(&brain, 1).await;
    brain.publish(&states::numbered(2, 2));
    let asked = driven.next().await;
    assert_eq!(asked.state, states::numbered(2, 2));
    assert!(asked.whole, "a backend that has just started knows nothing");
}

#[tokio::test]
async fn who_only_looks_on_reports_nothing() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    brain.publish(&states::numbered(2, 1));
    for once in [true, false] {
        let (sender, mut asked) = mpsc::unbounded_channel();
        let backend = Recording {
            asked: sender,
            answers: Arc::default(),
        };
        let options = DriverOptions {
            once,
            ..driven_by(&brain)
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(run(Replicating::looking_on(backend), options, async {
            drop(stopped.await);
        }));
        soon(asked.recv()).await.unwrap();
        if !once {
            // The next state comes after whatever came of the first.
            brain.publish(&states::numbered(2, 2));
            soon(asked.recv()).await.unwrap();
            drop(stop);
        }
        soon(task).await.unwrap().unwrap();
    }
    brain.until_nobody_is_served().await;
    assert_eq!(brain.publisher.clients(), []);
}

#[tokio::test]
async fn nobody_there_is_an_error_for_once() {
    let place = Place::new();
    let client = options(place.socket("nobody"), "one");
    let driven = Driven::start(DriverOptions {
        client,
        resume: None,
        once: true,
        repair_every: None,
    });
    let error = soon(driven.task).await.unwrap().unwrap_err().to_string();
    assert!(error.starts_with("cannot connect to unix://"), "{error}");
    assert!(error.contains("No such file"), "{error}");
}

/// Takes operations as they come.
struct PassingOn {
    batches: mpsc::UnboundedSender<Batch>,
    fail: bool,
}

impl BatchSink for PassingOn {
    fn name(&self) -> &'static str {
        "passing-on"
    }

    fn lacks(&self) -> &[Capability] {
        &[]
    }

    fn apply(&mut self, batch: Batch) -> Result<SyncReport, SyncError> {
        self.batches.send(batch).unwrap();
        if std::mem::take(&mut self.fail) {
            return Err(SyncError::Retry {
                reason: "once".to_owned(),
                after: Duration::from_millis(1),
            });
        }
        Ok(SyncReport::default())
    }
}

#[tokio::test]
async fn operations_are_passed_on_and_come_anew_after_a_failure() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    brain.publish(&states::numbered(2, 1));
    let resume = Some(brain.publisher.token());
    brain.publish(&states::numbered(3, 1));
    let (sender, mut batches) = mpsc::unbounded_channel();
    let sink = PassingOn {
        batches: sender,
        fail: true,
    };
    let options = DriverOptions {
        resume,
        ..driven_by(&brain)
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(run(sink, options, async { drop(stopped.await) }));
    let first = soon(batches.recv()).await.unwrap();
    assert_eq!(
        (first.reset, first.operations.len()),
        (false, 1),
        "it went on"
    );
    let second = soon(batches.recv()).await.unwrap();
    assert_eq!(
        (second.reset, second.operations.len()),
        (true, 4),
        "everything anew"
    );
    until_applied(&brain, 2).await;
    stop.send(()).unwrap();
    assert_eq!(soon(task).await.unwrap().unwrap().token, Some(second.token));
}
