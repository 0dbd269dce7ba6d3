//! FRONTENDS: the addresses that clients dial.

use bytemuck::{Pod, Zeroable};

use crate::{
    address::{self, Address},
    check,
};

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
    /// The key of an address in the kernel's form (see [`address::from_words`]). Made of words:
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

    /// A number that values carry to prove which key they belong to. Not a cryptographic hash: it
    /// tells a recycled element from the one that was looked up.
    #[inline(always)]
    pub const fn check(&self) -> u32 {
        let [a, b, c, d] = address::to_words(&self.address);
        let tail = (self.port as u32) << 16 | (self.protocol as u32) << 8 | self.scope as u32;
        check::check([a, b, c, d, tail])
    }
}

/// Value of FRONTENDS.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct FrontendValue {
    /// [`FrontendKey::check`] of the key this value was written for. First, see the crate docs.
    pub key_check: u32,
    /// The Service port it belongs to; every endpoint it leads to carries the same number.
    pub service: u32,
    /// Endpoints of the whole cluster, 0 when the Service does not use that set.
    pub cluster_set: u32,
    /// Endpoints of this node, 0 when the Service does not use that set.
    pub local_set: u32,
    /// [`LEADS_TO_LOCAL`], [`ENDPOINTS_EXIST`].
    pub flags: u32,
}

/// Clients are led to the local set, otherwise to the cluster set.
pub const LEADS_TO_LOCAL: u32 = 1 << 0;

/// Some endpoint could serve, although the set this frontend leads to may be empty: the client is
/// told that the host is unreachable, not that the connection is refused.
pub const ENDPOINTS_EXIST: u32 = 1 << 1;

impl FrontendValue {
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

    #[test]
    fn the_check_sees_every_part_of_the_key() {
        let key = FrontendKey {
            address: address::from_ip("10.96.0.1".parse().unwrap()),
            port: 80,
            protocol: 6,
            scope: SCOPE_ANY,
        };
        let mut address = key;
        address.address[15] ^= 1;
        let others = [
            address,
            FrontendKey { port: 81, ..key },
            FrontendKey {
                protocol: 17,
                ..key
            },
            FrontendKey { scope: 1, ..key },
        ];
        for other in others {
            assert_ne!(key.check(), other.check(), "{other:?}");
        }
    }
}
