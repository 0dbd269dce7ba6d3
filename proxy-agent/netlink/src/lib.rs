//! Netlink, Linux only: a socket that waits for no answer without a bound, for every family
//! (`socket`); messages and their attributes as bytes (`message`, `attributes`); questions to
//! netfilter (`netfilter`) and the numbers of its packet filter (`nf_tables`); devices, addresses,
//! routes and filters of packets (`route`); all rules of nftables, whosever (`ruleset`); whether IPsec
//! has policies (`xfrm`). Knows what no rule does, no flow, and no Service.
#![cfg(target_os = "linux")]

pub mod attributes;
mod exchange;
pub mod message;
pub mod netfilter;
#[expect(
    missing_docs,
    reason = "the kernel's own names, which its headers explain"
)]
pub mod nf_tables;
pub mod route;
pub mod ruleset;
pub mod socket;
#[cfg(test)]
mod tests;
pub mod xfrm;
