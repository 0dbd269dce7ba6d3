//! RANGES: from where clients outside may dial the load-balancer IPs of a Service port.

use bytemuck::{Pod, Zeroable};

use crate::{address::Address, check};

/// Key of RANGES, in the form of the kernel's longest-prefix tries: a length in bits, and that many
/// bits that count, as they lie in memory.
#[repr(C, align(4))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
pub struct RangeKey {
    /// Bits that count of what follows: [`SERVICE_BITS`], and those of the range.
    pub prefix: u32,
    /// The Service port, all of whose bits count.
    pub service: u32,
    /// The range's address; the bits that do not count are zero.
    pub address: Address,
}

/// A key but for its length: what the kernel compares bit by bit.
#[repr(C, align(4))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct RangeData {
    /// See [`RangeKey::service`].
    pub service: u32,
    /// See [`RangeKey::address`].
    pub address: Address,
}

/// Bits of a key before the address.
pub const SERVICE_BITS: u32 = 32;

/// Bits of an address, IPv4 mapped into IPv6.
pub const ADDRESS_BITS: u32 = 128;

/// Bits of a mapped IPv4 address before the IPv4 address itself.
pub const MAPPED_BITS: u32 = 96;

impl RangeKey {
    /// The range of `length` bits that `address` is in, for the Service port with this number.
    pub fn new(service: u32, address: Address, length: u32) -> Self {
        let length = length.min(ADDRESS_BITS);
        let mask = u128::MAX.checked_shl(ADDRESS_BITS - length).unwrap_or(0);
        let address = u128::from_be_bytes(address) & mask;
        Self {
            prefix: SERVICE_BITS + length,
            service,
            address: address.to_be_bytes(),
        }
    }

    /// The key that finds the longest range of the Service port that an address (in the kernel's form,
    /// see [`crate::address::from_words`]) is in.
    #[inline(always)]
    pub fn of_client(service: u32, [a, b, c, d]: [u32; 4]) -> Self {
        bytemuck::cast([SERVICE_BITS + ADDRESS_BITS, service, a, b, c, d])
    }

    /// Bits of the address that count; `None` if not all of the Service port's do.
    pub const fn length(&self) -> Option<u32> {
        match self.prefix.checked_sub(SERVICE_BITS) {
            Some(length) if length <= ADDRESS_BITS => Some(length),
            _ => None,
        }
    }

    /// The same range in the one form that [`Self::new`] gives it: the kernel takes others too.
    #[must_use]
    pub fn canonical(&self) -> Self {
        match self.length() {
            Some(length) => Self::new(self.service, self.address, length),
            None => *self,
        }
    }

    /// Whether an address of a client of the Service port is in the range.
    pub fn contains(&self, service: u32, client: Address) -> bool {
        let of_client = |length| Self::new(service, client, length);
        self.length()
            .is_some_and(|length| of_client(length) == self.canonical())
    }
}

/// Value of RANGES. The kernel frees entries of a trie only after the programs that may read them: the
/// check proves that the agent wrote it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct RangeValue {
    /// The Service port of the key.
    pub service: u32,
    /// Proves that the value is whole and of its Service port, see the crate docs.
    pub check: u32,
}

impl RangeValue {
    /// The value of every range of the Service port with this number.
    #[inline(always)]
    pub const fn new(service: u32) -> Self {
        Self {
            service,
            check: check::check([service, SERVICE_BITS]),
        }
    }

    /// Whether the value is whole, and of a range of the Service port with this number.
    #[inline(always)]
    pub const fn holds_for(&self, service: u32) -> bool {
        let Self { check, .. } = Self::new(service);
        (self.service ^ service) | (self.check ^ check) == 0
    }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use super::*;
    use crate::address;

    const SERVICE: u32 = 7;

    fn form(text: &str) -> Address {
        address::from_ip(text.parse().unwrap())
    }

    fn range(address: &str, length: u32) -> RangeKey {
        let mapped = matches!(address.parse().unwrap(), IpAddr::V4(_));
        let before = if mapped { MAPPED_BITS } else { 0 };
        RangeKey::new(SERVICE, form(address), before + length)
    }

    #[test]
    fn a_range_contains_the_addresses_that_begin_like_it() {
        for (key, inside, outside) in [
            (range("203.0.113.0", 24), "203.0.113.255", "203.0.114.0"),
            (range("203.0.113.7", 24), "203.0.113.0", "203.0.112.255"),
            (range("198.18.0.0", 15), "198.19.255.255", "198.20.0.0"),
            (range("192.0.2.1", 32), "192.0.2.1", "192.0.2.0"),
            (range("0.0.0.0", 1), "127.255.255.255", "128.0.0.0"),
            (range("0.0.0.0", 0), "255.255.255.255", "2001:db8::1"),
            (
                range("2001:db8::", 33),
                "2001:db8:7fff::",
                "2001:db8:8000::",
            ),
            (range("2001:db8::1", 128), "2001:db8::1", "2001:db8::"),
            (range("2001:db8::", 32), "2001:db8::1", "203.0.113.1"),
            (range("::", 0), "2001:db8::1", ""),
        ] {
            assert!(key.contains(SERVICE, form(inside)), "{key:?}");
            assert!(!key.contains(SERVICE + 1, form(inside)), "{key:?}");
            if !outside.is_empty() {
                assert!(!key.contains(SERVICE, form(outside)), "{key:?}");
            }
        }
    }

    #[test]
    fn a_range_has_one_form() {
        let one = range("203.0.113.0", 24);
        assert_eq!(range("203.0.113.7", 24), one);
        let mut other = one;
        other.address = form("203.0.113.7");
        assert_ne!(other, one);
        assert_eq!(other.canonical(), one);
        for prefix in [SERVICE_BITS - 1, SERVICE_BITS + ADDRESS_BITS + 1] {
            let odd = RangeKey { prefix, ..other };
            assert_eq!(odd.length(), None);
            assert_eq!(odd.canonical(), odd);
            assert!(!odd.contains(SERVICE, form("203.0.113.7")));
        }
    }

    #[test]
    fn the_key_of_a_client_has_the_layout_of_a_range_of_one_address() {
        for client in ["203.0.113.9", "2001:db8::9"] {
            let words = address::to_words(&form(client));
            let of_client = RangeKey::of_client(SERVICE, words);
            assert_eq!(
                of_client,
                RangeKey::new(SERVICE, form(client), ADDRESS_BITS)
            );
        }
    }

    #[test]
    fn a_value_holds_for_its_service_only_and_only_whole() {
        let value = RangeValue::new(SERVICE);
        assert!(value.holds_for(SERVICE));
        assert!(!value.holds_for(SERVICE + 1));
        let other = RangeValue {
            service: SERVICE + 1,
            ..value
        };
        assert!(!other.holds_for(SERVICE) && !other.holds_for(SERVICE + 1));
        assert!(!RangeValue { check: 0, ..value }.holds_for(SERVICE));
    }
}
