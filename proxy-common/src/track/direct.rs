//! Clients that talk to an endpoint itself, past every frontend, from the port from which they dial a
//! frontend too: behind the translation both would look the same. The frontend's flow then belongs to
//! the layer beneath, which can give it another port.

use super::{
    BENEATH, Connections, DIRECT, INSIDE, SNAT, Table, Work, ended, idle, owner, pair,
    reason::{Outcome, Reason},
    seen,
};
use crate::tables::ServiceTables;

/// Seconds in which a client that hears nothing sends its SYN again (RFC 6298).
const SENT_AGAIN: u32 = 1;

/// An endpoint acknowledges something, but not the client's SYN: to it, that was a packet of a
/// connection that it has with the client already (RFC 5961 section 4). When the SYN is sent again, the
/// layer beneath gets it.
///
/// The first time it may be of a connection that was just closed. If that was through this frontend, the
/// client hears it as from there: it breaks what it knows nothing of, and sends its SYN again at once. So
/// it does if that connection was never more than a SYN.
#[inline(never)]
pub fn objects<T: Connections>(tables: &T, work: &mut Work) -> Outcome {
    if tables
        .find(Table::Opening, &work.key, &mut work.value)
        .is_none()
        || !work.value.holds_for(&work.key)
    {
        return Outcome::UNTOUCHED;
    }
    if work.value.owner == SNAT {
        // Of the client, who acknowledges to an endpoint that sees this node.
        work.to = work.value.place();
        return Outcome::TRANSLATED;
    }
    if !work.value.is_translated() {
        return Outcome::UNTOUCHED;
    }
    let acknowledged = work.transport.acknowledged;
    let (first, last) = (work.value.acknowledged, work.value.refusal);
    if first != 0 && acknowledged == first && acknowledged != last {
        work.to = work.value.place();
        return Outcome::TRANSLATED;
    }
    // It goes on from its own answer: whatever SYNs it was sent meanwhile, the connection is this one.
    let goes_on = work.transport.sequence.wrapping_sub(1) == work.value.sequence;
    if work.value.seen() & seen::ANSWERED != 0 && (first == 0 || acknowledged == last || goes_on) {
        return Outcome::UNTOUCHED;
    }
    let idle = idle(tables.seconds(), work.value.since);
    // A clock that counts seconds may be one ahead.
    if work.value.seen() & seen::FOLLOWS != 0 && idle <= SENT_AGAIN {
        work.to = work.value.place();
        return Outcome::TRANSLATED;
    }
    if idle < SENT_AGAIN {
        return Outcome::UNTOUCHED;
    }
    pair::forget(tables, Table::Opening, work);
    work.key = work.other_key;
    owner::note(tables, work, BENEATH);
    Outcome::passed(Reason::Direct)
}

/// A datagram that is for no Service: if a frontend's flow looks the same behind the translation, its
/// answers are not to be told from those to this one. The flow ends, and its place is kept.
#[inline(never)]
pub fn datagram<T: Connections>(tables: &T, work: &mut Work) -> Outcome {
    set_answer(work);
    if is_translated(tables, Table::Track, work) {
        return ends(tables, Table::Track, work);
    }
    if is_translated(tables, Table::Opening, work) {
        return ends(tables, Table::Opening, work);
    }
    Outcome::UNTOUCHED
}

/// A SYN that is for no Service: what is left of a frontend's connection that is over must not catch its
/// answers. Where that is still open, the endpoint takes this for a packet of it, and so do the programs:
/// only another port could tell both apart. What is not answered yet claims no other answer, see
/// [`answer`](super::answer).
#[inline(never)]
pub fn connects<T: ServiceTables + Connections>(tables: &T, work: &mut Work) {
    set_answer(work);
    if !is_translated(tables, Table::Track, work) {
        return;
    }
    pair::turn_found(work);
    if tables
        .find(Table::Track, &work.key, &mut work.value)
        .is_none()
        || !work.value.holds_for(&work.key)
    {
        return;
    }
    if ended::is_over(tables, work) {
        pair::forget(tables, Table::Track, work);
    }
}

/// Sets `work.other_key`: what an answer to the packet of `work.key` looks like.
#[inline(always)]
const fn set_answer(work: &mut Work) {
    let Work { key, other_key, .. } = work;
    other_key.source = key.destination;
    other_key.destination = key.source;
    other_key.source_port = key.destination_port;
    other_key.destination_port = key.source_port;
    other_key.protocol = key.protocol;
    other_key.role = INSIDE;
    other_key.padding = 0;
}

/// Whether a frontend's flow is in the place of `work.other_key`; if so, `work.found` is its entry. A
/// place that is kept is kept on.
#[inline(always)]
fn is_translated<T: Connections>(tables: &T, table: Table, work: &mut Work) -> bool {
    let Some(at) = tables.find(table, &work.other_key, &mut work.found) else {
        return false;
    };
    if work.found.owner == DIRECT {
        tables.set_last(at, tables.seconds());
    }
    work.found.is_translated() && work.found.holds_for(&work.other_key)
}

#[inline(never)]
fn ends<T: Connections>(tables: &T, table: Table, work: &mut Work) -> Outcome {
    pair::turn_found(work);
    pair::forget(tables, table, work);
    work.key = work.other_key;
    owner::note(tables, work, DIRECT);
    Outcome::passed(Reason::Direct)
}
