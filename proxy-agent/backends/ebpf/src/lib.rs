//! The eBPF dataplane.
//!
//! ```text
//! NodeState, ChangeSet ──> program (order of writes) ──> maps ──> kernel programs
//!                             ▲                           │
//!                          programmed <── adopt <── entries      on start, after an error
//! ```
//!
//! Everything here is pure and works on any system, so that `render` does; only `kernel` talks
//! to a kernel.
#![cfg_attr(
    not(target_os = "linux"),
    expect(
        dead_code,
        reason = "where no kernel can be programmed, only `render` uses it"
    )
)]

mod adopt;
#[cfg(target_os = "linux")]
mod bypass;
mod capacity;
mod compare;
#[cfg(target_os = "linux")]
mod connections;
mod describe;
mod descriptor;
#[cfg(target_os = "linux")]
mod devices;
mod encode;
mod entry;
mod flags;
#[cfg(target_os = "linux")]
mod kernel;
mod memory_maps;
mod numbers;
mod pattern;
mod program;
mod programmed;
mod reference;
mod render;
#[cfg(target_os = "linux")]
mod reserved;
#[cfg(target_os = "linux")]
mod service_addresses;
#[cfg(target_os = "linux")]
mod sources;
mod tables;
#[cfg(test)]
mod tests;
pub use descriptor::Ebpf;
pub use flags::Tc;
#[cfg(target_os = "linux")]
pub use kernel::{EbpfBackend, EbpfOptions, is_programmed, mount_bpffs};
use proxy_model::Capability;
pub use render::render;

/// The name that `--proxy-mode` takes.
const NAME: &str = "ebpf";

/// What programs cannot do, whatever devices they are on.
pub const LACKS: &[Capability] = &[
    Capability::Sctp,
    Capability::SourceRanges,
    Capability::ForeignClients,
    Capability::Masquerade,
    Capability::StrayTraffic,
];

/// What they lack on a host, where programs on devices serve all clients outside, or do not.
const fn lacking(serves_clients: bool) -> &'static [Capability] {
    if serves_clients { LACKS } else { LACKS_OUTSIDE }
}

/// What socket hooks cannot do by themselves: they meet sockets of this node's processes, not packets.
const LACKS_OUTSIDE: &[Capability] = &[
    Capability::Sctp,
    Capability::ExternalTraffic,
    Capability::SourceRanges,
    Capability::ForeignClients,
    Capability::Masquerade,
    Capability::StrayTraffic,
];
