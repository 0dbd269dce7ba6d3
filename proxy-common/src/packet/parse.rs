//! What the headers of a packet say.

use bytemuck::{Pod, Zeroable};

use super::{Packet, Sum, Version, Words};
use crate::{
    address::mapped_words,
    socket::{TCP, UDP},
};

/// IP protocol number of ICMP.
pub const ICMP: u8 = 1;
/// IP protocol number of `ICMPv6`.
pub const ICMP_V6: u8 = 58;

/// IPv6 extension headers that are passed over to find the transport header (RFC 8200 section 4).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;
/// Far more than any packet has.
const MOST_EXTENSIONS: u32 = 4;

/// Bytes of an IPv4 header without options.
pub const V4_HEADER: u32 = 20;
/// Bytes of an IPv6 header.
pub const V6_HEADER: u32 = 40;

/// Flags of TCP (RFC 9293 section 3.1).
pub mod flags {
    /// No more data from the sender.
    pub const FIN: u32 = 1 << 0;
    /// Opens a connection.
    pub const SYN: u32 = 1 << 1;
    /// Ends it at once.
    pub const RST: u32 = 1 << 2;
    /// The acknowledgement number counts.
    pub const ACK: u32 = 1 << 4;
}

/// Which part of a datagram a packet is.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// The first fragment: it has the ports.
    First,
    /// A later one: it has none.
    Later,
}

/// What an IP header says. Without bytes that nothing is in, see
/// [`Endpoint::flags`](crate::endpoint::Endpoint::flags).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Sender.
    pub source: Words,
    /// Receiver.
    pub destination: Words,
    /// Where the IP header begins: not at 0 if it is quoted by an error.
    pub at: u32,
    /// Where what follows begins.
    pub transport: u32,
    /// Tells the fragments of one datagram from others.
    pub identification: u32,
    /// Bytes behind the IP header, by its word; 0 for a packet that is longer than it can say.
    pub length: u32,
    /// The word of an IPv4 header that has its sum, with time to live and protocol, as it is in
    /// memory.
    pub sum_word: u32,
    /// Protocol of what follows.
    pub protocol: u8,
    /// IP version.
    pub version: Version,
    /// Which part of the datagram this is.
    pub part: Part,
    /// There are options, or extension headers.
    pub extended: bool,
}

/// What the beginning of a TCP or UDP header says; likewise.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Transport {
    /// Sender's port.
    pub source_port: u16,
    /// Receiver's port.
    pub destination_port: u16,
    /// [`flags`]; 0 for UDP.
    pub flags: u32,
    /// Sequence number of TCP.
    pub sequence: u32,
    /// Acknowledgement number of TCP.
    pub acknowledged: u32,
    /// Bytes of the TCP header; 0 for UDP.
    pub header: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct V4([u32; 5]);

/// Reads the IP header at `at`. False if it is damaged, cut off, or too deep.
#[inline(always)]
pub fn header<P: Packet>(packet: &P, version: Version, at: u32, header: &mut Header) -> bool {
    header.version = version;
    header.at = at;
    match version {
        Version::V4 => v4(packet, header),
        Version::V6 => v6(packet, header),
    }
}

#[inline(always)]
fn v4<P: Packet>(packet: &P, header: &mut Header) -> bool {
    let Some(V4([first, second, third, source, destination])) = packet.read(header.at) else {
        return false;
    };
    let [begin, _, length_high, length_low] = first.to_ne_bytes();
    let [id_high, id_low, offset_high, offset_low] = second.to_ne_bytes();
    let [_, protocol, _, _] = third.to_ne_bytes();
    let bytes = u32::from(begin & 0xf) * 4;
    if begin >> 4 != 4 || bytes < V4_HEADER {
        return false;
    }
    let offset = u16::from_be_bytes([offset_high, offset_low]);
    let length = u32::from(u16::from_be_bytes([length_high, length_low]));
    header.source = mapped_words(source);
    header.destination = mapped_words(destination);
    header.protocol = protocol;
    header.transport = header.at + bytes;
    header.part = match (offset & 0x1fff, offset & 0x2000 != 0) {
        (0, false) => Part::Whole,
        (0, true) => Part::First,
        _ => Part::Later,
    };
    header.identification = u32::from(u16::from_be_bytes([id_high, id_low]));
    header.extended = bytes != V4_HEADER;
    header.sum_word = third;
    header.length = length.saturating_sub(bytes);
    true
}

#[inline(always)]
fn v6<P: Packet>(packet: &P, header: &mut Header) -> bool {
    let Some([first, second]) = packet.read::<[u32; 2]>(header.at) else {
        return false;
    };
    let (Some(source), Some(destination)) = (
        packet.read::<Words>(header.at + 8),
        packet.read::<Words>(header.at + 24),
    ) else {
        return false;
    };
    let [length_high, length_low, next, _] = second.to_ne_bytes();
    if first.to_ne_bytes()[0] >> 4 != 6 {
        return false;
    }
    header.source = source;
    header.destination = destination;
    header.protocol = next;
    header.transport = header.at + V6_HEADER;
    header.part = Part::Whole;
    header.identification = 0;
    header.extended = false;
    header.sum_word = 0;
    header.length = u32::from(u16::from_be_bytes([length_high, length_low]));
    !is_extension(next) || extensions(packet, header)
}

/// Passes over extension headers.
#[inline(never)]
fn extensions<P: Packet>(packet: &P, header: &mut Header) -> bool {
    let mut passed = 0;
    while is_extension(header.protocol) {
        if passed == MOST_EXTENSIONS {
            return false;
        }
        passed += 1;
        let Some([word, id]) = packet.read::<[u32; 2]>(header.transport) else {
            return false;
        };
        let [next, size, offset_high, offset_low] = word.to_ne_bytes();
        let mut bytes = 8;
        if header.protocol == FRAGMENT {
            let offset = u16::from_be_bytes([offset_high, offset_low]);
            // A datagram in one fragment is whole (RFC 6946).
            header.part = match (offset & 0xfff8, offset & 1 != 0) {
                (0, false) => header.part,
                (0, true) => Part::First,
                _ => Part::Later,
            };
            header.identification = u32::from_be(id);
        } else {
            bytes += u32::from(size) * 8;
        }
        header.extended = true;
        header.protocol = next;
        header.transport += bytes;
        header.length = header.length.saturating_sub(bytes);
        // What is behind the first part of a later fragment is not a header.
        if header.part == Part::Later {
            break;
        }
    }
    true
}

const fn is_extension(protocol: u8) -> bool {
    matches!(
        protocol,
        HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS
    )
}

impl Header {
    /// One that nothing was read into.
    pub const NONE: Self = Self {
        source: [0; 4],
        destination: [0; 4],
        at: 0,
        transport: 0,
        identification: 0,
        length: 0,
        sum_word: 0,
        protocol: 0,
        version: Version::V4,
        part: Part::Whole,
        extended: false,
    };

    /// Reads the transport header behind this one. False if it is cut off, of another protocol, or not
    /// in this fragment.
    #[inline(always)]
    pub fn read_transport<P: Packet>(&self, packet: &P, transport: &mut Transport) -> bool {
        if self.protocol == TCP {
            let Some([ports, sequence, acknowledged, rest]) =
                packet.read::<[u32; 4]>(self.transport)
            else {
                return false;
            };
            let [words, flags, _, _] = rest.to_ne_bytes();
            (transport.source_port, transport.destination_port) = split(ports);
            transport.flags = u32::from(flags);
            transport.sequence = u32::from_be(sequence);
            transport.acknowledged = u32::from_be(acknowledged);
            transport.header = u32::from(words >> 4) * 4;
        } else {
            let Some(ports) = self.ports(packet) else {
                return false;
            };
            (transport.source_port, transport.destination_port) = ports;
            transport.flags = 0;
            transport.header = 0;
        }
        true
    }

    /// The ports alone, which is all that an error must quote.
    #[inline(always)]
    pub fn ports<P: Packet>(&self, packet: &P) -> Option<(u16, u16)> {
        if self.part == Part::Later || !matches!(self.protocol, TCP | UDP) {
            return None;
        }
        Some(split(packet.read(self.transport)?))
    }

    /// Whether an ICMP message follows.
    #[inline(always)]
    pub const fn is_icmp(&self) -> bool {
        match self.version {
            Version::V4 => self.protocol == ICMP,
            Version::V6 => self.protocol == ICMP_V6,
        }
    }

    /// Where the sum of the transport header is, and what zero means there.
    #[inline(always)]
    pub(super) const fn sum(&self) -> (u32, Sum) {
        if self.protocol == TCP {
            (self.transport + 16, Sum::Plain)
        } else {
            (self.transport + 6, Sum::ZeroIsNone)
        }
    }
}

/// Both ports of the first word of a transport header.
#[inline(always)]
fn split(ports: u32) -> (u16, u16) {
    let [a, b, c, d] = ports.to_ne_bytes();
    (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}

/// The word that [`split`] takes apart.
#[inline(always)]
pub(super) const fn joined(source: u16, destination: u16) -> u32 {
    let ([a, b], [c, d]) = (source.to_be_bytes(), destination.to_be_bytes());
    u32::from_ne_bytes([a, b, c, d])
}
