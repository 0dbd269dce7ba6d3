//! NODE_ADDRS: the addresses on which NodePorts answer. FRONTENDS holds a NodePort once for each
//! family, whatever the addresses are, so that a new address of the node rewrites nothing else.

use bytemuck::{Pod, Zeroable};

use crate::address::{self, Address};

/// Key of NODE_ADDRS.
#[repr(C, align(4))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
pub struct NodeAddressKey {
    /// An address of this node; 127.0.0.1 stands for all of 127.0.0.0/8.
    pub address: Address,
}

/// Value of NODE_ADDRS: that the key is there is all that matters.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct NodeAddressValue {
    /// 1
    pub present: u32,
}

/// The address under which NODE_ADDRS has what a socket dials, and whether it is loopback, which
/// is another host in each network namespace. The kernel takes the unspecified address for
/// loopback, and every address of 127.0.0.0/8 is loopback.
#[inline(always)]
pub fn as_dialled(dialled: &Address) -> (NodeAddressKey, bool) {
    let [a, b, c, last] = address::to_words(dialled);
    let mapped = address::mapped_words(0)[2];
    let words = if a | b != 0 {
        [a, b, c, last]
    } else if c == mapped && (last.to_ne_bytes()[0] == 127 || last == 0) {
        [0, 0, mapped, u32::from_ne_bytes([127, 0, 0, 1])]
    } else if c | last == 0 {
        [0, 0, 0, 1_u32.to_be()]
    } else {
        [a, b, c, last]
    };
    let loopback = words[0] | words[1] == 0
        && ((words[2] == mapped && words[3].to_ne_bytes()[0] == 127)
            || (words[2] == 0 && words[3] == 1_u32.to_be()));
    let address = address::from_words(words);
    (NodeAddressKey { address }, loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_unspecified_addresses_are_one() {
        for (dialled, found) in [
            ("192.0.2.1", "192.0.2.1"),
            ("127.0.0.1", "127.0.0.1"),
            ("127.9.8.7", "127.0.0.1"),
            ("0.0.0.0", "127.0.0.1"),
            ("128.0.0.1", "128.0.0.1"),
            ("::1", "::1"),
            ("::", "::1"),
            ("::2", "::2"),
            ("fd00::1", "fd00::1"),
            ("::127.0.0.1", "::127.0.0.1"),
            ("fd00::ffff:127.0.0.1", "fd00::ffff:127.0.0.1"),
        ] {
            let form = |text: &str| address::from_ip(text.parse().unwrap());
            let key = NodeAddressKey {
                address: form(found),
            };
            let loopback = matches!(found, "127.0.0.1" | "::1");
            assert_eq!(as_dialled(&form(dialled)), (key, loopback), "{dialled}");
        }
    }
}
