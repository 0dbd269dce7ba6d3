//! Netlink, Linux only: a socket that waits for no answer without a bound, for every family
//! (`socket`), and netfilter's messages (`netfilter`). Knows no rule, no flow, and no Service.
#![cfg(target_os = "linux")]

pub mod netfilter;
pub mod socket;
