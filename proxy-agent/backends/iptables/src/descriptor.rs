//! What the agent knows of this backend.

use proxy_backend::{Descriptor, Flag, FlagMistake, Given, Place, Settings};
use proxy_model::{Capability, NodeState};

use crate::{IptablesOptions, LACKS, NAME, flags, render};

/// The iptables backend.
#[derive(Debug, Clone, Copy)]
pub struct Iptables;

impl Descriptor for Iptables {
    fn name(&self) -> &'static str {
        NAME
    }

    fn programs(&self) -> &'static str {
        "kube-proxy's chains in the tables `nat` and `filter` of iptables and ip6tables, legacy or nft, which \
         translate packets by connection tracking: all that pass through the node"
    }

    fn place(&self) -> Place {
        Place::Packets
    }

    fn lacks(&self) -> &'static [Capability] {
        LACKS
    }

    fn render(&self, state: &NodeState, settings: &Settings, _: bool) -> String {
        render(state, IptablesOptions::of(settings))
    }

    fn flags(&self) -> &'static [Flag] {
        flags::ALL
    }

    fn check(&self, given: &Given, mistakes: &mut Vec<FlagMistake>) {
        flags::Verify::given(given, mistakes);
    }

    #[cfg(target_os = "linux")]
    fn figures(&self) -> Vec<proxy_model::Figure> {
        crate::kernel::figures_described()
    }

    #[cfg(target_os = "linux")]
    fn host(&self) -> Option<&'static dyn proxy_backend::Host> {
        Some(&crate::kernel::OnLinux)
    }
}
