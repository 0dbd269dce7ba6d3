//! Random clusters and real sockets: a scenario that chance writes, with the oracle's words for what
//! must come of its probes. What a file could say, it is played as if a file had said it.

use std::fmt::Write as _;

use anyhow::{Result, anyhow};
use proxy_model::{NodeState, Protocol, oracle::Outcome as Verdict};

use super::{
    packets,
    random::{Chance, Walk},
    trial::{self, Backend},
};
use crate::{
    pod::Transport,
    scenario::{Outcome, Probe, Scenario, judge},
    world::NODE_ADDRESSES,
};

/// Probes in each state, at most: those that lead somewhere, those that are refused, and those that may
/// take their time because nothing answers.
const ANSWERED: usize = 10;
const REFUSED: usize = 3;
const SILENT: usize = 2;

/// Who dials.
const SOURCES: [&str; 3] = ["node", "pod", "pod"];

/// Walks through `states` random clusters, with this number, and dials in each.
pub fn walk(seed: u64, states: usize, backend: &Backend) -> Result<()> {
    // Which client has which endpoint is told from one state to the next by packets.
    let mut walk = Walk::without_affinity(seed);
    let mut text = walk.heading();
    let mut all = Vec::with_capacity(states);
    for _ in 0..states {
        walk.step();
        let state = walk.state();
        text.push_str(&walk.files());
        text.push_str("\n-- probes --\n");
        for probe in probes(&state, &mut walk) {
            writeln!(text, "{probe}").expect("writing to a String cannot fail");
        }
        all.push(state);
    }
    let name = format!("random-sockets {seed}");
    let scenario = Scenario::parse(name, "random.txt".into(), &text)?;
    // What is wrong comes first: the scenario is long.
    trial::probes(&scenario, &all, backend).map_err(|error| {
        anyhow!("{error:#}\n--seed {seed} --random {states}, as a scenario:\n{text}\n")
    })
}

fn probes(state: &NodeState, walk: &mut Walk) -> Vec<Probe> {
    let own = [&NODE_ADDRESSES[..], &walk.settings().node_addresses].concat();
    let places = packets::places(state, &own).into_iter();
    let places: Vec<_> = places
        .filter(|(_, protocol)| *protocol != Protocol::Sctp)
        .collect();
    let chance = walk.chance();
    let all = places.into_iter().map(|(to, protocol)| {
        let mut probe = Probe {
            source: chance.pick(&SOURCES).to_owned(),
            transport: transport(protocol, chance),
            socket: None,
            to,
            outcome: Outcome::Untouched,
            line: 0,
        };
        probe.outcome = outcome(state, &probe);
        if probe.outcome == Outcome::Untouched && protocol == Protocol::Udp {
            // Nobody tells a socket without a peer that nobody listens.
            probe.transport = Transport::UdpConnected;
        }
        probe
    });
    let (answered, others): (Vec<_>, Vec<_>) =
        all.partition(|probe| matches!(probe.outcome, Outcome::Endpoints(_)));
    let (refused, silent): (Vec<_>, Vec<_>) = others
        .into_iter()
        .partition(|probe| probe.outcome == Outcome::Refused);
    let mut probes = chance.sample(answered, ANSWERED);
    probes.extend(chance.sample(refused, REFUSED));
    probes.extend(chance.sample(silent, SILENT));
    probes
}

fn transport(protocol: Protocol, chance: &mut Chance) -> Transport {
    match protocol {
        Protocol::Udp => chance.pick(&[Transport::Udp, Transport::UdpConnected]),
        Protocol::Tcp | Protocol::Sctp => chance.pick(&[Transport::Tcp, Transport::Http]),
    }
}

/// What the oracle says, in the words of scenario files.
fn outcome(state: &NodeState, probe: &Probe) -> Outcome {
    let says = judge::of_probe(state, probe);
    match says.outcome {
        Verdict::Forward => {
            let targets = says.targets.iter();
            Outcome::Endpoints(targets.map(|target| target.address).collect())
        }
        Verdict::Reject => Outcome::Refused,
        Verdict::Drop => Outcome::Unreachable,
        Verdict::Pass => Outcome::Untouched,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_chance_writes_is_a_scenario() {
        for seed in 0..10 {
            let mut walk = Walk::without_affinity(seed);
            let mut answered = 0;
            for _ in 0..5 {
                walk.step();
                let state = walk.state();
                assert!(state.services.values().all(|one| one.affinity.is_none()));
                let probes = probes(&state, &mut walk);
                assert!(probes.len() <= ANSWERED + REFUSED + SILENT);
                for probe in &probes {
                    let mut judge = judge::Judge::default();
                    judge.expectation(&state, probe).unwrap();
                    answered += usize::from(matches!(probe.outcome, Outcome::Endpoints(_)));
                }
            }
            assert!(answered > 0, "nobody answers in walk {seed}");
        }
    }
}
