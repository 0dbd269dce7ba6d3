//! The end of a connection of TCP, as far as it can be believed.
//!
//! Anybody who can forge a client's address can send its FIN, RST or SYN. The endpoint examines the
//! numbers of such a packet before it believes it; so must whoever forgets connections. Endpoints are
//! on this node and believed. Of clients, that is believed which is near to what the endpoint expects
//! next ([`ConnectionValue::sequence`](super::ConnectionValue::sequence)), which nobody on another path
//! can know. Netfilter does much the same (`nf_conntrack_proto_tcp.c`, Linux 5.1).

use super::{Connections, INSIDE, Table, Work, hooks::is_there, idle, pair, seen};
use crate::packet::parse::flags;

/// How far ahead of what the endpoint expects an RST counts as one: with as much data on its way as a
/// window without scaling lets through (RFC 9293 section 3.1). Of forged ones, one in 65,536 is as near.
const NEAR: u32 = 1 << 16;
/// How far ahead a FIN or RST says that the client is done: the largest window of Linux (`tcp_rmem`,
/// 6 MiB by default). Believing a forged one, one in 512, costs a connection that is idle for an hour.
const FAR: u32 = 1 << 23;
/// Seconds after which an endpoint answers every SYN to a connection that it has: it does so at most
/// twice a second (`tcp_invalid_ratelimit`).
const ANSWERS_AFTER: u32 = 2;

/// What a packet with FIN or RST in the direction of `work.key` says of that direction: bits of
/// [`seen`].
#[inline(never)]
pub(super) fn says<T: Connections>(tables: &T, work: &mut Work) -> u32 {
    let said = work.transport.flags;
    let broken = said & flags::RST != 0;
    let ahead = if work.key.role == INSIDE {
        0
    } else {
        pair::turn(work);
        if !is_there(tables, Table::Track, work) || work.found.serial != work.value.serial {
            return 0;
        }
        work.transport.sequence.wrapping_sub(work.found.sequence)
    };
    if broken && ahead == 0 {
        seen::RST | seen::BROKEN
    } else if broken && ahead <= NEAR {
        // Sent while data was on its way; or guessed. Unless the connection goes on, it is over.
        seen::RST
    } else if ahead < FAR {
        seen::FIN
    } else {
        0
    }
}

/// Whether the connection is over, so that a SYN in its place opens another one: broken by one side, or
/// done on both.
#[inline(never)]
pub(super) fn is_over<T: Connections>(tables: &T, work: &mut Work) -> bool {
    pair::turn(work);
    let here = work.value.seen();
    let there = if is_there(tables, Table::Track, work) {
        work.found.seen()
    } else {
        0
    };
    (here | there) & seen::BROKEN != 0 || here & there & seen::FIN != 0
}

/// Whether the endpoint of a connection knows nothing of it any more, although a client's SYN reached
/// it. An endpoint that has the connection acknowledges what it has (RFC 5961 section 4), so it is told
/// by a SYN to which it must answer, and has the time until the next one.
#[inline(never)]
pub(super) fn is_gone<T: Connections>(tables: &T, at: T::At, work: &mut Work, now: u32) -> bool {
    let told = work.value.last;
    pair::turn(work);
    let (mut must_answer, mut answered) = (true, false);
    if is_there(tables, Table::Track, work) && work.found.serial == work.value.serial {
        must_answer = idle(now, work.found.last) >= ANSWERS_AFTER;
        answered = idle(told, work.found.last) == 0;
    }
    let before = work.value.seen();
    if !answered && before & seen::ASKED != 0 && told != now {
        return true;
    }
    let after = if must_answer {
        before | seen::ASKED
    } else {
        before & !seen::ASKED
    };
    if after != before {
        // For whoever notes what this packet says, too.
        work.value.state = work.value.state_of(after);
        tables.set_state(at, work.value.state);
    }
    false
}
