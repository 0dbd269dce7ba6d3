//! What comes back: answers to first packets, and errors about packets on their way; and whether the
//! sums of what comes out are right.

use std::net::IpAddr;

use proxy_model::Protocol;

use super::{Datagram, ICMP, ICMP6, TCP, TOO_BIG, TOO_BIG6, UDP, behind, checksum, quote, split};

/// What a hop could carry that some packet is too big for. No packet of a test is.
const HOP: u16 = 1280;

/// "Fragmentation needed" or "packet too big".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooBig {
    /// Who says so.
    pub from: IpAddr,
    /// To whom.
    pub to: IpAddr,
    /// The packet that it quotes.
    pub about: Datagram,
}

impl Datagram {
    /// What whoever received it answers: a SYN and its acknowledgement, or another datagram.
    #[must_use]
    pub fn answer(&self, token: u32) -> Self {
        Self {
            answers: (self.protocol == Protocol::Tcp).then_some(self.token),
            ..Self::first(self.destination, self.source, self.protocol, token)
        }
    }
}

impl TooBig {
    /// The packet from its IP header on.
    ///
    /// # Panics
    ///
    /// If the addresses are of different families.
    pub fn encode(&self) -> Vec<u8> {
        let (number, (kind, code)) = match self.from {
            IpAddr::V4(_) => (ICMP, TOO_BIG),
            IpAddr::V6(_) => (ICMP6, TOO_BIG6),
        };
        let mut message = vec![kind, code, 0, 0, 0, 0];
        message.extend(HOP.to_be_bytes());
        message.extend(self.about.encode());
        let sum = sum(self.from, self.to, number, &message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        behind(self.from, self.to, number, &message)
    }

    /// What the message of such an error says.
    pub(super) fn read(from: IpAddr, to: IpAddr, message: &[u8]) -> Option<Self> {
        Some(Self {
            from,
            to,
            about: quote(message)?,
        })
    }
}

/// Whether every sum in `packet`, from its IP header on, is right; that of SCTP is not looked at.
pub fn is_sound(packet: &[u8]) -> bool {
    let Some((source, destination, number, segment)) = split(packet) else {
        return false;
    };
    if packet[0] >> 4 == 4 && checksum::internet(&[&packet[..packet.len() - segment.len()]]) != 0 {
        return false;
    }
    match number {
        // It says that there is none.
        UDP if source.is_ipv4() && segment.get(6..8) == Some(&[0, 0]) => true,
        TCP | UDP | ICMP | ICMP6 => sum(source, destination, number, segment) == 0,
        _ => true,
    }
}

/// The sum over a segment, and over what is protected beside it.
fn sum(source: IpAddr, destination: IpAddr, number: u8, segment: &[u8]) -> u16 {
    let pseudo = checksum::pseudo_header(source, destination, number, segment.len());
    let beside: &[u8] = if number == ICMP { &[] } else { &pseudo };
    checksum::internet(&[beside, segment])
}
