//! A backend that does what a test says and remembers what it was asked.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use proxy_model::{
    Backend, Capability, Change, ChangeSet, Difference, Model, NodeState, RepairReport, SyncError,
    SyncReport,
};

use super::Pipeline;

/// One call of `sync`: whether the change was whole, and what it named.
pub type Call = (bool, Vec<String>);

/// What a repair mended, or why it failed.
pub type Mended = Result<Vec<Difference>, String>;

/// Answers with what was put in, then with success.
#[derive(Clone, Default)]
pub struct Fake {
    calls: Arc<Mutex<Vec<Call>>>,
    answers: Arc<Mutex<VecDeque<Result<SyncReport, SyncError>>>>,
    repairs: Arc<Mutex<VecDeque<Mended>>>,
}

impl Fake {
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

    /// A pipeline of node-a with this backend.
    pub fn pipeline(&self) -> Pipeline<Self> {
        Pipeline::new(Model::new("node-a"), self.clone())
    }
}

impl Backend for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn lacks(&self) -> &'static [Capability] {
        &[]
    }

    fn sync(&mut self, _: &NodeState, change: &ChangeSet) -> Result<SyncReport, SyncError> {
        let name = |change: &Change| match change {
            Change::Upsert { key, .. } => format!("+{}", key.service.name),
            Change::Delete { key } => format!("-{}", key.service.name),
        };
        let names = change.changes.iter().map(name).collect();
        self.calls.lock().unwrap().push((change.whole, names));
        let answer = self.answers.lock().unwrap().pop_front();
        answer.unwrap_or_else(|| Ok(SyncReport::default()))
    }

    fn differences(&mut self, _: &NodeState) -> Result<Vec<Difference>, SyncError> {
        Ok(Vec::new())
    }

    fn repair(&mut self, _: &NodeState) -> Result<RepairReport, SyncError> {
        match self.repairs.lock().unwrap().pop_front() {
            None => Ok(RepairReport::default()),
            Some(Ok(repaired)) => Ok(RepairReport {
                writes: repaired.len(),
                repaired,
                failures: vec![],
                problems: vec![],
            }),
            Some(Err(reason)) => Err(SyncError::Retry {
                reason,
                after: Duration::from_secs(1),
            }),
        }
    }
}
