//! Netlink, Linux only: a socket that waits for no answer without a bound, for every family
//! (`socket`); messages and their attributes as bytes (`message`, `attributes`); questions to
//! netfilter (`netfilter`) and the numbers of its packet filter (`nf_tables`). Knows no rule, no flow,
//! and no Service.
#![cfg(target_os = "linux")]

pub mod attributes;
pub mod message;
pub mod netfilter;
#[expect(
    missing_docs,
    reason = "the kernel's own names, which its headers explain"
)]
pub mod nf_tables;
pub mod socket;
#[cfg(test)]
mod tests;
