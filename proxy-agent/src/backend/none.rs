//! What stands in the place of a backend in a brain: it programs nothing, so there is nothing that
//! it lacks. What the backends do that a brain serves, they tell themselves.

use proxy_model::{
    Backend, Capability, ChangeSet, CompareError, Difference, NodeState, RepairReport, SyncError,
    SyncReport,
};

use super::choice::{Cause, Choice};

/// The name, as `state` and metrics have it.
const NAME: &str = "none";

/// Programs nothing.
#[derive(Debug, Default)]
pub struct NoDataplane {
    /// Whether the log was told that there is a state.
    told: bool,
}

/// Why it is this one.
pub fn choice() -> Choice {
    Choice {
        mode: NAME,
        layers: vec![NAME],
        reason: "a brain programs nothing itself; backends in other processes do".to_owned(),
        cause: Cause::Nothing,
        lacks: Vec::new(),
        refused: Vec::new(),
    }
}

impl Backend for NoDataplane {
    fn name(&self) -> &'static str {
        NAME
    }

    fn lacks(&self) -> &'static [Capability] {
        &[]
    }

    fn sync(&mut self, state: &NodeState, _: &ChangeSet) -> Result<SyncReport, SyncError> {
        if !std::mem::replace(&mut self.told, true) {
            tracing::info!(backend = NAME, services = state.services.len(), "serving");
        }
        Ok(SyncReport::default())
    }

    fn differences(&mut self, _: &NodeState) -> Result<Vec<Difference>, CompareError> {
        Err(CompareError::Unable {
            reason:
                "this is a brain, which programs nothing: ask the agent that serves what is in \
                     the kernel, by its socket (--pin-dir, --admin-socket)"
                    .to_owned(),
        })
    }

    fn repair(&mut self, _: &NodeState) -> Result<RepairReport, SyncError> {
        Ok(RepairReport::default())
    }
}
