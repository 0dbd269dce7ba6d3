//! The test harness of Culvert: worlds made of network namespaces and cgroups, pods that serve
//! and probe, the real agent under test, and scenario files.
//!
//! ```text
//! scenario ──> world (node, pods: netns + cgroup) ──> prober, server (culvert-pod)
//!         └──> agent (the real proxy-agent, attached to the world's cgroup)
//! ```
//!
//! Everything a test makes is owned by a value and goes away with it; what `kill -9` leaves
//! (empty cgroups, pins) names the process that made it and is swept by the next run. The
//! harness knows the agent's command line, never its code: suites that look inside depend on
//! `proxy-agent` themselves.
//!
//! [`journey`] is another kind of node, between devices whose other ends the test holds: for packets
//! that no socket sends.
//!
//! [`packets`] has the kernel run the programs for devices over bytes, without a device.
//!
//! [`nft`] and [`xtables`] tell what rules do with a packet, without a kernel; [`traced`] has what is the same
//! for both.
//!
//! Two programs that are no tests use it as well: the demo and the bench, beside this package.

pub mod agent;
pub mod bpf;
pub mod bpffs;
pub mod brain;
pub mod cgroup;
pub mod chart;
pub mod conformance;
pub mod container;
pub mod emulated;
pub mod executable;
pub mod interrupt;
pub mod journey;
pub mod kubelet;
pub mod launcher;
mod losses;
pub mod netns;
pub mod nft;
pub mod packets;
pub mod pod;
pub mod process;
pub mod requires;
pub mod scenario;
pub mod scraped;
pub mod shop;
pub mod traced;
pub mod traffic;
pub mod world;
pub mod xtables;

pub use agent::{Agent, AgentOptions, BrainProcess};
pub use pod::{Prober, Server};
pub use scenario::Scenario;
pub use shop::Shop;
pub use traffic::Traffic;
pub use world::{Host, World};
