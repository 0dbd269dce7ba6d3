//! The iptables dataplane: kube-proxy's chains, by `iptables-restore`.
//!
//! ```text
//! NodeState ──> wanted (all) ─────────────> render (text)
//!     │            ▲
//!     │            │ compare
//!     │         saved (what is there)
//!     └──ChangeSet──> plan (what to write) ──> kernel (iptables-restore --noflush)
//! ```
//!
//! Chains have kube-proxy's names and its meaning: a node moves from one to the other with the rules in
//! place, and who knows kube-proxy's rules knows these. A change writes only chains whose rules change
//! (KEP-3453); a chain that all Services share is written when a rule in it changes, and not with each
//! change.
//!
//! Everything here is pure and works on any system, so that `render` does; only `kernel` runs programs.
#![cfg_attr(
    not(target_os = "linux"),
    expect(
        dead_code,
        reason = "where no kernel can be programmed, only `render` uses it"
    )
)]

mod compare;
mod compile;
mod descriptor;
mod facts;
mod fixed;
mod flags;
#[cfg(target_os = "linux")]
mod kernel;
mod names;
#[cfg(target_os = "linux")]
mod plan;
mod render;
mod restore;
mod rule;
mod saved;
mod table;
mod wanted;

use proxy_model::Capability;

pub use descriptor::Iptables;
pub use facts::IptablesOptions;
#[cfg(target_os = "linux")]
pub use render::change;
pub use render::render;
pub use rule::Rule;
pub use saved::canonical;

/// The name that `--proxy-mode` takes.
pub const NAME: &str = "iptables";

/// What these rules do not do, as kube-proxy's do not: one rule for each ClusterIP would be met by every new
/// connection that is none of a Service; and packets to `::1` cannot be led elsewhere.
pub const LACKS: &[Capability] = &[Capability::StrayTraffic, Capability::Ipv6LoopbackNodePorts];

/// The same on a host that does not let packets from 127.0.0.0/8 leave.
#[cfg(target_os = "linux")]
const LACKS_WITHOUT_LOCALNET: &[Capability] = &[
    Capability::StrayTraffic,
    Capability::LoopbackNodePorts,
    Capability::Ipv6LoopbackNodePorts,
];
