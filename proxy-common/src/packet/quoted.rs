//! What an ICMP error quotes: the packet that it is about, whose addresses must be those that the
//! receiver of the error knows (RFC 792, RFC 4443, RFC 5508 section 4.2).

use super::{
    Covers, Packet, Sum, Version,
    parse::{self, Header, Part},
    rewrite::{End, Place, port_at, put_address},
    sum,
};
use crate::socket::TCP;

/// An error, and what it quotes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quoted {
    /// Header of the packet that it is about.
    pub header: Header,
    /// Ports of that packet.
    pub source_port: u16,
    /// See above.
    pub destination_port: u16,
    /// 1 if it is about the way, not about the packet: the sender is to take another one.
    pub redirect: u32,
}

/// Types of redirects (RFC 792, RFC 4861 section 4.5).
const REDIRECT_V4: u8 = 5;
const REDIRECT_V6: u8 = 137;

/// Where a sum of ICMP is, from the beginning of its header.
const SUM: u32 = 2;

impl Quoted {
    /// One that nothing was read into.
    pub const NONE: Self = Self {
        header: Header::NONE,
        source_port: 0,
        destination_port: 0,
        redirect: 0,
    };

    /// Where the quoted packet is from.
    #[inline(always)]
    pub const fn source(&self) -> Place {
        Place::new(self.header.source, self.source_port)
    }

    /// Where it is for.
    #[inline(always)]
    pub const fn destination(&self) -> Place {
        Place::new(self.header.destination, self.destination_port)
    }
}

/// Reads the error that follows `outer`. False if it is none, or quotes no ports of TCP or UDP.
#[inline(always)]
pub fn read<P: Packet>(packet: &P, outer: &Header, quoted: &mut Quoted) -> bool {
    if outer.part != Part::Whole || !outer.is_icmp() {
        return false;
    }
    let Some([kind, _]) = packet.read::<[u8; 2]>(outer.transport) else {
        return false;
    };
    let at = match (outer.version, kind) {
        // Unreachable, source quench, redirect, time exceeded, parameter problem.
        (Version::V4, 3 | 4 | 5 | 11 | 12) | (Version::V6, 1..=4) => 8,
        (Version::V6, REDIRECT_V6) => quoted_by_redirect(packet, outer.transport),
        _ => return false,
    };
    quoted.redirect = u32::from(match outer.version {
        Version::V4 => kind == REDIRECT_V4,
        Version::V6 => kind == REDIRECT_V6,
    });
    if !parse::header(
        packet,
        outer.version,
        outer.transport + at,
        &mut quoted.header,
    ) {
        return false;
    }
    let Some(ports) = quoted.header.ports(packet) else {
        return false;
    };
    (quoted.source_port, quoted.destination_port) = ports;
    true
}

/// Where a redirect of IPv6 quotes: behind target, destination, and the header of the option that
/// does. The target's link-layer address may come first (RFC 4861 section 4.5).
#[inline(always)]
fn quoted_by_redirect<P: Packet>(packet: &P, transport: u32) -> u32 {
    const OPTIONS: u32 = 40;
    const LINK_LAYER_ADDRESS: u8 = 2;
    let before = match packet.read::<[u8; 2]>(transport + OPTIONS) {
        Some([LINK_LAYER_ADDRESS, length]) => u32::from(length) * 8,
        _ => 0,
    };
    OPTIONS + before + 8
}

/// Replaces one end of the quoted packet, and, where the error itself is from or for what was
/// there (`outer_end`), that end of the error.
///
/// An error may quote as few as eight bytes of the transport header: a sum that is not among them is
/// not changed, and the error's own sum then changes by the port alone.
#[inline(always)]
pub fn readdress<P: Packet>(
    packet: &mut P,
    outer: &Header,
    outer_end: Option<End>,
    quoted: &Quoted,
    end: End,
    to: &Place,
) -> bool {
    let inner = &quoted.header;
    let error_sum = outer.transport + SUM;
    let (from, port) = match end {
        End::Source => (inner.source, quoted.source_port),
        End::Destination => (inner.destination, quoted.destination_port),
    };
    // In IPv4 the sum of the quoted header takes up the change of its address.
    if !put_address(packet, inner, end, &to.address)
        || (inner.version == Version::V6
            && !packet.fix_sum(error_sum, &from, &to.address, Covers::Data, Sum::Plain))
    {
        return false;
    }
    if port != to.port
        && (!packet.write(port_at(inner, end), &to.port.to_be_bytes())
            || !packet.fix_sum_half(error_sum, port, to.port, Sum::Plain))
    {
        return false;
    }
    if !fix_quoted_sum(packet, inner, error_sum, (&from, port), to) {
        return false;
    }
    let Some(end) = outer_end else {
        return true;
    };
    put_address(packet, outer, end, &to.address)
        && (outer.version == Version::V4
            || packet.fix_sum(
                error_sum,
                &from,
                &to.address,
                Covers::PseudoHeader,
                Sum::Plain,
            ))
}

/// Changes the quoted transport header's sum, if it is quoted.
#[inline(always)]
fn fix_quoted_sum<P: Packet>(
    packet: &mut P,
    inner: &Header,
    error_sum: u32,
    (from, port): (&super::Words, u16),
    to: &Place,
) -> bool {
    let (at, _) = inner.sum();
    let Some(before) = packet.read::<[u8; 2]>(at) else {
        return true;
    };
    let before = u16::from_be_bytes(before);
    if inner.protocol != TCP && before == 0 {
        return true;
    }
    let mut after = before;
    let mut word = 0;
    while word < 4 {
        after = sum::of_word(after, from[word], to.address[word]);
        word += 1;
    }
    after = sum::of_half(after, port, to.port);
    // Zero would say that there was none (RFC 768).
    if inner.protocol != TCP && after == 0 {
        after = 0xffff;
    }
    packet.write(at, &after.to_be_bytes())
        && packet.fix_sum_half(error_sum, before, after, Sum::Plain)
}
