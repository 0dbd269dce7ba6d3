//! The form of a set, as the kernel knows it: what a set of ours is made with, and what is found.

use proxy_model::IpFamily;
use proxy_netlink::nf_tables as abi;

use crate::{
    key::Part,
    sets::{Data, ENDPOINT, Set},
};

/// What the kernel knows of the form of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Flags.
    pub flags: u32,
    /// Bytes of a key.
    pub key: u32,
    /// Bytes of the data; 0 for verdicts, and without.
    pub data: u32,
}

impl Shape {
    /// That of a set of ours.
    pub fn of(set: Set, family: IpFamily) -> Self {
        let length = |parts: &[Part]| u32::try_from(Part::widths(parts, family)).unwrap_or(0);
        let map = match set.data() {
            Data::None => 0,
            Data::Verdict | Data::Endpoint => abi::NFT_SET_MAP,
        };
        let dynamic = if set.is_dynamic() {
            abi::NFT_SET_TIMEOUT | abi::NFT_SET_EVAL
        } else {
            0
        };
        Self {
            flags: map | dynamic,
            key: length(set.key()),
            data: match set.data() {
                Data::Endpoint => length(ENDPOINT),
                Data::None | Data::Verdict => 0,
            },
        }
    }
}
