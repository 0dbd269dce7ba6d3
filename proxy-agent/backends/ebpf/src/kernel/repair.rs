//! What somebody else did to maps, pins and links while the agent ran: found and mended. Maps come
//! first, because programs are attached only to maps that are right.

use proxy_model::{Difference, NodeState, RepairReport};

use super::{EbpfBackend, OpenError, failures, links::Mended, pins::repin};
use crate::entry::MapError;

impl EbpfBackend {
    /// What is wrong with the pins and links; before anything is attached, nothing is.
    pub(super) fn host_differences(&mut self) -> Result<Vec<Difference>, OpenError> {
        let mut differences = Vec::new();
        if self.opened.is_some() {
            return Ok(differences);
        }
        self.cgroup.refresh();
        differences.extend(self.pins.difference());
        for map in &self.maps {
            let pin = map.pin(&self.pins, self.loaded.services(&self.pins));
            differences.extend(repin::difference(&map.fd, &map.object(), &pin));
        }
        if let Some(edge) = &self.outside.edge {
            differences.extend(edge.differences(&self.pins));
        }
        let directory = self.pins.links();
        for link in &self.links {
            let found = link.differences(&self.loaded.ebpf, &self.cgroup, &directory)?;
            differences.extend(found);
        }
        Ok(differences)
    }

    /// Mends all that differs. What cannot be mended keeps nothing else from it; an error of the
    /// maps is the caller's, after the rest was mended: they are to be read back and tried again.
    pub(super) fn mend(&mut self, state: &NodeState) -> Result<RepairReport, MapError> {
        let mut mended = Mended::default();
        let repaired = self.tables.repair(state);
        self.mend_host(&mut mended);
        let repaired = match repaired {
            Ok(repaired) => repaired,
            Err(error) => {
                for one in &mended.repaired {
                    tracing::warn!(object = one.object, difference = %one.kind, "repaired");
                }
                return Err(error);
            }
        };
        let writes = repaired.outcome.writes + mended.repaired.len();
        mended.repaired.extend(repaired.differences);
        Ok(RepairReport {
            repaired: mended.repaired,
            writes,
            failures: failures(repaired.outcome),
            problems: mended.problems,
        })
    }

    fn mend_host(&mut self, mended: &mut Mended) {
        self.cgroup.refresh();
        if let Some(difference) = self.pins.difference() {
            let mut put_back = self.pins.put_back();
            if let (Ok(()), Some(edge)) = (&put_back, &self.outside.edge) {
                put_back = edge.move_to(&self.pins);
            }
            mended.note_pin(difference, put_back);
        }
        // A directory that is not ours may be another agent's: its pins stay as they are.
        let is_ours = self.pins.is_in_place();
        if is_ours {
            for map in &self.maps {
                let pin = map.pin(&self.pins, self.loaded.services(&self.pins));
                if let Some(difference) = repin::difference(&map.fd, &map.object(), &pin) {
                    mended.note_pin(difference, repin::repin(&map.fd, &pin));
                }
            }
        }
        if let Some(edge) = self.outside.edge.as_ref().filter(|_| is_ours) {
            edge.mend(&self.pins, mended);
        }
        let directory = self.pins.links();
        let directory = is_ours.then_some(&directory);
        for link in &mut self.links {
            link.mend(&self.loaded.ebpf, &self.cgroup, directory, mended);
        }
    }
}
