//! What backends share that work with the kernel's packet filter, whichever rules they write.
//! Knows no rules.

pub mod conntrack;
pub(crate) mod netlink;
pub(crate) mod retry;
pub(crate) mod socket;
