//! The nftables dataplane.
//!
//! ```text
//! NodeState ──> wanted (all) ─────────────> render (text)
//!     │            ▲                          │
//!     │            │ compare                  └─ the same rules and elements as data
//!     │         found (what is there)
//!     └──ChangeSet──> plan (what to write) ──> kernel (netlink, one transaction)
//! ```
//!
//! One table of its own in each family, called `culvert`. What changes with Services is elements of
//! a fixed number of maps; a frontend's element leads to a chain that all share whose frontends are
//! treated alike and have as many endpoints, and there the endpoint is looked up by frontend and
//! random number. So the number of chains, rules and sets does not grow with the cluster, nothing
//! the kernel does for a change depends on how many Services there are, and a change is elements to
//! remove and to add: nothing must be read back first. Only Services with session affinity and
//! source ranges have chains of their own.
//!
//! Everything here is pure and works on any system, so that `render` does; only `kernel` talks to a
//! kernel.
#![cfg_attr(
    not(target_os = "linux"),
    expect(
        dead_code,
        reason = "where no kernel can be programmed, only `render` uses it"
    )
)]

mod chains;
mod compile;
mod descriptor;
mod facts;
mod fixed;
#[cfg(target_os = "linux")]
mod found;
#[cfg(target_os = "linux")]
mod kernel;
mod key;
mod names;
mod plan;
mod ranges;
mod render;
mod ruleset;
mod sets;
#[cfg(test)]
mod tests;
mod text;
mod wanted;

use proxy_model::Capability;

pub use descriptor::Nftables;
pub use facts::NftablesOptions;
#[cfg(target_os = "linux")]
pub use kernel::{
    Duty, Keeper, KernelError, NftablesBackend, cleanup, holder, is_kept, is_there, remove,
};
pub use render::render;

/// The name that `--proxy-mode` takes.
const NAME: &str = "nftables";

/// The name of the table, in each family.
pub const TABLE: &str = "culvert";

/// The name of the tables that keep the kernel translating what others have begun to translate.
#[cfg(target_os = "linux")]
pub const KEPT: &str = "culvert-connections";

/// What these rules do not do: a packet to a loopback address cannot be led elsewhere without opening
/// the node to its neighbours (CVE-2020-8558).
pub const LACKS: &[Capability] = &[
    Capability::LoopbackNodePorts,
    Capability::Ipv6LoopbackNodePorts,
];

/// The bit of the packet mark that kube-proxy uses as well unless told otherwise.
pub const MASQUERADE_BIT: u8 = 14;
