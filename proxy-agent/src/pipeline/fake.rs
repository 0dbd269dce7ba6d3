//! A backend that does what a test says and remembers what it was asked.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use proxy_model::{
    Backend, Capability, Change, ChangeSet, CompareError, Difference, Model, NodeState,
    PacketLayer, Problem, RepairReport, SyncError, SyncReport,
};

use super::Pipeline;

/// What failed and may be tried again after a second.
pub fn retry(reason: &str) -> SyncError {
    SyncError::Retry {
        reason: reason.to_owned(),
        after: Duration::from_secs(1),
    }
}

/// One call of `sync`: whether the change was whole, and what it named.
pub type Call = (bool, Vec<String>);

/// What a repair mended, or what became of it.
pub type Mended = Result<Vec<Difference>, SyncError>;

/// Answers with what was put in, then with success.
#[derive(Clone)]
pub struct Fake {
    name: &'static str,
    calls: Arc<Mutex<Vec<Call>>>,
    answers: Arc<Mutex<VecDeque<Result<SyncReport, SyncError>>>>,
    repairs: Arc<Mutex<VecDeque<Mended>>>,
    lacks: &'static [Capability],
    gates: Arc<Mutex<VecDeque<Gate>>>,
    /// How many Services there were each time that it was tended.
    tended: Arc<Mutex<Vec<usize>>>,
    /// Whether somebody else was at what it wrote.
    disturbed: Arc<AtomicBool>,
    /// What it was told of what lies beneath.
    over: Arc<Mutex<Vec<PacketLayer>>>,
    /// What its repairs cannot mend.
    problems: Arc<Mutex<Vec<Problem>>>,
}

impl Default for Fake {
    fn default() -> Self {
        Self::named("fake")
    }
}

/// Where a sync stands still.
struct Gate {
    /// Says that it came.
    entered: Sender<()>,
    /// Ends when it may go on.
    released: Receiver<()>,
}

/// A sync, or repair, that stands still until this is dropped.
pub struct Held {
    entered: Receiver<()>,
    _released: Sender<()>,
}

impl Held {
    /// Waits until the sync has begun.
    pub fn entered(&self) {
        self.entered
            .recv_timeout(Duration::from_secs(30))
            .expect("a sync should begin");
    }
}

impl Fake {
    /// One with a name, which lacks nothing.
    pub fn named(name: &'static str) -> Self {
        Self {
            name,
            calls: Arc::default(),
            answers: Arc::default(),
            repairs: Arc::default(),
            lacks: &[],
            gates: Arc::default(),
            tended: Arc::default(),
            disturbed: Arc::default(),
            over: Arc::default(),
            problems: Arc::default(),
        }
    }

    /// The same, which lacks `lacks`.
    pub fn lacking(self, lacks: &'static [Capability]) -> Self {
        Self { lacks, ..self }
    }

    /// Somebody else is at what it wrote.
    pub fn disturb(&self) {
        self.disturbed.store(true, Ordering::Relaxed);
    }

    /// From now on, its repairs cannot mend these.
    pub fn cannot_mend(&self, problems: Vec<Problem>) {
        *self.problems.lock().unwrap() = problems;
    }

    /// What it was told of what lies beneath, since the last time.
    pub fn over(&self) -> Vec<PacketLayer> {
        std::mem::take(&mut self.over.lock().unwrap())
    }

    /// Makes the next sync or repair stand still.
    pub fn hold(&self) -> Held {
        let (entered_, entered) = channel();
        let (released_, released) = channel();
        let mut gates = self.gates.lock().unwrap();
        gates.push_back(Gate {
            entered: entered_,
            released,
        });
        Held {
            entered,
            _released: released_,
        }
    }

    /// What the next sync is answered.
    pub fn answer(&self, answer: Result<SyncReport, SyncError>) {
        self.answers.lock().unwrap().push_back(answer);
    }

    /// What the next repair is answered.
    pub fn repair(&self, answer: Mended) {
        self.repairs.lock().unwrap().push_back(answer);
    }

    /// The calls since the last time.
    pub fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    /// How many Services there were each time that it was tended, since the last time.
    pub fn tended(&self) -> Vec<usize> {
        std::mem::take(&mut self.tended.lock().unwrap())
    }

    /// A pipeline of node-a with this backend.
    pub fn pipeline(&self) -> Pipeline {
        pipeline(&[self])
    }
}

impl Fake {
    fn pass(&self) {
        let gate = self.gates.lock().unwrap().pop_front();
        if let Some(gate) = gate {
            gate.entered.send(()).unwrap();
            // An error: the other end is gone, which is what is waited for.
            assert!(gate.released.recv().is_err());
        }
    }
}

/// A pipeline of node-a with these layers, top first.
pub fn pipeline(layers: &[&Fake]) -> Pipeline {
    let boxed = |fake: &&Fake| -> Box<dyn Backend> { Box::new((*fake).clone()) };
    Pipeline::new(Model::new("node-a"), layers.iter().map(boxed).collect())
}

impl Backend for Fake {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lacks(&self) -> &'static [Capability] {
        self.lacks
    }

    fn sync(&mut self, _: &NodeState, change: &ChangeSet) -> Result<SyncReport, SyncError> {
        self.pass();
        let name = |change: &Change| match change {
            Change::Upsert { key, .. } => format!("+{}", key.service.name),
            Change::Delete { key } => format!("-{}", key.service.name),
        };
        let names = change.changes.iter().map(name).collect();
        self.calls.lock().unwrap().push((change.whole, names));
        let answer = self.answers.lock().unwrap().pop_front();
        answer.unwrap_or_else(|| Ok(SyncReport::default()))
    }

    fn differences(&mut self, _: &NodeState) -> Result<Vec<Difference>, CompareError> {
        Ok(Vec::new())
    }

    fn repair(&mut self, _: &NodeState) -> Result<RepairReport, SyncError> {
        self.pass();
        let repaired = self.repairs.lock().unwrap().pop_front();
        let repaired = repaired.unwrap_or_else(|| Ok(Vec::new()))?;
        Ok(RepairReport {
            writes: repaired.len(),
            repaired,
            failures: vec![],
            problems: self.problems.lock().unwrap().clone(),
        })
    }

    fn disturbed(&mut self) -> bool {
        self.disturbed.swap(false, Ordering::Relaxed)
    }

    fn lies_over(&mut self, beneath: PacketLayer) -> bool {
        self.over.lock().unwrap().push(beneath);
        false
    }

    fn tend(&mut self, state: &NodeState) {
        self.tended.lock().unwrap().push(state.services.len());
    }
}
