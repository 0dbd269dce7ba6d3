//! What the agent knows of this backend.

use proxy_backend::{Descriptor, Flag, FlagMistake, Given, Page, Place, Settings, Translates};
use proxy_model::{Capability, NodeState};

use crate::{
    LACKS, NAME,
    flags::{self, KEEP_CLIENT_ADDRESS, Tc},
    reference, render,
};

/// The eBPF backend.
#[derive(Debug, Clone, Copy)]
pub struct Ebpf;

impl Descriptor for Ebpf {
    fn name(&self) -> &'static str {
        NAME
    }

    fn programs(&self) -> &'static str {
        "programs on the socket hooks of a cgroup, which redirect a connection when a process \
         dials, at no cost per packet; and on devices, for connections from outside over TCP and UDP"
    }

    fn place(&self) -> Place {
        Place::Above
    }

    fn lacks(&self) -> &'static [Capability] {
        LACKS
    }

    fn render(&self, state: &NodeState, settings: &Settings, over: bool) -> String {
        render(state, settings.given.is_on(KEEP_CLIENT_ADDRESS), over)
    }

    fn translates(&self, given: &Given) -> Translates {
        if flags::tc(given, &mut Vec::new()) == Tc::Off {
            Translates::Nothing
        } else {
            Translates::All
        }
    }

    fn flags(&self) -> &'static [Flag] {
        flags::ALL
    }

    fn check(&self, given: &Given, mistakes: &mut Vec<FlagMistake>) {
        flags::map_sizes(given, mistakes);
        flags::tc(given, mistakes);
        flags::devices(given, mistakes);
        flags::source_ports(given, mistakes);
    }

    fn idle_flags(&self, given: &Given, serves: bool) -> Vec<&'static str> {
        flags::idle(given, serves)
    }

    fn page(&self) -> Option<Page> {
        Some(Page {
            file: "maps.md",
            text: reference::maps(),
        })
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
