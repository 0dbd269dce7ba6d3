//! Packets that the programs do not translate, and whose they are: the layer beneath's, or the endpoint's
//! own.

use bytemuck::Zeroable as _;

use super::{
    BENEATH, ConnectionValue, Connections, DIRECT, Setting, Table, Work, idle,
    reason::{Outcome, Reason},
};
use crate::socket::TCP;

/// Remembers whose the packets of `work.key` are, if they are not translated: [`BENEATH`] or [`DIRECT`].
#[inline(never)]
pub(super) fn note<T: Connections>(tables: &T, work: &mut Work, owner: u16) {
    let now = tables.seconds();
    work.value = ConnectionValue {
        owner,
        serial: now,
        last: now,
        since: now,
        ..ConnectionValue::zeroed()
    };
    work.value.seal(&work.key);
    // Where another packet was first, that one decides.
    tables.add(Table::Opening, &work.key, &work.value);
}

/// Remembers that the packet of `work.key` is left to the layer beneath, if that is its outcome, and would not be
/// so again whatever else happens.
#[inline(always)]
pub(super) fn keep<T: Connections>(tables: &T, work: &mut Work, outcome: Outcome) {
    let lasting = Reason::is_lasting(outcome.reason());
    if outcome.reason() != 0 && (work.key.protocol != TCP || !lasting) {
        note(tables, work, BENEATH);
    }
}

/// What becomes of a flow whose place behind the translation is taken by `work.found`. One that is kept
/// for datagrams which do not come any more is free again.
#[inline(never)]
pub(super) fn makes_room<T: Connections>(tables: &T, work: &Work) -> Outcome {
    let idle = idle(tables.seconds(), work.found.last);
    if work.found.owner != DIRECT || idle <= tables.setting(Setting::UdpAnswered) {
        return Outcome::passed(Reason::Collision);
    }
    tables.remove(Table::Opening, &work.other_key);
    Outcome::passed(Reason::Changed)
}
