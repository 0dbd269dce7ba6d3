//! Which packets of an endpoint answer a SYN of a client, told by the number that they acknowledge: the
//! client may have a connection with the endpoint itself, and behind the translation both look the same.
//! The entry of answers in OPENING keeps it for the first SYN ([`ConnectionValue::acknowledged`]) and for
//! the last ([`ConnectionValue::refusal`]).
//!
//! [`ConnectionValue::acknowledged`]: super::ConnectionValue::acknowledged
//! [`ConnectionValue::refusal`]: super::ConnectionValue::refusal

use super::{Connections, Work, segment::expected};
use crate::{packet::parse::flags, socket::TCP};

/// Notes in the flow's other entry, which is to be that of answers, what answers this packet of the client.
#[inline(always)]
pub(super) const fn expect(work: &mut Work) {
    if work.key.protocol == TCP {
        let expected = expected(work);
        work.other_value.acknowledged = expected;
        work.other_value.refusal = expected;
    }
}

/// Notes the same in an entry that is there, for a packet that begins a connection or is of UDP.
#[inline(always)]
pub(super) fn expect_another<T: Connections>(tables: &T, inside: T::At, work: &Work) {
    tables.set_last(inside, tables.seconds());
    if work.key.protocol == TCP {
        tables.set_refusal(inside, expected(work));
    }
}

/// Whether a packet of an endpoint acknowledges a SYN that was sent to it for `work.value`, the entry of
/// its answers: the first one, or the last. An entry that earlier programs made does not tell.
#[inline(always)]
pub(super) const fn is_answer(work: &Work) -> bool {
    let acknowledged = work.transport.acknowledged;
    let (first, last) = (work.value.acknowledged, work.value.refusal);
    work.transport.flags & flags::ACK != 0
        && (first == 0 || acknowledged == first || acknowledged == last)
}
