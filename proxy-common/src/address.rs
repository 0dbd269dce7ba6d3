//! Addresses as map keys hold them.

use core::net::{IpAddr, Ipv6Addr};

/// An IP address in network byte order, IPv4 mapped into IPv6 (`::ffff:a.b.c.d`, RFC 4291
/// section 2.5.5.2), so that a Service looks the same to `AF_INET` and `AF_INET6` sockets.
pub type Address = [u8; 16];

/// The map form of `address`.
pub const fn from_ip(address: IpAddr) -> Address {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The address that a map key holds.
pub fn to_ip(address: Address) -> IpAddr {
    let address = Ipv6Addr::from(address);
    match address.to_ipv4_mapped() {
        Some(address) => IpAddr::V4(address),
        None => IpAddr::V6(address),
    }
}

/// The map form of an IPv4 address as the kernel stores it (four bytes in network order, read as
/// a native integer), as words of [`from_words`].
#[inline(always)]
pub const fn mapped_words(address: u32) -> [u32; 4] {
    [0, 0, 0xffff_u32.to_be(), address]
}

/// The IPv4 address in the kernel's form, taken from the last four bytes.
#[inline(always)]
pub const fn to_kernel_v4(address: &Address) -> u32 {
    to_words(address)[3]
}

/// The map form of four native integers whose memory is in network order.
#[inline(always)]
pub const fn from_words(words: [u32; 4]) -> Address {
    let [a, b, c, d] = words;
    let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (a.to_ne_bytes(), b.to_ne_bytes());
    let ([c0, c1, c2, c3], [d0, d1, d2, d3]) = (c.to_ne_bytes(), d.to_ne_bytes());
    [
        a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3,
    ]
}

/// The inverse of [`from_words`].
#[inline(always)]
pub const fn to_words(address: &Address) -> [u32; 4] {
    let [
        a0,
        a1,
        a2,
        a3,
        b0,
        b1,
        b2,
        b3,
        c0,
        c1,
        c2,
        c3,
        d0,
        d1,
        d2,
        d3,
    ] = *address;
    [
        u32::from_ne_bytes([a0, a1, a2, a3]),
        u32::from_ne_bytes([b0, b1, b2, b3]),
        u32::from_ne_bytes([c0, c1, c2, c3]),
        u32::from_ne_bytes([d0, d1, d2, d3]),
    ]
}

/// Whether two addresses are equal. `==` on arrays calls `bcmp`, which the BPF target lacks.
#[inline(always)]
pub const fn same(a: &Address, b: &Address) -> bool {
    let (a, b) = (to_words(a), to_words(b));
    ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3])) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_an_ipv4_address_agree() {
        let ip: IpAddr = "10.96.0.1".parse().unwrap();
        let kernel = u32::from_ne_bytes([10, 96, 0, 1]);
        assert_eq!(from_ip(ip), from_words(mapped_words(kernel)));
        assert_eq!(to_kernel_v4(&from_ip(ip)), kernel);
        assert_eq!(to_ip(from_ip(ip)), ip);
    }

    #[test]
    fn ipv6_survives_the_round_trip() {
        let ip: IpAddr = "fd00:10:96::a".parse().unwrap();
        assert_eq!(to_ip(from_ip(ip)), ip);
        assert_eq!(from_words(to_words(&from_ip(ip))), from_ip(ip));
    }

    #[test]
    fn addresses_that_differ_in_any_byte_are_not_the_same() {
        let a = from_ip("fd00:10:96::a".parse().unwrap());
        assert!(same(&a, &a));
        for byte in 0..16 {
            let mut b = a;
            b[byte] ^= 1;
            assert!(!same(&a, &b), "byte {byte}");
        }
    }
}
