//! Scenarios, and random clusters, against what packet backends would program: packets through
//! the rendered text, one rule after the other, must end as the oracle says. Needs no privileges, and
//! no kernel.
//!
//! In every step: what the file says of packets, what the sockets of its probes send, and all packets
//! that have to do with the state or one before it.

mod tracer;

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use libtest_mimic::Trial;
use proxy_model::{NodeState, oracle::Packet};
use proxy_tests::{
    conformance::{
        gaps::Gaps,
        packets::{self, Place},
        random::Walk,
    },
    scenario::{Probe, Scenario, judge, sources::CLIENT},
    world::NODE_ADDRESSES,
};

use self::tracer::Tracers;
use crate::trials;

/// Walks through random clusters, clusters of each, and packets in each of those.
const WALKS: u64 = 60;
const STATES: usize = 10;
const PACKETS: usize = 400;

pub fn trials(scenarios: &[Arc<Scenario>]) -> Vec<Trial> {
    let play = |scenario: &Scenario, states: &[NodeState], (): &()| trace(scenario, states);
    let mut all = trials::of_scenarios("scenarios_traced::", scenarios, &(), play);
    all.extend((1..=WALKS).map(|seed| {
        let name = format!("scenarios_traced::random/{seed}");
        trials::of(name, move || walk(seed))
    }));
    all
}

fn trace(scenario: &Scenario, states: &[NodeState]) -> Result<()> {
    let own = own(&scenario.settings.node_addresses);
    let mut places = BTreeSet::new();
    let mut gaps = Gaps::default();
    for (index, (step, state)) in scenario.steps.iter().zip(states).enumerate() {
        let tracers = Tracers::of(state)?;
        let named = step.packets.iter().map(|line| line.packet.clone());
        let sent = step.probes.iter().map(|probe| sent_by(probe, &own));
        let sent = sent.collect::<Result<Vec<_>>>()?;
        let all = all(state, &mut places, &own);
        for packet in named.chain(sent).chain(all) {
            let checked = tracers.check(&packet, &mut gaps);
            checked.with_context(|| format!("step {}", index + 1))?;
        }
    }
    gaps.tell(&scenario.name);
    Ok(())
}

fn walk(seed: u64) -> Result<()> {
    let mut walk = Walk::new(seed);
    let own = own(&walk.settings().node_addresses);
    let mut places = BTreeSet::new();
    let mut gaps = Gaps::default();
    for number in 1..=STATES {
        walk.step();
        let state = walk.state();
        let all = all(&state, &mut places, &own);
        let packets = walk.chance().sample(all, PACKETS);
        let traced = Tracers::of(&state).and_then(|tracers| {
            let mut packets = packets.iter();
            packets.try_for_each(|packet| tracers.check(packet, &mut gaps))
        });
        traced.with_context(|| {
            let text = walk.text();
            format!("walk {seed}, state {number}, as a scenario:\n{text}\n")
        })?;
    }
    gaps.tell(&format!("random {seed}"));
    Ok(())
}

/// The first packet that the socket of a probe sends, on a node with the addresses `own`.
fn sent_by(probe: &Probe, own: &[IpAddr]) -> Result<Packet> {
    let to = match probe.to.ip().to_canonical() {
        // The kernel takes the unspecified address for loopback.
        IpAddr::V4(v4) if v4.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(v6) if v6.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        to => to,
    };
    let family = usize::from(to.is_ipv6());
    let source = match probe.source.as_str() {
        // What is local is reached from there.
        "node" if to.is_loopback() || own.contains(&to) => to,
        "node" => NODE_ADDRESSES[family],
        _ => CLIENT[family].parse()?,
    };
    Ok(Packet {
        source,
        destination: SocketAddr::new(to, probe.to.port()),
        ..judge::packet_of(probe)
    })
}

fn own(more: &[IpAddr]) -> Vec<IpAddr> {
    [&NODE_ADDRESSES, more].concat()
}

/// All packets that have to do with `state` or one before it, of which `places` remembers what was
/// special.
fn all(state: &NodeState, places: &mut BTreeSet<Place>, own: &[IpAddr]) -> Vec<Packet> {
    places.extend(packets::places(state, own));
    packets::all(state, places, own)
}
