//! What the oracle says of a probe, and who brings it about: that decides how it is told to the
//! socket, whom the endpoint sees, and who remembers a client. Pure.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use proxy_model::{
    NodeState,
    oracle::{Beneath, Outcome, Packet, Target, Verdict, layered},
};

use crate::conformance::{trial::Meets, verdict::on_packets};

/// Who sends a probe, in the network namespace of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialler {
    /// A process of the node or of a pod.
    Process,
    /// A process that no socket hook sees, as in a virtual machine.
    Machine,
}

impl Dialler {
    /// Those that `meets` tells apart.
    pub const fn of(meets: Meets) -> &'static [Self] {
        match meets {
            Meets::Both => &[Self::Process, Self::Machine],
            Meets::Sockets | Meets::Packets => &[Self::Process],
        }
    }
}

/// Who brings it about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum By {
    /// Socket hooks, in the call.
    Hooks,
    /// What handles packets, when the first one comes.
    Packets,
}

/// What must come of a probe.
#[derive(Debug)]
pub struct Ruling {
    /// Who decides.
    pub by: By,
    /// What.
    pub verdict: Verdict,
    /// What keeps the endpoint of a client.
    pub affinity: Affinity,
}

/// What keeps the endpoint of a client from one connection to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affinity {
    /// Nothing: every endpoint is chosen sooner or later.
    None,
    /// The Service that is dialled.
    Client,
    /// One of two Services, where the endpoint of one is a frontend of the other: it depends on the
    /// first choice how many there are.
    Partly,
}

impl Ruling {
    /// Of `packet`, the first one that the socket of `dialler` would send. `localnet`: those to 127.0.0.0/8 reach
    /// NodePorts as packets.
    pub fn of(
        state: &NodeState,
        packet: &Packet,
        dialler: Dialler,
        meets: Meets,
        localnet: bool,
    ) -> Self {
        if meets != Meets::Both || dialler == Dialler::Machine {
            return Self::by_packets(state, on_packets(state, packet, localnet));
        }
        let all = layered(state, packet);
        let last = all.verdict();
        match &all.beneath {
            Beneath::Decides(_) => Self::by_packets(state, last),
            // An address that leads nowhere beneath is refused there.
            Beneath::Again(_) if last.outcome != Outcome::Forward => Self::by_packets(state, last),
            Beneath::Again(again) => {
                let mut all = again.iter().map(|(_, next)| next).chain([&all.above]);
                let sticks = all.any(|one| has_affinity(state, one));
                Self {
                    by: By::Hooks,
                    affinity: if sticks {
                        Affinity::Partly
                    } else {
                        Affinity::None
                    },
                    verdict: last,
                }
            }
            Beneath::Nothing => Self {
                by: By::Hooks,
                ..Self::by_packets(state, last)
            },
        }
    }

    fn by_packets(state: &NodeState, verdict: Verdict) -> Self {
        Self {
            by: By::Packets,
            affinity: if has_affinity(state, &verdict) {
                Affinity::Client
            } else {
                Affinity::None
            },
            verdict,
        }
    }

    /// Where it may land.
    pub fn targets(&self) -> BTreeSet<SocketAddr> {
        let targets = self.verdict.targets.iter();
        targets.map(|target| target.address).collect()
    }

    /// Whether the endpoint `landed` may take `client` for the client, where `source` is the one and
    /// `own` are the node's addresses.
    pub fn shows(
        &self,
        own: &[IpAddr],
        source: IpAddr,
        landed: SocketAddr,
        client: IpAddr,
    ) -> bool {
        let is_node = |address: IpAddr| address.is_loopback() || own.contains(&address);
        // Which of its addresses the node sends from, the route to the endpoint decides.
        let is_true = client == source || is_node(source) && is_node(client);
        let of_landed = |target: &&Target| target.address == landed;
        let mut targets = self.verdict.targets.iter().filter(of_landed).peekable();
        if targets.peek().is_none() {
            return is_true;
        }
        targets.any(|target| match target.masquerade {
            None => is_true,
            // What stays on the node needs no masquerade: the answer begins here.
            Some(_) => is_node(client) || is_true && is_node(landed.ip()),
        })
    }
}

fn has_affinity(state: &NodeState, says: &Verdict) -> bool {
    let service = says.service.as_ref();
    service
        .and_then(|key| state.services.get(key))
        .is_some_and(|service| service.affinity.is_some())
}

#[cfg(test)]
mod tests {
    use proxy_model::oracle::{Masquerade, Reason};

    use super::*;

    #[test]
    fn an_endpoint_sees_the_client_or_the_node() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let own = [ip("10.244.255.254"), ip("192.0.2.11")];
        let plain = None;
        let masked = Some(Masquerade::All);
        for (masquerade, source, landed, client, expected) in [
            (plain, "10.244.254.1", "10.244.0.5", "10.244.254.1", true),
            (plain, "10.244.254.1", "10.244.0.5", "10.244.255.254", false),
            (plain, "10.244.254.1", "10.244.0.5", "10.244.254.2", false),
            (plain, "127.0.0.1", "10.244.0.5", "10.244.255.254", true),
            (plain, "192.0.2.11", "10.244.0.5", "10.244.254.1", false),
            (masked, "10.244.254.1", "10.244.0.5", "10.244.255.254", true),
            (masked, "10.244.254.1", "10.244.0.5", "10.244.254.1", false),
            (masked, "10.244.254.1", "192.0.2.11", "10.244.254.1", true),
            // Nobody has led it there.
            (masked, "10.244.254.1", "10.244.0.9", "10.244.254.1", true),
            (masked, "10.244.254.1", "10.244.0.9", "192.0.2.11", false),
        ] {
            let target = if landed == "10.244.0.9" {
                "10.244.0.5"
            } else {
                landed
            };
            let ruling = Ruling {
                by: By::Hooks,
                affinity: Affinity::None,
                verdict: Verdict {
                    outcome: Outcome::Forward,
                    service: None,
                    frontend: None,
                    set: None,
                    targets: vec![Target {
                        address: (ip(target), 8080).into(),
                        masquerade,
                    }],
                    reason: Reason::ClusterSet,
                },
            };
            let shows = ruling.shows(&own, ip(source), (ip(landed), 8080).into(), ip(client));
            let said = format!("{masquerade:?} {source} at {landed} as {client}");
            assert_eq!(shows, expected, "{said}");
        }
    }
}
