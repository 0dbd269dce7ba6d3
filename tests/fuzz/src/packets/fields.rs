//! Where things are in a packet: read here a second time, by the standards alone, so that programs
//! which read it wrongly are found out.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::Range,
};

use proxy_common::{
    packet::{Version, rewrite::End},
    socket::{TCP, UDP},
};

/// Numbers of protocols: ICMP, that of IPv6, and extension headers (RFC 8200).
const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;
const FRAGMENT: u8 = 44;
const OTHER_EXTENSIONS: [u8; 3] = [0, 43, 60];

/// The headers of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Its own.
    pub(super) outer: Header,
    /// That of the packet which it quotes, if it is an error.
    pub(super) quoted: Option<Header>,
}

/// An IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    version: Version,
    /// Where it begins.
    pub(super) at: usize,
    /// Where what follows begins.
    pub(super) body: usize,
    /// What follows.
    pub(super) protocol: u8,
    /// In a datagram of several fragments: whether this is the first.
    fragment: Option<bool>,
}

/// An address, and a port if there is one.
pub(super) type Side = (IpAddr, Option<u16>);

impl Layout {
    /// Reads a packet of this version. None if its header is damaged, or cut off.
    pub(super) fn of(version: Version, bytes: &[u8]) -> Option<Self> {
        let outer = Header::read(version, bytes, 0)?;
        let is_error = outer.fragment.is_none()
            && match (version, bytes.get(outer.body)) {
                (Version::V4, Some(3 | 4 | 5 | 11 | 12)) => outer.protocol == ICMP,
                (Version::V6, Some(1..=4)) => outer.protocol == ICMP_V6,
                _ => false,
            };
        let quoted = is_error.then(|| Header::read(version, bytes, outer.body + 8));
        let quoted = quoted.flatten();
        Some(Self { outer, quoted })
    }

    /// All headers.
    pub(super) fn headers(&self) -> impl Iterator<Item = Header> {
        [Some(self.outer), self.quoted].into_iter().flatten()
    }

    /// The packet with both ends exchanged. Its sums are as right as before: they do not tell one end
    /// from the other.
    pub(super) fn mirrored(&self, bytes: &[u8]) -> Vec<u8> {
        let mut mirrored = bytes.to_vec();
        for header in self.headers() {
            let mut swap = |one: Range<usize>, other: Range<usize>| {
                if bytes.len() >= other.end {
                    mirrored[one.clone()].copy_from_slice(&bytes[other.clone()]);
                    mirrored[other].copy_from_slice(&bytes[one]);
                }
            };
            swap(
                header.address(End::Source),
                header.address(End::Destination),
            );
            if header.has_ports() {
                swap(header.port(End::Source), header.port(End::Destination));
            }
        }
        mirrored
    }
}

impl Header {
    fn read(version: Version, bytes: &[u8], at: usize) -> Option<Self> {
        match version {
            Version::V4 => Self::read_v4(bytes, at),
            Version::V6 => Self::read_v6(bytes, at),
        }
    }

    fn read_v4(bytes: &[u8], at: usize) -> Option<Self> {
        let header = bytes.get(at..at + 20)?;
        let words = usize::from(header[0] & 0xf);
        if header[0] >> 4 != 4 || words < 5 {
            return None;
        }
        let offset = u16::from_be_bytes([header[6] & 0x1f, header[7]]);
        let more = header[6] & 0x20 != 0;
        Some(Self {
            version: Version::V4,
            at,
            body: at + words * 4,
            protocol: header[9],
            fragment: (more || offset != 0).then_some(offset == 0),
        })
    }

    fn read_v6(bytes: &[u8], at: usize) -> Option<Self> {
        let header = bytes.get(at..at + 40)?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let mut read = Self {
            version: Version::V6,
            at,
            body: at + 40,
            protocol: header[6],
            fragment: None,
        };
        while read.fragment != Some(false) {
            let extension = bytes.get(read.body..read.body + 8);
            if read.protocol == FRAGMENT {
                let extension = extension?;
                let word = u16::from_be_bytes([extension[2], extension[3]]);
                if word & !6 != 0 {
                    // What follows one that is not the first is not looked at.
                    read.fragment = Some(word >> 3 == 0);
                }
                read.protocol = extension[0];
                read.body += 8;
            } else if OTHER_EXTENSIONS.contains(&read.protocol) {
                let extension = extension?;
                read.protocol = extension[0];
                read.body += 8 + usize::from(extension[1]) * 8;
            } else {
                break;
            }
        }
        Some(read)
    }

    /// Whether ports follow.
    pub(super) fn has_ports(&self) -> bool {
        matches!(self.protocol, TCP | UDP) && self.fragment != Some(false)
    }

    /// Whether it is a fragment that has no ports.
    pub(super) fn is_later(&self) -> bool {
        self.fragment == Some(false)
    }

    /// Where the address of an end is.
    pub(super) fn address(&self, end: End) -> Range<usize> {
        let (first, length) = match self.version {
            Version::V4 => (self.at + 12, 4),
            Version::V6 => (self.at + 8, 16),
        };
        match end {
            End::Source => first..first + length,
            End::Destination => first + length..first + 2 * length,
        }
    }

    /// Where its port is, if there are ports.
    pub(super) fn port(&self, end: End) -> Range<usize> {
        match end {
            End::Source => self.body..self.body + 2,
            End::Destination => self.body + 2..self.body + 4,
        }
    }

    /// Where the header's own sum is.
    pub(super) fn own_sum(&self) -> Option<Range<usize>> {
        let sum = self.at + 10..self.at + 12;
        (self.version == Version::V4).then_some(sum)
    }

    /// Where the sum of TCP or UDP is, if there are ports.
    pub(super) fn transport_sum(&self) -> Range<usize> {
        let at = self.body + if self.protocol == TCP { 16 } else { 6 };
        at..at + 2
    }

    /// Who is at an end.
    pub(super) fn side(&self, bytes: &[u8], end: End) -> Side {
        let address = &bytes[self.address(end)];
        let address = match self.version {
            Version::V4 => {
                let octets: [u8; 4] = address.try_into().expect("this is its length");
                Ipv4Addr::from(octets).into()
            }
            Version::V6 => {
                let octets: [u8; 16] = address.try_into().expect("this is its length");
                Ipv6Addr::from(octets).into()
            }
        };
        let port = bytes.get(self.port(end)).filter(|_| self.has_ports());
        (
            address,
            port.map(|port| u16::from_be_bytes([port[0], port[1]])),
        )
    }
}
