//! A connection that an endpoint takes in place of one that it lost without a word: its host began anew,
//! or gave up. The flow goes on, since the endpoint is the same; what is known of it begins again, or the
//! new connection's end would not be seen.
//!
//! As for a flow that is not answered yet, both sides must say so: the endpoint acknowledges the last SYN,
//! and the client acknowledges what the endpoint then began with. A SYN alone may be forged, and a firewall
//! that answers every SYN (`SYNPROXY` of netfilter) does so for the endpoint.

use super::{Connections, Work, pair};
use crate::packet::parse::flags;

/// Notes with what an endpoint answers the last SYN that was sent in place of its connection, in
/// [`ConnectionValue::refusal`](super::ConnectionValue::refusal) of the entry of its packets.
#[inline(never)]
pub(super) fn offers<T: Connections>(tables: &T, at: T::At, work: &mut Work) {
    if pair::find_other(tables, work).is_some() && work.transport.acknowledged == work.found.refusal
    {
        tables.set_refusal(at, work.transport.sequence.wrapping_add(1));
    }
}

/// Whether a packet of a client may be the one that completes such a connection: it acknowledges, and goes
/// on where its last SYN ended.
#[inline(always)]
pub(super) const fn may_complete(work: &Work) -> bool {
    work.value.refusal != 0
        && work.transport.sequence == work.value.refusal
        && work.transport.flags & (flags::SYN | flags::RST | flags::ACK) == flags::ACK
}

/// If it does, what is known of the flow is that of the new connection. `at`: the entry of requests.
#[inline(never)]
pub(super) fn completes<T: Connections>(tables: &T, at: T::At, work: &mut Work) {
    let Some(inside) = pair::find_other(tables, work) else {
        return;
    };
    let (begins, acknowledges) = (work.transport.sequence, work.transport.acknowledged);
    if work.found.refusal == 0 || acknowledges != work.found.refusal {
        return;
    }
    let nothing = work.value.state_of(0);
    tables.set_acknowledged(inside, begins);
    tables.set_sequence(inside, acknowledges);
    tables.set_refusal(inside, 0);
    tables.set_state(inside, nothing);
    tables.set_sequence(at, begins);
    tables.set_acknowledged(at, acknowledges);
    tables.set_state(at, nothing);
    let value = &mut work.value;
    (value.sequence, value.acknowledged) = (begins, acknowledges);
    value.state = nothing;
}
