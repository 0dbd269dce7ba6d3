//! Who is at the other end of a connection, as far as the system itself says so.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One that shares what there is with others: connections, and calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A user of this host, on a Unix socket.
    User(u32),
    /// A host. This one is one, whichever of its loopback addresses is used; of IPv6, what a host
    /// is given as a whole is one.
    Host(IpAddr),
}

impl Peer {
    /// Whose address this is.
    pub fn at(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self::Host(match address {
            _ if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V4(_) => address,
            // Whoever has one address of a /64 has all of them.
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_one_peer_whatever_address_it_takes() {
        let peer = |text: &str| Peer::at(text.parse().unwrap());
        assert_eq!(peer("127.0.0.1"), peer("127.3.2.1"));
        assert_eq!(peer("127.0.0.1"), peer("::1"));
        assert_eq!(peer("127.0.0.1"), peer("::ffff:127.0.0.9"));
        assert_eq!(peer("192.0.2.1"), peer("::ffff:192.0.2.1"));
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:1"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
    }
}
