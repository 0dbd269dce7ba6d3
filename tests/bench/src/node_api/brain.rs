//! The brain of the bench: a model, the node API, and a backend in the same process to compare
//! with. A process of its own, so that its CPU and memory are told apart from those of clients.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result};
use proxy_api::{
    Target, Trigger,
    server::{Listener, Publisher, SOCKET_MODE, serve},
};
use proxy_model::{
    Backend, Capability, ChangeSet, IpFamily, Model, NodeState, SyncError, SyncReport,
};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use super::super::{
    events::{self, NODE},
    orders::{self, now},
};

/// What the brain is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// To read a cluster of so many Services, and publish it. Answered with [`Filled`].
    Fill(u32),
    /// To replace one endpoint. Answered with [`Changed`].
    Change,
    /// To hand its backend the whole state, as a first call. Answered with how long that took.
    HandOver,
    /// To say how much memory it has allocated, in bytes.
    Allocated,
}

/// A cluster was read and published.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Filled {
    pub(super) revision: u64,
}

/// Moments of a change.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Changed {
    /// Which state it led to.
    pub(super) revision: u64,
    /// Before the model was told.
    pub(super) event: Duration,
    /// When the backend in this process had the change.
    pub(super) in_process: Duration,
    /// Before it was published.
    pub(super) published: Duration,
    /// After that: the owner of the state goes on.
    pub(super) done: Duration,
}

/// A backend that does nothing but look at the clock.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// When it had the last change.
    pub(super) had: Duration,
}

impl Backend for Clock {
    fn name(&self) -> &'static str {
        "clock"
    }

    fn lacks(&self) -> &'static [Capability] {
        &[]
    }

    fn sync(&mut self, _state: &NodeState, change: &ChangeSet) -> Result<SyncReport, SyncError> {
        self.had = now().unwrap_or_default();
        Ok(SyncReport {
            writes: change.changes.len(),
            failures: Vec::new(),
        })
    }
}

/// Hands over a change.
pub(super) fn hand_over(
    backend: &mut dyn Backend,
    state: &NodeState,
    change: &ChangeSet,
) -> Result<()> {
    let report = backend.sync(state, change);
    let report = report.context("a backend that only looks at the clock has failed")?;
    anyhow::ensure!(report.writes > 0, "nothing was handed over");
    Ok(())
}

/// The process: listens on `socket` and obeys.
pub(in super::super) fn brain(socket: &Path) -> Result<()> {
    let runtime = runtime()?;
    let publisher = Publisher::new(|_| {});
    let target = Target::Unix(socket.to_owned());
    let listener = runtime.block_on(Listener::open(target, SOCKET_MODE, None))?;
    runtime.spawn(serve(publisher.clone(), listener));
    let mut brain = Brain {
        publisher,
        model: Model::new(NODE),
        backend: Clock::default(),
        services: 0,
        turn: 0,
    };
    orders::obey(|order| brain.obey(&order))
}

/// As many threads as the agent has.
pub(super) fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")
}

struct Brain {
    publisher: Publisher,
    model: Model,
    backend: Clock,
    services: u32,
    turn: u32,
}

impl Brain {
    fn obey(&mut self, order: &Order) -> Result<serde_json::Value> {
        let answer = match order {
            Order::Fill(services) => serde_json::to_value(self.fill(*services)),
            Order::Change => serde_json::to_value(self.change()?),
            Order::HandOver => serde_json::to_value(self.hand_over()?),
            Order::Allocated => serde_json::to_value(allocated()),
        };
        answer.context("cannot encode an answer")
    }

    fn fill(&mut self, services: u32) -> Filled {
        for event in events::cluster(services) {
            self.model.apply(event);
        }
        self.services = services;
        self.model.update();
        self.publisher.publish(self.model.state(), Vec::new());
        Filled {
            revision: self.publisher.revision(),
        }
    }

    fn change(&mut self) -> Result<Changed> {
        let slice = events::replaced(self.turn, self.services);
        self.turn += 1;
        let trigger = Trigger {
            family: IpFamily::V4,
            at: std::time::SystemTime::now(),
        };
        let event = now()?;
        self.model.apply(slice);
        let change = self.model.update();
        hand_over(&mut self.backend, self.model.state(), &change)?;
        let published = now()?;
        self.publisher.publish(self.model.state(), vec![trigger]);
        Ok(Changed {
            revision: self.publisher.revision(),
            event,
            in_process: self.backend.had,
            published,
            done: now()?,
        })
    }

    fn hand_over(&mut self) -> Result<Duration> {
        let began = now()?;
        let state = self.model.state().clone();
        hand_over(&mut self.backend, &state, &state.as_change_set())?;
        Ok(self.backend.had.saturating_sub(began))
    }
}

/// Bytes that this process has allocated and not freed.
fn allocated() -> u64 {
    #[expect(unsafe_code, reason = "the allocator's own call has no safe form")]
    // SAFETY: mallinfo2(3) has no preconditions and may be called from any thread.
    let info = unsafe { libc::mallinfo2() };
    // In arenas, and in mappings of their own.
    (info.uordblks + info.hblkhd) as u64
}
