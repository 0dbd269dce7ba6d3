//! What a packet needs that a backend says it cannot do: told, and left out.

use std::collections::BTreeMap;

use proxy_model::{
    Capability, NodeState, Protocol,
    oracle::{Packet, Reason, Verdict},
};

use crate::journey::Entry;

/// How many packets were left out, by what they needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gaps(BTreeMap<Capability, usize>);

impl Gaps {
    /// Counts a packet that was left out.
    pub fn add(&mut self, needs: Capability) {
        *self.0.entry(needs).or_default() += 1;
    }

    /// Tells them of the trial `name`.
    pub fn tell(&self, name: &str) {
        for (capability, packets) in &self.0 {
            println!("GAP: {name}: {packets} packets need {capability}");
        }
    }
}

/// The first thing of `lacks` that `packet` needs, of which the oracle says `verdict`.
pub fn of(
    state: &NodeState,
    packet: &Packet,
    entry: &Entry,
    verdict: &Verdict,
    lacks: &[Capability],
) -> Option<Capability> {
    let service = verdict.service.as_ref();
    let service = service.and_then(|key| state.services.get(key));
    let external = verdict
        .frontend
        .is_some_and(|frontend| frontend.kind.is_external());
    let stray = matches!(verdict.reason, Reason::UnknownPort | Reason::Unallocated);
    let masquerades = || verdict.targets.iter().any(|one| one.masquerade.is_some());
    let needs = [
        (Capability::ForeignClients, true),
        (Capability::Sctp, packet.protocol == Protocol::Sctp),
        (
            Capability::ExternalTraffic,
            external && *entry != Entry::Node,
        ),
        (
            Capability::SourceRanges,
            service.is_some_and(|service| service.source_ranges.is_some()),
        ),
        (
            Capability::Affinity,
            service.is_some_and(|service| service.affinity.is_some()),
        ),
        (Capability::Masquerade, masquerades()),
        (Capability::StrayTraffic, stray),
    ];
    let mut missing = needs
        .into_iter()
        .filter(|(capability, needed)| *needed && lacks.contains(capability));
    missing.next().map(|(capability, _)| capability)
}
