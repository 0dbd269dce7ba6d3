//! The end of a connection of TCP, as far as it can be believed.
//!
//! Anybody who can forge an address can send a FIN, RST or SYN in its name: outside that of a client, on
//! this node that of an endpoint, and firewalls reject in the name of either. The receiver examines the
//! numbers of such a packet before it believes it; so must whoever forgets connections. What follows
//! without a gap what its sender sent before ([`ConnectionValue::sequence`](super::ConnectionValue)), is
//! the sender's own: nobody on another path can know that number. Only such packets tell what their sender
//! has got. Netfilter does much the same (`nf_conntrack_proto_tcp.c`, Linux 6.18).
//!
//! That an endpoint is silent says nothing: a forged packet need not reach it (its time to live, a wrong
//! checksum, a firewall), and an idle connection is silent.

use super::{
    ConnectionValue, Connections, DIALLED, INSIDE, Setting, Table, Work, idle,
    pair::{self, is_there},
    seen,
    segment::behind,
};
use crate::{packet::parse::flags, tables::ServiceTables};

/// How far ahead of what its receiver expects an RST counts as one: with as much data on its way as a
/// window without scaling lets through (RFC 9293 section 3.1). Of forged ones, one in 65,536 is as near.
const NEAR: u32 = 1 << 16;
/// How far ahead a FIN or RST says that a client is done: the largest window of Linux (`tcp_rmem`,
/// 6 MiB by default). Believing a forged one, one in 512, costs a connection that is idle for an hour.
/// What ends sooner takes the endpoint's word, or data that may be on its way.
const FAR: u32 = 1 << 23;
/// Seconds for which more data may be on its way, once the endpoint has acknowledged some. As long, an
/// RST counts as one that is [`FAR`] ahead; a forged one costs a connection that falls silent just then.
const ON_ITS_WAY: u32 = 2;

/// Notes what a packet with FIN or RST says of the direction of `work.key`, of which this was `seen`
/// before. Returns what is seen of it now.
#[inline(never)]
pub(super) fn ends<T: Connections>(tables: &T, at: T::At, work: &mut Work, seen: u32) -> u32 {
    let bits = says(tables, work);
    if bits & seen::FIN == 0 {
        return seen | bits;
    }
    if bits & seen::GUESSED == 0 {
        if !is_next(work) {
            tables.set_sequence(at, behind(work));
        }
        return seen & !seen::GUESSED | bits;
    }
    // What an endpoint sends comes here without a gap. A FIN that was acknowledged stays: its sender sends
    // no other.
    let is_settled = seen & seen::FIN != 0
        && (seen & seen::GUESSED == 0 || work.value.sequence == work.found.acknowledged);
    if work.key.role == INSIDE || is_settled {
        return seen;
    }
    tables.set_sequence(at, behind(work));
    seen | bits
}

/// What such a packet says: bits of [`seen`]. Looks up the flow's other entry.
#[inline(always)]
fn says<T: Connections>(tables: &T, work: &mut Work) -> u32 {
    let said = work.transport.flags;
    let broken = said & flags::RST != 0;
    if pair::find_other(tables, work).is_none() {
        return 0;
    }
    let ahead = match work.found.acknowledged {
        // Nothing is known of an entry that was lost and is there again.
        0 => u32::MAX,
        acknowledged => work.transport.sequence.wrapping_sub(acknowledged),
    };
    let is_certain = ahead == 0 || is_next(work);
    let is_busy = || idle(tables.seconds(), work.found.since) <= ON_ITS_WAY;
    if broken && is_certain {
        seen::RST | seen::BROKEN
    } else if broken && refuses(work) {
        seen::REFUSED
    } else if broken && (ahead <= NEAR || ahead < FAR && is_busy()) {
        // Sent while data was on its way; or guessed. Unless the connection goes on, it is over.
        seen::RST
    } else if is_certain {
        seen::FIN
    } else if ahead < FAR {
        seen::FIN | seen::GUESSED
    } else {
        0
    }
}

/// Whether a packet follows what its sender sent without a gap.
#[inline(always)]
pub(super) const fn is_next(work: &Work) -> bool {
    // As above.
    work.value.sequence != 0
        && work.transport.sequence == work.value.sequence
        && work.value.seen() & seen::GUESSED == 0
}

/// Whether the SYN that was sent to an endpoint in place of this connection is refused: the endpoint knows
/// of neither, or a firewall resets every SYN, whatever is open.
#[inline(always)]
const fn refuses(work: &Work) -> bool {
    work.key.role == INSIDE
        && work.transport.flags & flags::ACK != 0
        && work.found.refusal != 0
        && work.transport.acknowledged == work.found.refusal
}

/// Notes how far its sender has come with a packet of an answered flow, and what it has got.
#[inline(always)]
pub(super) fn follow<T: Connections>(tables: &T, at: T::At, work: &Work, now: u32) {
    if work.transport.flags & (flags::SYN | flags::RST) != 0 || !is_next(work) {
        return;
    }
    let next = behind(work);
    if next != work.value.sequence {
        tables.set_sequence(at, next);
    }
    let acknowledged = work.transport.acknowledged;
    if work.transport.flags & flags::ACK != 0 && acknowledged != work.value.acknowledged {
        tables.set_acknowledged(at, acknowledged);
        if work.key.role == INSIDE {
            tables.set_since(at, now);
        }
    }
}

/// The same where a packet was lost on its way here: what its receiver acknowledged had no gap. Once the
/// flow's other entry was looked up.
#[inline(always)]
pub(super) fn catch_up<T: Connections>(tables: &T, at: T::At, work: &mut Work) {
    let acknowledged = work.found.acknowledged;
    let ahead = acknowledged.wrapping_sub(work.value.sequence);
    let is_behind = ahead != 0 && ahead < FAR || work.value.sequence == 0;
    if is_behind && work.found.serial == work.value.serial && work.value.seen() & seen::GUESSED == 0
    {
        work.value.sequence = acknowledged;
        tables.set_sequence(at, acknowledged);
    }
}

/// Whether both sides are done, with what [`ConnectionValue::reached`](super::ConnectionValue::reached) has
/// of each. A FIN of the client that the endpoint did not acknowledge may be forged, and the client goes
/// on.
#[inline(always)]
pub const fn are_done(here: u32, there: u32, reached: [u32; 2]) -> bool {
    here & there & seen::FIN != 0 && reached[0] == reached[1]
}

/// Whether a connection with these entries was broken by one side, or done on both.
#[inline(always)]
pub(super) const fn is_closed(dialled: &ConnectionValue, inside: &ConnectionValue) -> bool {
    let (here, there) = (dialled.seen(), inside.seen());
    (here | there) & seen::BROKEN != 0
        || are_done(
            here,
            there,
            [dialled.reached(DIALLED), inside.reached(INSIDE)],
        )
}

/// Whether the flow's endpoint may have new connections.
#[inline(always)]
pub(super) fn is_member<T: ServiceTables>(tables: &T, value: &ConnectionValue) -> bool {
    tables.member(value.set, value.endpoint).is_some()
}

/// Whether a connection is over, so that a SYN in its place opens another one: broken by one side, or
/// done on both. So is one whose endpoint may have no new ones and is silent, if a SYN was refused, the
/// client seemed to break it, or both seemed to be done: nobody is left to acknowledge that.
#[inline(never)]
pub(super) fn is_over<T: ServiceTables + Connections>(tables: &T, work: &mut Work) -> bool {
    pair::turn(work);
    let here = work.value.seen();
    if !is_there(tables, Table::Track, work) {
        return here & seen::BROKEN != 0;
    }
    if is_closed(&work.value, &work.found) {
        return true;
    }
    let there = work.found.seen();
    let seems_over =
        here & seen::RST != 0 || there & seen::REFUSED != 0 || here & there & seen::FIN != 0;
    seems_over
        && idle(tables.seconds(), work.found.last) > tables.setting(Setting::TcpReset)
        && !is_member(tables, &work.value)
}
