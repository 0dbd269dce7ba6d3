//! First packets of connections as bytes, and what can be told of bytes that come out of a node.
//! Pure: knows no device and no socket.
//!
//! Every packet carries a number of its own where no translation of addresses touches it: TCP in
//! its sequence number, UDP in its payload, SCTP in its initiate tag. So what comes out is known
//! again whatever became of its addresses and ports, in an error that quotes it, too.

mod checksum;
mod reply;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proxy_model::Protocol;

pub use reply::{TooBig, is_sound};

/// A TCP SYN, a UDP datagram or an SCTP INIT; or the answer to one of the first two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    /// Who it says sends it.
    pub source: SocketAddr,
    /// Where it is going. Of the same family.
    pub destination: SocketAddr,
    /// What it speaks.
    pub protocol: Protocol,
    /// Its number; never 0.
    pub token: u32,
    /// The number of the SYN that it acknowledges.
    pub answers: Option<u32>,
    /// What rules wrote into its header (DSCP, RFC 2474); 0 where nobody did, or none can be seen.
    pub class: u8,
}

/// What bytes that come out of a node mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The first packet of a connection.
    First(Datagram),
    /// The packet of this number is refused: nobody listens.
    Refusal(u32),
    /// A packet is too big for the way ahead.
    TooBig(TooBig),
}

/// The numbers of the protocols in IP headers.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;
const SCTP: u8 = 132;

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// "Destination unreachable: port unreachable", as type and code.
const UNREACHABLE: (u8, u8) = (3, 3);
const UNREACHABLE6: (u8, u8) = (1, 4);

/// "Fragmentation needed" and "packet too big", as type and code.
const TOO_BIG: (u8, u8) = (3, 4);
const TOO_BIG6: (u8, u8) = (2, 0);

/// Before the number in a UDP payload: other datagrams are noise.
const MARK: [u8; 4] = *b"cvtj";

const HOPS: u8 = 64;

/// What stands for `protocol` in IP headers.
pub const fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => TCP,
        Protocol::Udp => UDP,
        Protocol::Sctp => SCTP,
    }
}

impl Datagram {
    /// The first of a connection.
    pub const fn first(
        source: SocketAddr,
        destination: SocketAddr,
        protocol: Protocol,
        token: u32,
    ) -> Self {
        Self {
            source,
            destination,
            protocol,
            token,
            answers: None,
            class: 0,
        }
    }

    /// The packet from its IP header on.
    ///
    /// # Panics
    ///
    /// If source and destination are of different families.
    pub fn encode(&self) -> Vec<u8> {
        let mut segment = self.segment();
        self.protect(&mut segment);
        let number = number(self.protocol);
        behind(self.source.ip(), self.destination.ip(), number, &segment)
    }

    /// The packet behind its IP header, without checksum.
    fn segment(&self) -> Vec<u8> {
        let mut segment = Vec::new();
        segment.extend(self.source.port().to_be_bytes());
        segment.extend(self.destination.port().to_be_bytes());
        let token = self.token.to_be_bytes();
        match self.protocol {
            Protocol::Tcp => {
                segment.extend(token);
                let (acknowledged, flags) = match self.answers {
                    None => (0, SYN),
                    // A SYN counts for one.
                    Some(token) => (token.wrapping_add(1), SYN | ACK),
                };
                segment.extend(acknowledged.to_be_bytes());
                // Five words of header, a window, no checksum, nothing urgent.
                segment.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
            }
            Protocol::Udp => {
                segment.extend([0, 16, 0, 0]);
                segment.extend(MARK);
                segment.extend(token);
            }
            Protocol::Sctp => {
                // No tag is known yet, no checksum; then the chunk INIT of 20 bytes.
                segment.extend([0; 8]);
                segment.extend([1, 0, 0, 20]);
                segment.extend(token);
                // A window, one stream each way, the first sequence number.
                segment.extend([0, 1, 0, 0, 0, 1, 0, 1]);
                segment.extend(token);
            }
        }
        segment
    }

    fn protect(&self, segment: &mut [u8]) {
        match self.protocol {
            Protocol::Tcp | Protocol::Udp => {
                let pseudo = checksum::pseudo_header(
                    self.source.ip(),
                    self.destination.ip(),
                    number(self.protocol),
                    segment.len(),
                );
                let sum = match checksum::internet(&[&pseudo, segment]) {
                    // In UDP, 0 would say that there is none.
                    0 => 0xffff,
                    sum => sum,
                };
                let at = if self.protocol == Protocol::Tcp {
                    16
                } else {
                    6
                };
                segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            }
            Protocol::Sctp => {
                let sum = checksum::crc32c(segment);
                segment[8..12].copy_from_slice(&sum.to_le_bytes());
            }
        }
    }
}

/// A packet with this `segment` behind its IP header.
fn behind(source: IpAddr, destination: IpAddr, number: u8, segment: &[u8]) -> Vec<u8> {
    let length = u16::try_from(segment.len()).expect("a first packet is short");
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut packet = vec![0x45, 0];
            packet.extend((20 + length).to_be_bytes());
            // No identification, do not fragment.
            packet.extend([0, 0, 0x40, 0, HOPS, number, 0, 0]);
            packet.extend(source.octets());
            packet.extend(destination.octets());
            let sum = checksum::internet(&[&packet]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            packet.extend(segment);
            packet
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut packet = vec![0x60, 0, 0, 0];
            packet.extend(length.to_be_bytes());
            packet.extend([number, HOPS]);
            packet.extend(source.octets());
            packet.extend(destination.octets());
            packet.extend(segment);
            packet
        }
        (source, destination) => panic!("{source} and {destination} are of two families"),
    }
}

/// What `packet`, from its IP header on, means; `None` if that is not our business.
pub fn decode(packet: &[u8]) -> Option<Meaning> {
    let (source, destination, number, payload) = split(packet)?;
    let mut meaning = behind_header(source, destination, number, payload)?;
    if let Meaning::First(datagram) = &mut meaning {
        datagram.class = match (packet[0] >> 4, packet[1]) {
            (4, class) => class >> 2,
            (_, low) => ((packet[0] << 4) | (low >> 4)) >> 2,
        };
    }
    Some(meaning)
}

/// The same for what is behind an IP header which said that.
pub fn behind_header(
    source: IpAddr,
    destination: IpAddr,
    number: u8,
    payload: &[u8],
) -> Option<Meaning> {
    match (number, payload.get(..2)?) {
        (ICMP, [kind, code]) if (*kind, *code) == UNREACHABLE => quoted(payload),
        (ICMP6, [kind, code]) if (*kind, *code) == UNREACHABLE6 => quoted(payload),
        (ICMP, [kind, code]) if (*kind, *code) == TOO_BIG => {
            TooBig::read(source, destination, payload).map(Meaning::TooBig)
        }
        (ICMP6, [kind, code]) if (*kind, *code) == TOO_BIG6 => {
            TooBig::read(source, destination, payload).map(Meaning::TooBig)
        }
        (TCP, _) if payload.get(13)? & RST != 0 => {
            // It acknowledges the SYN, which counts for one.
            let acknowledged = word(payload, 8)?.wrapping_sub(1);
            Some(Meaning::Refusal(acknowledged))
        }
        _ => first(source, destination, number, payload).map(Meaning::First),
    }
}

/// The refusal of the packet that an ICMP message quotes.
fn quoted(message: &[u8]) -> Option<Meaning> {
    Some(Meaning::Refusal(quote(message)?.token))
}

/// The packet that an ICMP message quotes.
fn quote(message: &[u8]) -> Option<Datagram> {
    let (source, destination, number, payload) = split(message.get(8..)?)?;
    first(source, destination, number, payload)
}

/// Source, destination, protocol number and what is behind the IP header.
fn split(packet: &[u8]) -> Option<(IpAddr, IpAddr, u8, &[u8])> {
    match packet.first()? >> 4 {
        4 => {
            let length = usize::from(packet[0] & 0xf) * 4;
            let address = |at| -> Option<IpAddr> {
                let octets: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
                Some(Ipv4Addr::from(octets).into())
            };
            let payload = packet.get(length..)?;
            Some((address(12)?, address(16)?, *packet.get(9)?, payload))
        }
        6 => {
            let address = |at| -> Option<IpAddr> {
                let octets: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
                Some(Ipv6Addr::from(octets).into())
            };
            let payload = packet.get(40..)?;
            Some((address(8)?, address(24)?, *packet.get(6)?, payload))
        }
        _ => None,
    }
}

fn first(source: IpAddr, destination: IpAddr, number: u8, segment: &[u8]) -> Option<Datagram> {
    let (protocol, token) = match number {
        TCP if segment.get(13)? & SYN != 0 => (Protocol::Tcp, word(segment, 4)?),
        UDP if segment.get(8..12)? == MARK => (Protocol::Udp, word(segment, 12)?),
        SCTP if *segment.get(12)? == 1 => (Protocol::Sctp, word(segment, 16)?),
        _ => return None,
    };
    let port = |at| -> Option<u16> {
        let octets = segment.get(at..at + 2)?.try_into().ok()?;
        Some(u16::from_be_bytes(octets))
    };
    let source = SocketAddr::new(source, port(0)?);
    let destination = SocketAddr::new(destination, port(2)?);
    let acknowledged = match protocol {
        Protocol::Tcp if segment.get(13)? & ACK != 0 => Some(word(segment, 8)?.wrapping_sub(1)),
        _ => None,
    };
    Some(Datagram {
        answers: acknowledged,
        ..Datagram::first(source, destination, protocol, token)
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let octets = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_be_bytes(octets))
}

#[cfg(test)]
mod tests;
