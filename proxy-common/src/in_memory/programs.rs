//! The programs on devices, run on packets in memory.

use bytemuck::Zeroable as _;

use super::{Bytes, World, cpu::Cpu};
use crate::{
    frontend::FrontendValue,
    packet::{
        Version,
        parse::{Header, Transport},
        quoted::Quoted,
        rewrite::Place,
    },
    track::{
        ConnectionKey, ConnectionValue, Work, egress, ingress,
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
}

impl Hook {
    /// What becomes of a packet here. Like the kernel, it believes the device which IP version it is of.
    ///
    /// # Panics
    ///
    /// If a packet that is passed on, or dropped, is not what it was. One that could not be changed as
    /// a whole may be half changed: it is dropped, and nobody sees it.
    pub fn meets(self, tables: &Cpu<'_>, version: Version, packet: &Bytes) -> (Outcome, Bytes) {
        let mut after = packet.clone();
        let outcome = match self {
            Self::Ingress => ingress::handle(&mut after, version, tables, &mut work()),
            Self::Egress => egress::handle(&mut after, version, tables, &mut work()),
        };
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
            let mut work = work();
            work.key = key;
            sweep::sweep(&self.alone(), &mut work);
        }
    }
}

/// One that nothing was read into yet.
pub fn work() -> Work {
    let zero = ConnectionKey::zeroed();
    let value = ConnectionValue::zeroed();
    Work {
        header: Header::NONE,
        transport: Transport::default(),
        quoted: Quoted::NONE,
        to: Place::new([0; 4], 0),
        key: zero,
        value,
        other_key: zero,
        other_value: value,
        found: value,
        frontend: FrontendValue::zeroed(),
        frontend_is_whole: 0,
        outcome: Outcome::UNTOUCHED,
        collisions: 0,
    }
}
