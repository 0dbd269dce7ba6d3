//! Holds what scenario files expect, and what real traffic does, against the oracle.
//!
//! The oracle knows no history: it is asked about the first packet of a connection, and about
//! what a socket that keeps its endpoint may keep.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use anyhow::{Result, ensure};
use proxy_model::{
    NodeState, Protocol,
    oracle::{self, Packet, Path, Verdict},
};

use super::{Outcome, PacketLine, Probe, packets::Fate};
use crate::world::NODE_ADDRESSES;

/// What real traffic did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// These answered.
    Answers(BTreeSet<SocketAddr>),
    /// Every attempt failed with this error.
    Failed(String),
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answers(answers) => write!(f, "answers from {answers:?}"),
            Self::Failed(errno) => f.write_str(errno),
        }
    }
}

/// Judges the probes of one scenario, in order: sockets may stay open.
#[derive(Debug, Default)]
pub struct Judge {
    /// Source, name and destination of the sockets that reached an endpoint; of clients with
    /// session affinity, the protocol is the name.
    open: BTreeSet<(String, String, SocketAddr)>,
}

/// What the oracle can say of a probe.
enum Say {
    /// Exactly where it may lead.
    All(Verdict),
    /// What a socket may keep.
    Kept(Verdict),
    /// Nothing: the connection exists already.
    Nothing,
}

impl Judge {
    fn say(&mut self, state: &NodeState, probe: &Probe) -> Say {
        let verdict = of_probe(state, probe);
        let Some(name) = keeper(probe) else {
            return Say::All(verdict);
        };
        let reaches = !matches!(
            probe.outcome,
            Outcome::Refused | Outcome::Unreachable | Outcome::Untouched
        );
        let socket = (probe.source.clone(), name, probe.to);
        if !reaches || self.open.insert(socket) {
            Say::All(verdict)
        } else if probe.socket.is_some() && probe.transport.is_connected() {
            Say::Nothing
        } else {
            Say::Kept(verdict)
        }
    }

    /// The file must expect of a probe what the oracle says.
    pub fn expectation(&mut self, state: &NodeState, probe: &Probe) -> Result<()> {
        let (verdict, kept) = match self.say(state, probe) {
            Say::All(verdict) => (verdict, false),
            Say::Kept(verdict) => (verdict, true),
            Say::Nothing => return Ok(()),
        };
        let targets = addresses(&verdict);
        let sticks = has_affinity(state, &verdict);
        let agrees = match (&probe.outcome, verdict.outcome) {
            (Outcome::Sticky(set), oracle::Outcome::Forward) => {
                sticks && (*set == targets || (kept && set.is_subset(&targets)))
            }
            (Outcome::Endpoints(set) | Outcome::OneOf(set), oracle::Outcome::Forward) => {
                let spreads = !sticks || probe.socket.is_some() || set.len() == 1;
                spreads && (*set == targets || (kept && set.is_subset(&targets)))
            }
            (Outcome::Refused, oracle::Outcome::Reject)
            | (Outcome::Unreachable, oracle::Outcome::Drop)
            | (Outcome::Untouched, oracle::Outcome::Pass) => true,
            _ => false,
        };
        ensure!(
            agrees,
            "line {}: {probe}\nbut the oracle says: {} {}{targets:?}",
            probe.line,
            verdict.outcome,
            if sticks { "with affinity " } else { "" }
        );
        Ok(())
    }

    /// What real traffic did must be among what the oracle allows.
    pub fn observation(&mut self, state: &NodeState, probe: &Probe, seen: &Seen) -> Result<()> {
        let verdict = match self.say(state, probe) {
            Say::All(verdict) | Say::Kept(verdict) => verdict,
            Say::Nothing => return Ok(()),
        };
        ensure!(
            allows(state, &verdict, probe, seen),
            "{seen}, but the oracle allows only: {} {:?}",
            verdict.outcome,
            addresses(&verdict)
        );
        Ok(())
    }
}

/// What keeps an endpoint from probe to probe: an open socket, or a client with session affinity.
pub fn keeper(probe: &Probe) -> Option<String> {
    match (&probe.socket, &probe.outcome) {
        (Some(name), _) => Some(name.clone()),
        (None, Outcome::Sticky(_)) if probe.transport.is_udp() => Some("any/UDP".to_owned()),
        (None, Outcome::Sticky(_)) => Some("any/TCP".to_owned()),
        _ => None,
    }
}

fn has_affinity(state: &NodeState, verdict: &Verdict) -> bool {
    let service = verdict.service.as_ref();
    service
        .and_then(|key| state.services.get(key))
        .is_some_and(|service| service.affinity.is_some())
}

/// What the oracle says of a probe.
pub fn of_probe(state: &NodeState, probe: &Probe) -> Verdict {
    oracle::verdict(state, &packet_of(probe), Path::Socket)
}

/// What a local process sends when it dials.
pub fn packet_of(probe: &Probe) -> Packet {
    Packet {
        // All that a socket hook knows of it is whether it is the node itself.
        source: match (probe.source.as_str(), probe.to.ip()) {
            ("node", IpAddr::V4(_)) => NODE_ADDRESSES[0],
            ("node", IpAddr::V6(_)) => NODE_ADDRESSES[1],
            (_, IpAddr::V4(_)) => Ipv4Addr::UNSPECIFIED.into(),
            (_, IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        },
        destination: probe.to,
        protocol: if probe.transport.is_udp() {
            Protocol::Udp
        } else {
            Protocol::Tcp
        },
        interface: None,
    }
}

fn allows(state: &NodeState, verdict: &Verdict, probe: &Probe, seen: &Seen) -> bool {
    let failed =
        |allowed: &[&str]| matches!(seen, Seen::Failed(errno) if allowed.contains(&&**errno));
    match (verdict.outcome, seen) {
        (oracle::Outcome::Forward, Seen::Answers(answers)) => {
            !answers.is_empty() && answers.is_subset(&addresses(verdict))
        }
        (oracle::Outcome::Forward, Seen::Failed(_)) => false,
        // Kernels before 6.1 have one error for everything.
        (oracle::Outcome::Reject, _) => failed(&["ECONNREFUSED", "EPERM"]),
        (oracle::Outcome::Drop, _) => failed(&["EHOSTUNREACH", "EPERM"]),
        (oracle::Outcome::Pass, Seen::Answers(answers)) => *answers == [probe.to].into(),
        // Only the node itself is there to refuse.
        (oracle::Outcome::Pass, Seen::Failed(_))
            if state.node.is_host(probe.to.ip()) || probe.to.ip().is_unspecified() =>
        {
            failed(&["ECONNREFUSED"])
        }
        (oracle::Outcome::Pass, Seen::Failed(_)) => failed(&["ENETUNREACH"]),
    }
}

/// The file must expect of a packet what the oracle says.
pub fn packet(state: &NodeState, line: &PacketLine) -> Result<()> {
    let verdict = oracle::verdict(state, &line.packet, Path::Packet);
    let fate = Fate::from(&verdict);
    ensure!(
        fate == line.fate,
        "line {}: {line}\nbut the oracle says: {fate}",
        line.line
    );
    Ok(())
}

fn addresses(verdict: &Verdict) -> BTreeSet<SocketAddr> {
    verdict
        .targets
        .iter()
        .map(|target| target.address)
        .collect()
}

#[cfg(test)]
mod tests;
