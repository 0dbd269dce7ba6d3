//! FRONTENDS: the addresses that clients dial.

use bytemuck::{Pod, Zeroable};

use crate::{address::Address, check};

/// Key of FRONTENDS.
#[repr(C, align(4))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
pub struct FrontendKey {
    /// Address that is dialled.
    pub address: Address,
    /// Port, host order.
    pub port: u16,
    /// IP protocol number: 6 TCP, 17 UDP.
    pub protocol: u8,
    /// [`SCOPE_ANY`]: where the client is. Kept in the key because an address may lead elsewhere
    /// for clients outside the cluster.
    pub scope: u8,
}

/// The frontend serves every client alike.
pub const SCOPE_ANY: u8 = 0;

impl FrontendKey {
    /// The key of an address in the kernel's form (see [`crate::address::from_words`]). Made of words:
    /// field by field, the compiler writes single bytes, on every connect.
    #[inline(always)]
    pub fn new(address: [u32; 4], port: u16, protocol: u8) -> Self {
        let [a, b, c, d] = address;
        let [low, high] = port.to_ne_bytes();
        bytemuck::cast([
            a,
            b,
            c,
            d,
            u32::from_ne_bytes([low, high, protocol, SCOPE_ANY]),
        ])
    }
}

/// Value of FRONTENDS.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct FrontendValue {
    /// The Service port it belongs to.
    pub service: u32,
    /// Endpoints of the whole cluster, 0 when the Service does not use that set.
    pub cluster_set: u32,
    /// Endpoints of this node, 0 when the Service does not use that set.
    pub local_set: u32,
    /// [`LEADS_TO_LOCAL`], [`ENDPOINTS_EXIST`].
    pub flags: u32,
    /// Proves that the value is whole and of its key, see the crate docs.
    pub check: u32,
}

/// Clients are led to the local set, otherwise to the cluster set.
pub const LEADS_TO_LOCAL: u32 = 1 << 0;

/// Some endpoint could serve, although the set this frontend leads to may be empty: the client is
/// told that the host is unreachable, not that the connection is refused.
pub const ENDPOINTS_EXIST: u32 = 1 << 1;

impl FrontendValue {
    /// The value with its check set, valid for `key` only.
    #[inline(always)]
    pub fn sealed(mut self, key: &FrontendKey) -> Self {
        self.check = self.seal(key);
        self
    }

    /// Whether the value is whole, and `key`'s.
    #[inline(always)]
    pub fn holds_for(&self, key: &FrontendKey) -> bool {
        self.check == self.seal(key)
    }

    #[inline(always)]
    fn seal(&self, key: &FrontendKey) -> u32 {
        let [a, b, c, d, tail]: [u32; 5] = bytemuck::cast(*key);
        let (sets, flags) = ([self.cluster_set, self.local_set], self.flags);
        check::check([a, b, c, d, tail, self.service, sets[0], sets[1], flags])
    }

    /// The set that a client is led to.
    #[inline(always)]
    pub const fn set(&self) -> u32 {
        if self.flags & LEADS_TO_LOCAL == 0 {
            self.cluster_set
        } else {
            self.local_set
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address;

    #[test]
    fn a_value_holds_for_its_key_only_and_only_whole() {
        let address = address::from_ip("10.96.0.1".parse().unwrap());
        let key = FrontendKey::new(address::to_words(&address), 80, 6);
        let value = FrontendValue {
            service: 1,
            cluster_set: 2,
            local_set: 3,
            flags: ENDPOINTS_EXIST,
            check: 0,
        }
        .sealed(&key);
        assert!(value.holds_for(&key));

        let mut other = key;
        other.address[15] ^= 1;
        let keys = [
            other,
            FrontendKey { port: 81, ..key },
            FrontendKey {
                protocol: 17,
                ..key
            },
            FrontendKey { scope: 1, ..key },
        ];
        for key in keys {
            assert!(!value.holds_for(&key), "{key:?}");
        }
        let values = [
            FrontendValue {
                service: 9,
                ..value
            },
            FrontendValue {
                cluster_set: 9,
                ..value
            },
            FrontendValue {
                local_set: 9,
                ..value
            },
            FrontendValue { flags: 0, ..value },
        ];
        for value in values {
            assert!(!value.holds_for(&key), "{value:?}");
        }
    }
}
