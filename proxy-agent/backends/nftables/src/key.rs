//! Keys and data of set elements, as the kernel compares them: each part padded to whole words of
//! four bytes, the way registers hold them. Knows which parts there are, not what sets there are.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use proxy_model::{IpFamily, Protocol};

/// What one part of a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// An address of the table's family.
    Address,
    /// A protocol number.
    Protocol,
    /// A port, in network byte order.
    Port,
    /// A number in the byte order of this host: what `numgen` draws.
    Number,
    /// A number like a packet mark.
    Mark,
}

impl Part {
    /// Bytes that it takes, padding included.
    pub const fn width(self, family: IpFamily) -> usize {
        match (self, family) {
            (Self::Address, IpFamily::V6) => 16,
            _ => 4,
        }
    }

    /// Bytes of all of `parts`.
    pub fn widths(parts: &[Self], family: IpFamily) -> usize {
        parts.iter().map(|part| part.width(family)).sum()
    }
}

/// Two IPv6 addresses, or one, a protocol, a port and a number.
const LONGEST: usize = 32;

/// A key, or the data that a map has for one. Copying it is cheap, unlike allocating 100,000.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    length: u8,
    bytes: [u8; LONGEST],
}

impl Key {
    /// Without parts.
    pub const fn new() -> Self {
        Self {
            length: 0,
            bytes: [0; LONGEST],
        }
    }

    /// As the kernel told it; `None` if it is none of ours: too long.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut key = Self::new();
        (bytes.len() <= LONGEST).then(|| key.push(bytes))?;
        Some(key)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    fn push(&mut self, part: &[u8]) {
        let start = usize::from(self.length);
        self.bytes[start..start + part.len()].copy_from_slice(part);
        let padded = part.len().next_multiple_of(4);
        self.length += u8::try_from(padded).expect("no part is longer than a key");
    }

    /// With an address after what is there.
    pub fn address(mut self, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => self.push(&v4.octets()),
            IpAddr::V6(v6) => self.push(&v6.octets()),
        }
        self
    }

    /// With a protocol.
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.push(&[number(protocol)]);
        self
    }

    /// With a port.
    pub fn port(mut self, port: u16) -> Self {
        self.push(&port.to_be_bytes());
        self
    }

    /// With a number.
    pub fn number(mut self, number: u32) -> Self {
        self.push(&number.to_ne_bytes());
        self
    }

    /// With an address and a port.
    pub fn endpoint(self, endpoint: SocketAddr) -> Self {
        self.address(endpoint.ip()).port(endpoint.port())
    }

    /// The number at its end.
    pub fn last_number(&self) -> Option<u32> {
        word_of(self.as_bytes().last_chunk::<4>()?)
    }

    /// Address, port and protocol, if it is made of those.
    pub fn frontend(&self) -> Option<(SocketAddr, Protocol)> {
        let bytes = self.as_bytes();
        let (ip, rest) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
        let port = u16::from_be_bytes([rest[4], rest[5]]);
        Some((SocketAddr::new(address(ip)?, port), protocol(rest[0])?))
    }

    /// The same with numbers in network byte order: what is sorted by it reads in order, on every
    /// host the same.
    pub fn in_order(&self, parts: &[Part], family: IpFamily) -> Self {
        let mut key = *self;
        let mut at = 0;
        for part in parts {
            let width = part.width(family);
            if matches!(part, Part::Number | Part::Mark)
                && let Some(bytes) = key.bytes.get_mut(at..at + width)
                && let Some(number) = word_of(bytes)
            {
                bytes.copy_from_slice(&number.to_be_bytes());
            }
            at += width;
        }
        key
    }

    /// In the words of `nft`; `None` if it has not those parts.
    pub fn text(&self, parts: &[Part], family: IpFamily) -> Option<String> {
        let mut rest = self.as_bytes();
        let mut words = Vec::with_capacity(parts.len());
        for part in parts {
            let (bytes, after) = rest.split_at_checked(part.width(family))?;
            rest = after;
            words.push(match part {
                Part::Address => address(bytes)?.to_string(),
                Part::Protocol => match protocol(bytes[0]) {
                    Some(protocol) => word(protocol).to_owned(),
                    None => bytes[0].to_string(),
                },
                Part::Port => u16::from_be_bytes([bytes[0], bytes[1]]).to_string(),
                Part::Number => word_of(bytes)?.to_string(),
                Part::Mark => format!("{:#010x}", word_of(bytes)?),
            });
        }
        rest.is_empty().then(|| words.join(" . "))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:02x?})", self.as_bytes())
    }
}

fn word_of(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

/// The protocol's number (RFC 790, RFC 9260).
pub const fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    }
}

fn protocol(number_of_it: u8) -> Option<Protocol> {
    let mut all = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].into_iter();
    all.find(|one| number(*one) == number_of_it)
}

/// As `nft` calls it.
pub const fn word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_takes_whole_words() {
        let key = Key::new()
            .address("10.96.0.1".parse().unwrap())
            .protocol(Protocol::Udp)
            .port(53);
        assert_eq!(key.as_bytes(), [10, 96, 0, 1, 17, 0, 0, 0, 0, 53, 0, 0]);
        assert_eq!(Key::from_bytes(key.as_bytes()), Some(key));
        assert_eq!(Key::from_bytes(&[0; 33]), None);
        let frontend = ("10.96.0.1:53".parse().unwrap(), Protocol::Udp);
        assert_eq!(key.frontend(), Some(frontend));
        assert_eq!(Key::new().port(53).frontend(), None);
    }

    #[test]
    fn keys_read_as_nft_prints_them() {
        use Part::{Address, Mark, Number, Port, Protocol as Proto};
        let key = Key::new()
            .address("fd00::1".parse().unwrap())
            .protocol(Protocol::Sctp)
            .port(80)
            .number(3);
        let parts = [Address, Proto, Port, Number];
        assert_eq!(Part::widths(&parts, IpFamily::V6), key.as_bytes().len());
        assert_eq!(
            key.text(&parts, IpFamily::V6).as_deref(),
            Some("fd00::1 . sctp . 80 . 3")
        );
        let marked = Key::new().number(0x12);
        assert_eq!(
            marked.text(&[Mark], IpFamily::V4).as_deref(),
            Some("0x00000012")
        );
        let many = [1, 256, 2].map(|number| Key::new().port(80).number(number));
        let mut sorted = many;
        sorted.sort_by_key(|key| key.in_order(&[Port, Number], IpFamily::V4));
        assert_eq!(sorted, [many[0], many[2], many[1]]);
        // What is there and what should be there need not have the same form.
        assert_eq!(key.text(&parts, IpFamily::V4), None);
        assert_eq!(key.text(&[Address], IpFamily::V6), None);
        assert_eq!(marked.text(&[Mark, Mark], IpFamily::V6), None);
    }
}
