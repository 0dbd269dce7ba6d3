//! What came into force, in sum: a busy cluster has thousands of syncs a second, and each of them is
//! a line for whoever looks for a fault only. Pure; does not know how a log is written.

use std::time::{Duration, Instant};

use proxy_model::{Change, ChangeSet};

/// From one summary to the next, at least.
const APART: Duration = Duration::from_mins(1);

/// What syncs came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Synced {
    /// How many syncs.
    pub syncs: u64,
    /// Service ports that were added or changed, each time.
    pub upserted: u64,
    /// Those that went.
    pub deleted: u64,
    /// What was written to the kernel.
    pub writes: u64,
}

impl Synced {
    /// One sync.
    pub fn of(change: &ChangeSet, writes: usize) -> Self {
        let is_delete = |one: &&Change| matches!(one, Change::Delete { .. });
        let deleted = change.changes.iter().filter(is_delete).count();
        Self {
            syncs: 1,
            upserted: (change.changes.len() - deleted) as u64,
            deleted: deleted as u64,
            writes: writes as u64,
        }
    }
}

impl Synced {
    /// The same change in another layer, too.
    pub fn with(self, other: Self) -> Self {
        Self {
            syncs: self.syncs.max(other.syncs),
            upserted: self.upserted.max(other.upserted),
            deleted: self.deleted.max(other.deleted),
            writes: self.writes + other.writes,
        }
    }
}

/// Syncs that the log was not told of yet.
#[derive(Debug, Default)]
pub struct Summary {
    since: Synced,
    told: Option<Instant>,
}

impl Summary {
    /// One more.
    pub fn add(&mut self, one: Synced) {
        self.since.syncs += one.syncs;
        self.since.upserted += one.upserted;
        self.since.deleted += one.deleted;
        self.since.writes += one.writes;
    }

    /// What is to be told `now`: what comes after a quiet time at once, what follows in sum.
    pub fn due(&mut self, now: Instant) -> Option<Synced> {
        let waits = |told| now.saturating_duration_since(told) < APART;
        if self.since.syncs == 0 || self.told.is_some_and(waits) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_after_a_quiet_time_is_told_at_once_and_what_follows_in_sum() {
        let mut summary = Summary::default();
        let start = Instant::now();
        let one = Synced {
            syncs: 1,
            upserted: 2,
            deleted: 1,
            writes: 5,
        };
        assert_eq!(summary.due(start), None, "nothing happened");
        summary.add(one);
        assert_eq!(summary.due(start), Some(one));
        for second in 1..60 {
            summary.add(one);
            assert_eq!(summary.due(start + Duration::from_secs(second)), None);
        }
        let all = Synced {
            syncs: 59,
            upserted: 118,
            deleted: 59,
            writes: 295,
        };
        assert_eq!(summary.due(start + APART), Some(all));
        assert_eq!(
            summary.due(start + 3 * APART),
            None,
            "nothing happened since"
        );
        summary.add(one);
        assert_eq!(summary.due(start + 3 * APART), Some(one));
    }
}
