//! Replaces an address and a port of a packet, with the sums that cover them.

use super::{
    Covers, Packet, Version, Words, pairs,
    parse::{Header, Part, Transport, joined},
    sum,
};

/// Which end of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Whom it is from.
    Source,
    /// Whom it is for.
    Destination,
}

/// An address and a port. Without bytes that nothing is in, see
/// [`Endpoint::flags`](crate::endpoint::Endpoint::flags).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Address.
    pub address: Words,
    /// Port, host order.
    pub port: u16,
    padding: u16,
}

impl Place {
    /// This address and port.
    #[inline(always)]
    pub const fn new(address: Words, port: u16) -> Self {
        Self {
            address,
            port,
            padding: 0,
        }
    }
}

/// Replaces one end of the packet that `header` and `transport` describe. A later fragment has no
/// ports, and gets the address alone: the sum is in the first one.
#[inline(always)]
pub fn readdress<P: Packet>(
    packet: &mut P,
    header: &Header,
    transport: &Transport,
    end: End,
    to: &Place,
) -> bool {
    let (from, port) = match end {
        End::Source => (&header.source, transport.source_port),
        End::Destination => (&header.destination, transport.destination_port),
    };
    if header.part == Part::Later {
        return put_address(packet, header, end, &to.address);
    }
    let put = if header.extended {
        put_address(packet, header, end, &to.address)
            && packet.write(port_at(header, end), &to.port.to_be_bytes())
    } else {
        put_place(packet, header, transport, end, to)
    };
    let (sum_at, sum) = header.sum();
    put && packet.fix_sum(sum_at, from, &to.address, Covers::PseudoHeader, sum)
        && (port == to.port || packet.fix_sum_half(sum_at, port, to.port, sum))
}

/// Replaces address and port at once, with what is between them: the other end.
#[inline(always)]
fn put_place<P: Packet>(
    packet: &mut P,
    header: &Header,
    transport: &Transport,
    end: End,
    to: &Place,
) -> bool {
    let (mut source, mut destination) = (header.source, header.destination);
    let (mut from_port, mut to_port) = (transport.source_port, transport.destination_port);
    match end {
        End::Source => (source, from_port) = (to.address, to.port),
        End::Destination => (destination, to_port) = (to.address, to.port),
    }
    let ports = joined(from_port, to_port);
    let at = header.at + 8;
    match header.version {
        Version::V4 => {
            let sum = summed(header, end, &to.address);
            packet.write_header(at, &pairs(&[sum, source[3], destination[3], ports]))
        }
        Version::V6 => {
            let mut words = [0; 9];
            words[..4].copy_from_slice(&source);
            words[4..8].copy_from_slice(&destination);
            words[8] = ports;
            packet.write_header(at, &words)
        }
    }
}

/// Where the port of `end` is.
#[inline(always)]
pub(super) const fn port_at(header: &Header, end: End) -> u32 {
    match end {
        End::Source => header.transport,
        End::Destination => header.transport + 2,
    }
}

/// Replaces an address in an IP header, and changes that header's own sum.
#[inline(always)]
pub(super) fn put_address<P: Packet>(
    packet: &mut P,
    header: &Header,
    end: End,
    to: &Words,
) -> bool {
    let after_source = match end {
        End::Source => 0,
        End::Destination => 1,
    };
    match header.version {
        Version::V4 => {
            packet.write(header.at + 8, &summed(header, end, to))
                && packet.write(header.at + 12 + 4 * after_source, &to[3])
        }
        Version::V6 => packet.write(header.at + 8 + 16 * after_source, to),
    }
}

/// The word of an IPv4 header that its sum is in, once the address of `end` is replaced.
#[inline(always)]
fn summed(header: &Header, end: End, to: &Words) -> u32 {
    let from = match end {
        End::Source => header.source[3],
        End::Destination => header.destination[3],
    };
    let [time_to_live, protocol, high, low] = header.sum_word.to_ne_bytes();
    let sum = sum::of_word(u16::from_be_bytes([high, low]), from, to[3]);
    let [high, low] = sum.to_be_bytes();
    u32::from_ne_bytes([time_to_live, protocol, high, low])
}
