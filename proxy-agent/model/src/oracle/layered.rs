//! What becomes of what a socket of this node sends where socket hooks lie over a packet backend: the
//! hooks decide first. What they leave alone, and what they lead to an address that is a frontend
//! itself, arrives beneath as a packet.

use super::{Outcome, Packet, Path, Reason, Target, Verdict, dialled, verdict};
use crate::{FrontendKind, NodeState};

/// What each layer does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layered {
    /// The hooks.
    pub above: Verdict,
    /// The packet backend.
    pub beneath: Beneath,
}

/// What a packet backend beneath socket hooks does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beneath {
    /// Nothing: the hooks have decided.
    Nothing,
    /// It decides: the hooks leave the call alone.
    Decides(Verdict),
    /// It translates again: some endpoints that the hooks lead to are frontends.
    Again(Vec<(Target, Verdict)>),
}

impl Layered {
    /// What becomes of it in the end: of what is chosen among endpoints and ends nowhere beneath,
    /// nothing is said unless all do.
    pub fn verdict(&self) -> Verdict {
        match &self.beneath {
            Beneath::Nothing => self.above.clone(),
            Beneath::Decides(verdict) => verdict.clone(),
            Beneath::Again(again) => {
                let last = |target: &Target| {
                    let again = again.iter().find(|(first, _)| first == target);
                    again.map_or_else(|| vec![*target], |(_, next)| next.targets.clone())
                };
                let mut targets: Vec<_> = self.above.targets.iter().flat_map(last).collect();
                targets.sort_by_key(|target| target.address);
                targets.dedup();
                match again.first() {
                    // Every endpoint is a frontend, and none of them leads anywhere.
                    Some((_, next)) if targets.is_empty() => Verdict {
                        outcome: next.outcome,
                        reason: next.reason,
                        targets,
                        ..self.above.clone()
                    },
                    _ => Verdict {
                        targets,
                        ..self.above.clone()
                    },
                }
            }
        }
    }
}

/// What becomes of `packet`, which a socket of this node sends.
pub fn layered(state: &NodeState, packet: &Packet) -> Layered {
    let packet = &packet.canonical();
    let above = above(state, packet);
    let beneath = match above.outcome {
        Outcome::Pass => Beneath::Decides(verdict(state, packet, Path::Packet)),
        Outcome::Reject | Outcome::Drop => Beneath::Nothing,
        Outcome::Forward => {
            let again = above.targets.iter().filter_map(|target| {
                let led = Packet {
                    destination: target.address,
                    ..packet.clone()
                };
                let next = verdict(state, &led, Path::Packet);
                (next.outcome != Outcome::Pass).then_some((*target, next))
            });
            let again: Vec<_> = again.collect();
            if again.is_empty() {
                Beneath::Nothing
            } else {
                Beneath::Again(again)
            }
        }
    };
    Layered { above, beneath }
}

/// What the hooks do that know of a packet backend beneath them.
fn above(state: &NodeState, packet: &Packet) -> Verdict {
    let alone = verdict(state, packet, Path::Socket);
    let of_cluster_ip = dialled(state, packet, Path::Socket)
        .is_some_and(|(_, _, frontend)| frontend.kind == FrontendKind::ClusterIp);
    if state.traffic.masquerade_all && of_cluster_ip && alone.outcome != Outcome::Pass {
        return Verdict {
            outcome: Outcome::Pass,
            reason: Reason::MasqueradedBeneath,
            set: None,
            targets: Vec::new(),
            ..alone
        };
    }
    alone
}
