//! Whether partial restores led to what one full restore would give. What to write for a change follows from the
//! state before, and is not read back: a mistake in that would stay until somebody's connections fail.

use std::time::Instant;

use proxy_model::Difference;

use super::{IptablesBackend, SHARE};
use crate::flags::Verify;

/// As many chains are told one by one.
const TOLD: usize = 5;

impl IptablesBackend {
    /// After a sync.
    pub(super) fn verify_each(&mut self) {
        if self.verify == Verify::Always {
            self.verify_ours();
        }
    }

    /// Whenever nothing else is to be done.
    pub(super) fn verify_some(&mut self) {
        if self.verify != Verify::Never && self.has_time(SHARE) {
            self.verify_ours();
        }
    }

    /// Unless somebody else has changed rules meanwhile: those are mended as such.
    fn verify_ours(&mut self) {
        let is_changed = self.stamp.is_some() && self.differs_from_stamp();
        if self.unverified && !self.others_wrote && !is_changed {
            self.verify();
        }
    }

    /// Compares all tables with the state that is in force, and mends what differs.
    fn verify(&mut self) {
        let (began, stamp) = (Instant::now(), self.present_stamp());
        let mut is_same = true;
        for tables in &mut self.families {
            match tables.mend(&self.state) {
                Ok(found) => {
                    is_same &= found.is_empty();
                    self.counts.differences.add_many(tables.family, found.len());
                    tell(&found);
                }
                Err(error) => {
                    tracing::warn!(%error, "change not verified; comparing all tables");
                    self.counts.failed.add(tables.family);
                    // The next repair compares them again.
                    drop(self.failed(&error));
                    return;
                }
            }
        }
        self.counts.verified += 1;
        self.compared(began, stamp.filter(|_| is_same));
    }
}

fn tell(differences: &[Difference]) {
    for one in differences.iter().take(TOLD) {
        tracing::error!(
            chain = one.object,
            kind = one.kind.as_str(),
            wanted = one.wanted.as_deref(),
            found = one.found.as_deref(),
            "partial restore left what a full one would not; mended"
        );
    }
    if differences.len() > TOLD {
        let more = differences.len() - TOLD;
        tracing::error!(
            more,
            "partial restore left more that a full one would not; mended"
        );
    }
}
