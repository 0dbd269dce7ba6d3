//! Which layer of a node decides about a packet, and why that one.

use proxy_model::{
    NodeState,
    oracle::{Beneath, Layered, Packet, Path, Verdict, layered, verdict},
};

use super::{InForce, rule};

/// What becomes of a packet on a node with certain layers.
pub(super) struct Decision {
    /// The path on which it is decided.
    pub(super) path: Path,
    /// What becomes of it.
    pub(super) verdict: Verdict,
    /// The layer that decides; `None` if there is none that meets it.
    pub(super) layer: Option<&'static str>,
    /// Why that one, for people; empty if there is no other.
    pub(super) why: String,
}

/// Decides as the layers that are `in_force` do.
pub(super) fn decide(
    state: &NodeState,
    packet: &Packet,
    path: Path,
    in_force: &InForce,
) -> Decision {
    let choice = &in_force.choice;
    let alone = |path, layer, why: String| Decision {
        path,
        verdict: verdict(state, packet, path),
        layer,
        why,
    };
    match (choice.above(), choice.beneath(), path) {
        (Some(above), Some(beneath), Path::Socket) => {
            let of = verdict(state, packet, Path::Socket).service;
            if of.is_some_and(|service| in_force.left.contains(&service)) {
                let why =
                    format!("{beneath} decides: {above} could not program this Service port.");
                return alone(Path::Packet, Some(beneath), why);
            }
            over(state, packet, above, beneath)
        }
        (Some(above), Some(beneath), Path::Packet) => alone(
            path,
            Some(beneath),
            format!("{beneath} decides: {above} meets calls of this node's processes, no packets."),
        ),
        (Some(above), None, Path::Socket) => alone(path, Some(above), String::new()),
        (None, Some(beneath), Path::Socket) if !is_to_loopback(packet) => alone(
            Path::Packet,
            Some(beneath),
            format!("{beneath} decides: no layer meets calls of processes here, only packets."),
        ),
        (None, beneath, _) => alone(path, beneath, String::new()),
        (Some(_), None, Path::Packet) => alone(path, None, String::new()),
    }
}

/// Only calls lead to NodePorts on loopback addresses: what is lacking there is said of them.
fn is_to_loopback(packet: &Packet) -> bool {
    let to = packet.destination.ip();
    to.is_loopback() || to.is_unspecified()
}

fn over(
    state: &NodeState,
    packet: &Packet,
    above: &'static str,
    beneath: &'static str,
) -> Decision {
    let all = layered(state, packet);
    let verdict = all.verdict();
    let Layered {
        above: first,
        beneath: next,
    } = &all;
    let (path, layer, why) = match next {
        Beneath::Nothing => (
            Path::Socket,
            above,
            format!(
                "{above} decides in the call; {beneath} meets packets that are for no Service any more."
            ),
        ),
        Beneath::Decides(_) => {
            let rule = rule::of(state, packet, Path::Socket, first);
            let why = format!("{beneath} decides: {above} leaves the call alone: {rule}");
            (Path::Packet, beneath, why)
        }
        Beneath::Again(again) => {
            let addresses: Vec<_> = again
                .iter()
                .map(|(target, _)| target.address.to_string())
                .collect();
            let why = format!(
                "{above} decides in the call; {beneath} translates again what it leads to {}, where \
                 another Service is.",
                addresses.join(", ")
            );
            (Path::Socket, above, why)
        }
    };
    Decision {
        path,
        verdict,
        layer: Some(layer),
        why,
    }
}
