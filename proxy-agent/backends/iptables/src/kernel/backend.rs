//! The backend as the pipeline has it.

use std::time::Instant;

use proxy_model::{
    Backend, Capability, ChangeSet, CompareError, Difference, DifferenceKind, Figure, NodeState,
    RepairReport, ServiceFailure, SyncError, SyncReport,
};

use super::{
    BY_PERIOD, HOURLY, IptablesBackend, SHARE, accounting, figures, lacks, localnet, lock::Lock,
    programs::Flavour, stamp::Stamp, tables::Tables,
};
use crate::{NAME, table::counters};

impl Backend for IptablesBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn lacks(&self) -> &'static [Capability] {
        lacks(self.has_localnet)
    }

    fn sync(&mut self, state: &NodeState, change: &ChangeSet) -> Result<SyncReport, SyncError> {
        let can_follow = !change.whole
            && self
                .families
                .iter()
                .all(|one| one.can_follow(state, change));
        let followed = if can_follow {
            self.follow(state, change)
        } else {
            None
        };
        let writes = if let Some(writes) = followed {
            writes
        } else {
            let whole = self.whole(state).map_err(|error| self.failed(&error))?;
            self.serving(state.services.len(), whole.adopted);
            whole.writes
        };
        self.state = state.clone();
        self.counts.written += writes as u64;
        self.verify_each();
        self.clean(state, change);
        Ok(SyncReport {
            writes,
            failures: self.failures(),
        })
    }

    fn differences(&mut self, state: &NodeState) -> Result<Vec<Difference>, CompareError> {
        let mut differences = Vec::new();
        for tables in &self.families {
            let (_, _, _, comparison) = tables.compare(state).map_err(CompareError::failed)?;
            differences.extend(comparison.differences);
        }
        differences.extend(self.localnet_difference());
        Ok(differences)
    }

    fn repair(&mut self, state: &NodeState) -> Result<RepairReport, SyncError> {
        // Asked for, or due by the period: rationed less than what is looked for each second. That entries of legacy
        // tables became others of the same size, nothing but a comparison tells.
        let may_look_alike = self.programs.flavour == Flavour::Legacy && self.has_time(SHARE);
        let localnet = self.localnet_difference();
        let is_disturbed = may_look_alike
            || self.has_time(BY_PERIOD) && self.differs_from_stamp()
            || self.differs_from_localnet()
            || self.is_unguarded();
        let is_due = self.compared.is_none_or(|(_, at)| at.elapsed() >= HOURLY);
        let has_failures = self
            .families
            .iter()
            .any(|tables| !tables.refused().is_empty());
        if !(is_disturbed || is_due || has_failures) {
            return Ok(RepairReport::default());
        }
        let mut whole = self.whole(state).map_err(|error| self.failed(&error))?;
        self.state = state.clone();
        whole.differences.extend(localnet);
        Ok(RepairReport {
            repaired: whole.differences,
            writes: whole.writes,
            failures: self.failures(),
            ..RepairReport::default()
        })
    }

    fn disturbed(&mut self) -> bool {
        self.has_time(SHARE) && self.differs_from_stamp()
            || self.differs_from_localnet()
            || self.is_unguarded()
    }

    fn tend(&mut self, _: &NodeState) {
        self.verify_some();
        if self.lock.is_none() {
            // Somebody without a right to it had its name.
            self.lock = Lock::take_if_free();
        }
        if let Err(error) = self.cleaner.tend(Instant::now()) {
            tracing::warn!(%error, "stale UDP flows not removed");
        }
    }

    fn figures(&self) -> Vec<Figure> {
        // If rules of one family do not count, what others count is not all.
        let counts = self.families.iter().all(Tables::counts);
        let packets = |name: &str| accounting::packets(name).filter(|_| counts);
        figures::figures(
            &self.counts,
            counters::ALL.map(packets),
            &self.families,
            &self.cleaner,
        )
    }
}

impl IptablesBackend {
    /// Writes what a change comes to; `None` if that failed, and the whole must be looked at.
    fn follow(&mut self, state: &NodeState, change: &ChangeSet) -> Option<usize> {
        let (mut writes, mut written) = (0, Vec::new());
        let known = self.stamp.take();
        let before = self.present_stamp();
        for tables in &mut self.families {
            match tables.follow(&self.state, state, change) {
                Ok(restore) => {
                    writes += restore.writes();
                    written.extend(restore.tables().map(|table| (tables.family, table)));
                }
                Err(error) => {
                    tracing::warn!(%error, "change not written; comparing all tables");
                    self.counts.failed.add(tables.family);
                    self.counts.partial_failed.add(tables.family);
                    self.counts.look_at(&error);
                    return None;
                }
            }
        }
        self.unverified |= writes > 0;
        // What somebody else has changed before, or meanwhile, is still to be found.
        let now = self.present_stamp();
        if let Some(known) = known {
            let follows = |now: &Stamp| now.follows(&known, &written);
            let is_ours = Some(&known) == before.as_ref() && now.as_ref().is_some_and(follows);
            self.others_wrote |= !is_ours;
            self.stamp = now.filter(|_| is_ours);
        }
        Some(writes)
    }

    fn differs_from_localnet(&self) -> bool {
        self.families.iter().any(Tables::differs_from_localnet)
    }

    /// That somebody has told the host to route no packets from loopback addresses any more.
    fn localnet_difference(&self) -> Option<Difference> {
        let is_lacking = self.differs_from_localnet() && localnet::is_missing();
        is_lacking.then(|| Difference {
            object: localnet::SYSCTL.to_owned(),
            kind: DifferenceKind::Changed,
            service: None,
            wanted: Some(localnet::OURS.to_owned()),
            found: Some("0".to_owned()),
        })
    }

    /// Somebody has changed rules, and what keeps neighbours from loopback addresses is gone: that waits for nothing.
    fn is_unguarded(&self) -> bool {
        self.differs_from_stamp() && self.families.iter().any(Tables::is_unguarded)
    }

    fn failures(&self) -> Vec<ServiceFailure> {
        let all = self.families.iter().flat_map(Tables::refused);
        all.map(|(key, reason)| ServiceFailure {
            key: key.clone(),
            reason: reason.clone(),
        })
        .collect()
    }

    fn clean(&mut self, state: &NodeState, change: &ChangeSet) {
        if let Err(error) = self.cleaner.after_sync(state, change) {
            tracing::warn!(%error, "stale UDP flows not removed");
        }
    }
}
