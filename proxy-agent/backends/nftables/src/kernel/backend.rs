//! The backend as the pipeline has it.

use proxy_model::{
    Backend, Capability, ChangeSet, CompareError, Difference, Figure, NodeState, RepairReport,
    SyncError, SyncReport,
};

use super::{
    NftablesBackend, figures,
    outline::{Outline, is_due},
};
use crate::{LACKS, NAME};

impl Backend for NftablesBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn lacks(&self) -> &'static [Capability] {
        LACKS
    }

    fn sync(&mut self, state: &NodeState, change: &ChangeSet) -> Result<SyncReport, SyncError> {
        let whole = change.whole || self.tables.is_none();
        let followed = if whole {
            None
        } else {
            match self.follow(state, change) {
                Ok(writes) => Some(writes),
                Err(error) => {
                    // Somebody else was at the table: what is there must be read.
                    tracing::warn!(%error, "change not written; comparing the whole table");
                    self.counts.failed += 1;
                    None
                }
            }
        };
        let writes = if let Some(writes) = followed {
            writes
        } else {
            let whole = self.whole(state).map_err(|error| self.failed(&error))?;
            self.serving(state.services.len(), whole.adopted);
            whole.writes
        };
        self.state = state.clone();
        if let Some(tables) = &self.tables {
            let owed = &mut self.owed;
            let done = owed.after_sync(&mut self.netlink, tables, state, change);
            self.committed(done);
        }
        Ok(SyncReport {
            writes,
            failures: Vec::new(),
        })
    }

    fn differences(&mut self, state: &NodeState) -> Result<Vec<Difference>, CompareError> {
        let compared = self.compare(state).map_err(CompareError::failed)?;
        let (_, comparisons, _) = compared;
        Ok(comparisons
            .into_iter()
            .flat_map(|one| one.differences)
            .collect())
    }

    fn repair(&mut self, state: &NodeState) -> Result<RepairReport, SyncError> {
        let generation = self.netlink.generation();
        let generation = generation.map_err(|error| self.failed(&error))?;
        if self.tables.is_some() && self.generation == Some(generation) {
            // No rule of this namespace was changed by anybody since.
            return Ok(RepairReport::default());
        }
        let whole = self.whole(state).map_err(|error| self.failed(&error))?;
        self.state = state.clone();
        Ok(RepairReport {
            repaired: whole.differences,
            writes: whole.writes,
            ..RepairReport::default()
        })
    }

    fn disturbed(&mut self) -> bool {
        let Some(tables) = &self.tables else {
            return false;
        };
        let generation = self.netlink.generation().ok();
        if generation.is_none() || generation == self.generation {
            return false;
        }
        let compared = self.compared.map(|(took, at)| (took, at.elapsed()));
        is_due(compared, || {
            let seen = Outline::see(&mut self.netlink, tables).ok();
            seen.is_some() && seen == self.outline
        })
    }

    fn tend(&mut self, _: &NodeState) {
        if let Some(tables) = &self.tables {
            let done = self.owed.tend(&mut self.netlink, tables);
            self.committed(done);
        }
    }

    fn figures(&self) -> Vec<Figure> {
        figures::figures(&self.counts, self.owed.cleaner())
    }
}
