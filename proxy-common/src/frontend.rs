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
    /// [`SCOPE_ADDRESS`] or [`SCOPE_NODE`].
    pub scope: u8,
}

/// The frontend has the address in its key.
pub const SCOPE_ADDRESS: u8 = 0;

/// A NodePort: the frontend has every address in NODE_ADDRS of its family, and its key has the
/// unspecified address of that family.
pub const SCOPE_NODE: u8 = 1;

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
            u32::from_ne_bytes([low, high, protocol, SCOPE_ADDRESS]),
        ])
    }

    /// The key of the NodePort that a client means which dials this key on one of the node's
    /// addresses.
    #[inline(always)]
    pub fn of_node_port(&self) -> Self {
        let [a, b, c, _] = address::to_words(&self.address);
        let mapped = address::mapped_words(0);
        let address = if a | b == 0 && c == mapped[2] {
            mapped
        } else {
            [0; 4]
        };
        let [low, high] = self.port.to_ne_bytes();
        let tail = u32::from_ne_bytes([low, high, self.protocol, SCOPE_NODE]);
        let [a, b, c, d] = address;
        bytemuck::cast([a, b, c, d, tail])
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
    /// [`LEADS_TO_LOCAL`], [`ENDPOINTS_EXIST`], [`LEFT_ALONE`] and others.
    pub flags: u32,
    /// How long a client keeps its endpoint after its last connection, in seconds; 0 if it does
    /// not.
    pub affinity: u32,
    /// Proves that the value is whole and of its key, see the crate docs.
    pub check: u32,
}

/// Clients are led to the local set, otherwise to the cluster set.
pub const LEADS_TO_LOCAL: u32 = 1 << 0;

/// Some endpoint could serve, although the set this frontend leads to may be empty: the client is
/// told that the host is unreachable, not that the connection is refused.
pub const ENDPOINTS_EXIST: u32 = 1 << 1;

/// Sockets that dial this frontend are left alone: only who sees their packets can tell whether
/// they may come.
pub const LEFT_ALONE: u32 = 1 << 2;

/// Clients outside are led to the local set. Endpoints see who they are, but for [`MASQUERADED`].
pub const OUTSIDE_TO_LOCAL: u32 = 1 << 3;

/// Endpoints must see this node in the place of clients outside, but for those in the network of this host.
pub const MASQUERADED: u32 = 1 << 4;

/// Only clients in the source ranges of the Service may come: those in RANGES.
pub const RANGED: u32 = 1 << 5;

/// Clients outside are led to the cluster set. Endpoints see who they are, but for [`MASQUERADED`] and
/// [`MASQUERADED_ELSEWHERE`].
pub const OUTSIDE_TO_CLUSTER: u32 = 1 << 6;

/// With [`OUTSIDE_TO_CLUSTER`]: endpoints that may be on other nodes must see this node in their place.
pub const MASQUERADED_ELSEWHERE: u32 = 1 << 7;

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
        let service = [self.service, self.affinity];
        check::check([
            a, b, c, d, tail, service[0], service[1], sets[0], sets[1], flags,
        ])
    }

    /// The set that a client outside is led to, if it is led at all.
    #[inline(always)]
    pub const fn set_of_outside(&self) -> u32 {
        if self.flags & OUTSIDE_TO_LOCAL == 0 {
            self.cluster_set
        } else {
            self.local_set
        }
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

    #[test]
    fn node_ports_have_one_key_for_each_family() {
        let key = |text: &str| {
            let address = address::from_ip(text.parse().unwrap());
            FrontendKey::new(address::to_words(&address), 30080, 6)
        };
        for (dialled, wildcard) in [
            ("192.0.2.1", "0.0.0.0"),
            ("127.0.0.1", "0.0.0.0"),
            ("fd00::1", "::"),
            ("::1", "::"),
        ] {
            let expected = FrontendKey {
                scope: SCOPE_NODE,
                ..key(wildcard)
            };
            assert_eq!(key(dialled).of_node_port(), expected, "{dialled}");
        }
    }

    #[test]
    fn a_value_holds_for_its_key_only_and_only_whole() {
        let address = address::from_ip("10.96.0.1".parse().unwrap());
        let key = FrontendKey::new(address::to_words(&address), 80, 6);
        let value = FrontendValue {
            service: 1,
            cluster_set: 2,
            local_set: 3,
            flags: ENDPOINTS_EXIST,
            affinity: 9,
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
            FrontendValue {
                affinity: 10,
                ..value
            },
        ];
        for value in values {
            assert!(!value.holds_for(&key), "{value:?}");
        }
    }
}
