//! The programs on devices, run on packets in memory.

use super::{
    Bytes, World,
    cpu::{Cpu, Met},
};
use crate::{
    packet::Version,
    track::{
        ConnectionKey, Work, egress, ingress, pods,
        reason::{Outcome, Reason},
        sweep,
    },
};

/// Where a program meets packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// As they come in.
    Ingress,
    /// As they leave.
    Egress,
    /// As they come from a pod.
    FromPod,
    /// As they leave for a pod.
    ToPod,
}

impl Hook {
    /// What becomes of a packet here. Like the kernel, it believes the device which IP version it is of.
    ///
    /// # Panics
    ///
    /// If a packet that is passed on, or dropped, is not what it was. One that could not be changed as
    /// a whole may be half changed: it is dropped, and nobody sees it.
    pub fn meets(self, tables: &Cpu<'_>, version: Version, packet: &Bytes) -> (Outcome, Bytes) {
        let mut met = Met {
            cpu: tables,
            packet: packet.clone(),
        };
        let work = &mut Work::default();
        let outcome = match self {
            Self::Ingress => ingress::handle(&mut met, version, tables, work),
            Self::Egress => egress::handle(&mut met, version, tables, work),
            Self::FromPod => pods::from(&mut met, version, tables, work),
            Self::ToPod => pods::to(&mut met, version, tables, work),
        };
        let after = met.packet;
        if outcome != Outcome::TRANSLATED && outcome != Outcome::dropped(Reason::NotChanged) {
            assert_eq!(*packet, after, "{outcome:?}");
        }
        (outcome, after)
    }
}

impl World {
    /// Runs the sweeping program for every answered flow.
    pub fn sweep(&self) {
        for key in self.maps(|maps| maps.track.keys()) {
            sweeps(&self.alone(), key);
        }
    }
}

/// Runs the sweeping program for this entry of TRACK. Whether it ends the flow.
pub fn sweeps(tables: &Cpu<'_>, key: ConnectionKey) -> bool {
    let mut work = Work {
        key,
        ..Work::default()
    };
    sweep::sweep(tables, &mut work)
}
