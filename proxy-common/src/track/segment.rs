//! What a segment of TCP says by itself (RFC 9293 section 3.1).

use super::Work;
use crate::packet::parse::flags;

/// Whether a packet of TCP opens a connection.
#[inline(always)]
pub(super) const fn opens(seen: u32) -> bool {
    seen & (flags::SYN | flags::ACK | flags::RST | flags::FIN) == flags::SYN
}

/// Whether a packet of TCP acknowledges, and does nothing else.
#[inline(always)]
pub(super) const fn is_bare(work: &Work) -> bool {
    work.transport.flags & (flags::ACK | flags::FIN) == flags::ACK
        && work.header.length == work.transport.header
}

/// What is acknowledged by whoever has all that was sent up to the end of this packet.
#[inline(always)]
pub(super) const fn behind(work: &Work) -> u32 {
    // Of a packet of more than 64 KiB (BIG TCP) the header tells none.
    let data = work.header.length.saturating_sub(work.transport.header);
    let counted = (work.transport.flags & (flags::SYN | flags::FIN) != 0) as u32;
    work.transport
        .sequence
        .wrapping_add(data)
        .wrapping_add(counted)
}

/// What an endpoint acknowledges that takes or refuses the client's SYN, of which this is a packet, or
/// whose connection it goes on.
#[inline(always)]
pub(super) const fn expected(work: &Work) -> u32 {
    let opens = (work.transport.flags & flags::SYN != 0) as u32;
    work.transport.sequence.wrapping_add(opens)
}
