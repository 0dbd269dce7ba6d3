//! Where the backend in use falls short of the answer: a story that says "forward" must not send
//! somebody looking for a fault that is none.

use proxy_model::{
    Capability, FrontendKind, NodeState,
    oracle::{Packet, Path, Verdict},
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
    let (Some(key), Some(frontend)) = (&verdict.service, verdict.frontend) else {
        return String::new();
    };
    let Some(service) = state.services.get(key) else {
        return String::new();
    };
    // What processes of this node dial, their sockets do.
    let comes_from_here = path == Path::Socket
        || state.node.is_host(packet.source)
        || state.traffic.detector.is_local(&state.node, packet) == Some(true);
    let matters = |capability: &Capability| match capability {
        Capability::ExternalTraffic => frontend.kind.is_external() && !comes_from_here,
        Capability::SourceRanges => frontend.kind == FrontendKind::LoadBalancerIp,
        _ => true,
    };
    let missing = service.missing(key, backend.lacks).filter(matters);
    let lines: Vec<_> = missing
        .map(|capability| format!("  {capability}: {}\n", capability.without()))
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    let name = backend.backend;
    format!(
        "\nThe backend {name} does not do so yet:\n{}",
        lines.concat()
    )
}
