//! Packets as a host makes them: every sum computed anew.

use std::{net::IpAddr, net::SocketAddr, vec, vec::Vec};

use super::{Bytes, folded};

/// What follows the IP header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// TCP with these flags, sequence and acknowledgement numbers, and data.
    Tcp(u32, u32, u32, Vec<u8>),
    /// UDP with data.
    Udp(Vec<u8>),
    /// UDP over IPv4 without a sum.
    UdpWithoutSum(Vec<u8>),
    /// An ICMP error of this type that quotes so many bytes of a packet.
    Error(u8, std::boxed::Box<Build>, usize),
}

impl Payload {
    /// Whether it is of TCP.
    pub const fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp(..))
    }
}

/// A packet to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// Sender; its port counts unless it is an error.
    pub from: SocketAddr,
    /// Receiver.
    pub to: SocketAddr,
    /// Bytes of options (IPv4) or of a destination options header (IPv6), a multiple of 8.
    pub options: usize,
    /// What it carries.
    pub payload: Payload,
}

impl Build {
    /// A datagram, by what `SocketAddr` reads.
    pub fn udp(from: &str, to: &str) -> Self {
        Self::of(from, to, Payload::Udp(b"question".to_vec()))
    }

    /// A packet without options.
    pub fn of(from: &str, to: &str, payload: Payload) -> Self {
        Self {
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            options: 0,
            payload,
        }
    }

    /// The whole packet.
    pub fn bytes(&self) -> Bytes {
        let (protocol, body) = self.body();
        let mut packet = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let header = 20 + self.options;
                let length = u16::try_from(header + body.len()).unwrap().to_be_bytes();
                let mut ip = vec![0x40 | u8::try_from(header / 4).unwrap(), 0];
                ip.extend(length);
                ip.extend([0x12, 0x34, 0x40, 0, 64, protocol, 0, 0]);
                ip.extend(from.octets());
                ip.extend(to.octets());
                ip.resize(header, 1);
                let sum = !folded(&ip);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                ip
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let length = u16::try_from(self.options + body.len()).unwrap();
                let mut ip = vec![0x60, 0, 0, 0];
                ip.extend(length.to_be_bytes());
                ip.extend([if self.options == 0 { protocol } else { 60 }, 64]);
                ip.extend(from.octets());
                ip.extend(to.octets());
                if self.options > 0 {
                    let units = u8::try_from(self.options / 8 - 1).unwrap();
                    ip.extend([protocol, units]);
                    ip.resize(40 + self.options, 0);
                }
                ip
            }
            _ => panic!("one family"),
        };
        packet.extend(body);
        Bytes(packet)
    }

    /// Two fragments of the packet, as its sender makes them; without options.
    pub fn fragments(&self, identification: u16) -> [Bytes; 2] {
        const CUT: usize = 32;
        let whole = self.bytes().0;
        if self.from.is_ipv4() {
            return [(&whole[20..20 + CUT], 0x2000_u16), (&whole[20 + CUT..], 4)].map(
                |(data, offset)| {
                    let mut packet = whole[..20].to_vec();
                    let length = u16::try_from(20 + data.len()).unwrap();
                    packet[2..4].copy_from_slice(&length.to_be_bytes());
                    packet[4..6].copy_from_slice(&identification.to_be_bytes());
                    packet[6..8].copy_from_slice(&offset.to_be_bytes());
                    packet[10..12].copy_from_slice(&[0, 0]);
                    let sum = !folded(&packet);
                    packet[10..12].copy_from_slice(&sum.to_be_bytes());
                    packet.extend(data);
                    Bytes(packet)
                },
            );
        }
        [(&whole[40..40 + CUT], 1_u16), (&whole[40 + CUT..], 32)].map(|(data, offset)| {
            let mut packet = whole[..40].to_vec();
            let length = u16::try_from(8 + data.len()).unwrap();
            packet[4..6].copy_from_slice(&length.to_be_bytes());
            packet[6] = 44;
            packet.extend([17, 0]);
            packet.extend(offset.to_be_bytes());
            packet.extend(u32::from(identification).to_be_bytes());
            packet.extend(data);
            Bytes(packet)
        })
    }

    fn body(&self) -> (u8, Vec<u8>) {
        let ports = [self.from.port().to_be_bytes(), self.to.port().to_be_bytes()].concat();
        let (protocol, mut body, at) = match &self.payload {
            Payload::Tcp(seen, sequence, acknowledged, data) => {
                let mut body = ports;
                body.extend(sequence.to_be_bytes());
                body.extend(acknowledged.to_be_bytes());
                body.extend([0x50, u8::try_from(*seen).unwrap(), 0xff, 0xff, 0, 0, 0, 0]);
                body.extend(data);
                (6, body, 16)
            }
            Payload::Udp(data) | Payload::UdpWithoutSum(data) => {
                let mut body = ports;
                body.extend(u16::try_from(8 + data.len()).unwrap().to_be_bytes());
                body.extend([0, 0]);
                body.extend(data);
                (17, body, 6)
            }
            Payload::Error(kind, about, bytes) => {
                let mut body = vec![*kind, 0, 0, 0, 0, 0, 0, 0];
                let mut quoted = about.bytes().0;
                quoted.truncate(*bytes);
                body.extend(quoted);
                (if self.from.is_ipv4() { 1 } else { 58 }, body, 2)
            }
        };
        if matches!(self.payload, Payload::UdpWithoutSum(_)) {
            return (protocol, body);
        }
        let mut covered = self.pseudo_header(protocol, body.len());
        covered.extend(&body);
        let mut sum = !folded(&covered);
        if sum == 0 && protocol == 17 {
            sum = 0xffff;
        }
        body[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        (protocol, body)
    }

    fn pseudo_header(&self, protocol: u8, length: usize) -> Vec<u8> {
        let mut header = Vec::new();
        match (self.from.ip(), self.to.ip()) {
            // ICMP has none.
            (IpAddr::V4(_), _) if protocol == 1 => return header,
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                header.extend([from.octets(), to.octets()].concat());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                header.extend([from.octets(), to.octets()].concat());
            }
            _ => panic!("one family"),
        }
        header.extend(u32::try_from(length).unwrap().to_be_bytes());
        header.extend([0, 0, 0, protocol]);
        header
    }
}
