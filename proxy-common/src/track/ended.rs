//! The end of a connection of TCP, as far as it can be believed.
//!
//! Anybody who can forge a client's address can send its FIN, RST or SYN. The endpoint examines the
//! numbers of such a packet before it believes it; so must whoever forgets connections. Endpoints are
//! on this node and believed. Of clients, that is believed which is near to what the endpoint expects
//! next ([`ConnectionValue::sequence`](super::ConnectionValue::sequence)), which nobody on another path
//! can know. Netfilter does much the same (`nf_conntrack_proto_tcp.c`, Linux 5.1).
//!
//! That an endpoint is silent says nothing: a forged packet need not reach it (its time to live, a wrong
//! checksum, a firewall), and an idle connection is silent.

use super::{Connections, INSIDE, Setting, Table, Work, hooks::is_there, idle, pair, seen};
use crate::packet::parse::flags;

/// How far ahead of what the endpoint expects an RST counts as one: with as much data on its way as a
/// window without scaling lets through (RFC 9293 section 3.1). Of forged ones, one in 65,536 is as near.
const NEAR: u32 = 1 << 16;
/// How far ahead a FIN or RST says that the client is done: the largest window of Linux (`tcp_rmem`,
/// 6 MiB by default). Believing a forged one, one in 512, costs a connection that is idle for an hour.
/// What ends sooner takes the endpoint's word.
const FAR: u32 = 1 << 23;

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

/// Whether the endpoint acknowledged a FIN of the client already: it sends no other one, and somebody else
/// may. After [`says`] of a packet of the client that is near.
#[inline(always)]
pub(super) const fn is_acknowledged(work: &Work) -> bool {
    work.value.seen() & seen::FIN != 0 && work.value.sequence == work.found.sequence
}

/// What the endpoint acknowledges once it has all that the client sent up to the FIN of this packet.
#[inline(always)]
pub(super) const fn acknowledged(work: &Work) -> u32 {
    let data = work.header.length.wrapping_sub(work.transport.header);
    work.transport.sequence.wrapping_add(data).wrapping_add(1)
}

/// Whether both sides are done. A FIN of the client that the endpoint did not acknowledge may be forged,
/// and the client goes on.
#[inline(always)]
pub const fn are_done(here: u32, there: u32, sequences: [u32; 2]) -> bool {
    here & there & seen::FIN != 0 && sequences[0] == sequences[1]
}

/// Whether a connection is over, so that a SYN in its place opens another one: broken by one side, or
/// done on both. So is one whose endpoint may have no new ones, if it was done with this one and is
/// silent, and the client seemed to be: nobody is left to acknowledge that.
#[inline(never)]
pub(super) fn is_over<T: Connections>(tables: &T, work: &mut Work, is_member: bool) -> bool {
    pair::turn(work);
    let here = work.value.seen();
    if !is_there(tables, Table::Track, work) {
        return here & seen::BROKEN != 0;
    }
    let there = work.found.seen();
    let is_left = !is_member
        && here & (seen::FIN | seen::RST) != 0
        && there & seen::FIN != 0
        && idle(tables.seconds(), work.found.last) > tables.setting(Setting::TcpReset);
    let sequences = [work.value.sequence, work.found.sequence];
    (here | there) & seen::BROKEN != 0 || are_done(here, there, sequences) || is_left
}
