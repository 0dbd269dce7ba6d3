//! Where the backend in use falls short of the answer: a story that says "forward" must not send
//! somebody looking for a fault that is none.

use proxy_model::{
    Capability, FrontendKind, NodeState,
    oracle::{Packet, Path, Reason, Verdict},
};

use crate::backend::choice::Choice;

/// Empty, or lines with an empty one before them.
pub(super) fn tell(
    state: &NodeState,
    packet: &Packet,
    path: Path,
    verdict: &Verdict,
    backend: &Choice,
) -> String {
    let lines: Vec<_> = needs(state, packet, path, verdict)
        .into_iter()
        .filter(|capability| backend.lacks.contains(capability))
        .map(|capability| format!("  {capability}: {}\n", capability.without()))
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    let name = backend.name();
    format!("\nWhat {name} cannot do of this:\n{}", lines.concat())
}

/// What a backend must be able to do for this very packet.
fn needs(state: &NodeState, packet: &Packet, path: Path, verdict: &Verdict) -> Vec<Capability> {
    // What processes of this node dial, their sockets do.
    let comes_from_here = path == Path::Socket
        || state.node.is_host(packet.source)
        || state.traffic.detector.is_local(&state.node, packet) == Some(true);
    let to = packet.destination.ip();
    let service = verdict.service.as_ref().zip(verdict.frontend);
    let of_service = service.and_then(|(key, frontend)| {
        let service = state.services.get(key)?;
        let is_masqueraded = verdict.targets.iter().any(|one| one.masquerade.is_some());
        let matters = move |capability: &Capability| match capability {
            // Where the verdict says so itself, it is told below.
            Capability::Masquerade => {
                !frontend.kind.is_external() && !verdict.targets.is_empty() && !is_masqueraded
            }
            Capability::ExternalTraffic => frontend.kind.is_external() && !comes_from_here,
            Capability::SourceRanges => frontend.kind == FrontendKind::LoadBalancerIp,
            Capability::LoopbackNodePorts | Capability::Ipv6LoopbackNodePorts => {
                to.is_loopback() || to.is_unspecified()
            }
            _ => true,
        };
        Some(state.needs(key, service).filter(matters))
    });
    let is_foreign =
        verdict.frontend.is_some_and(|one| !one.kind.is_external()) && !comes_from_here;
    let is_stray = matches!(verdict.reason, Reason::UnknownPort | Reason::Unallocated);
    let is_masqueraded = verdict.targets.iter().any(|one| one.masquerade.is_some());
    let of_packet = [
        (Capability::ForeignClients, is_foreign),
        (Capability::Masquerade, is_masqueraded),
        (Capability::StrayTraffic, is_stray),
    ];
    let of_packet = of_packet.into_iter().filter(|(_, needed)| *needed);
    let of_service = of_service.into_iter().flatten();
    of_service.chain(of_packet.map(|(one, _)| one)).collect()
}
