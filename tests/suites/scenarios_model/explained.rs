//! `explain` must answer of every probe and every packet what the file expects. Reads its JSON as
//! a script would, and nothing else of it.

use std::{collections::BTreeMap, net::SocketAddr};

use anyhow::{Context as _, Result, bail, ensure};
use proxy_agent::{
    backend::choice::{Mode, choose},
    backends,
    report::explain::{explain, explain_served},
};
use proxy_model::{
    Model,
    oracle::{Packet, Path},
};
use proxy_tests::scenario::{
    LayeredLine, Outcome, PacketLine, Probe, judge, layered::End, packets::Fate,
};
use serde_json::Value;

/// What `explain` says of a new connection or datagram; what an open socket keeps is nothing that
/// it could know.
pub fn probe(model: &Model, probe: &Probe) -> Result<()> {
    let told = ask(model, &judge::packet_of(probe), Path::Socket)?;
    if probe.socket.is_some() && probe.transport.is_connected() {
        // A connection outlives what became of its endpoint.
        return Ok(());
    }
    let agrees = match (&probe.outcome, &told) {
        (Outcome::Refused, Fate::Rejected)
        | (Outcome::Unreachable, Fate::Dropped)
        | (Outcome::Untouched, Fate::Untouched) => true,
        (
            Outcome::Endpoints(expected) | Outcome::OneOf(expected) | Outcome::Sticky(expected),
            Fate::Endpoints(told),
        ) => {
            let unmasked = told.values().all(|masquerade| !masquerade);
            let keeps = judge::keeper(probe).is_some();
            let all = expected.iter().all(|address| told.contains_key(address));
            unmasked && all && (keeps || expected.len() == told.len())
        }
        _ => false,
    };
    ensure!(
        agrees,
        "line {}: {probe}\nbut explain says: {told}",
        probe.line
    );
    Ok(())
}

/// What `explain` says of a packet.
pub fn packet(model: &Model, line: &PacketLine) -> Result<()> {
    let told = ask(model, &line.packet, Path::Packet)?;
    ensure!(
        told == line.fate,
        "line {}: {line}\nbut explain says: {told}",
        line.line
    );
    Ok(())
}

/// What `explain` says of a probe, which sends `packet`, on a node with the layers that mode auto
/// prefers: what becomes of it, and whether a hook decides.
pub fn layered(model: &Model, line: &LayeredLine, packet: &Packet) -> Result<()> {
    let chosen = choose(Mode::Auto, backends::ALL, |_| None)?.choice();
    let json = explain_served(model, packet, Path::Socket, &chosen.clone().into()).to_json();
    let told = understand(&json).with_context(|| format!("explain answered {json}"))?;
    let answer: Value = serde_json::from_str(&json)?;
    let by_hook = answer["layer"].as_str() == chosen.above();
    let agrees = match &line.end {
        End::Refused => by_hook && told == Fate::Rejected,
        End::Unreachable => by_hook && told == Fate::Dropped,
        End::Fate(fate) => told == *fate,
    };
    ensure!(
        agrees,
        "line {}: {line}\nbut explain says: {told}, by {}",
        line.probe.line,
        answer["layer"]
    );
    Ok(())
}

fn ask(model: &Model, packet: &Packet, path: Path) -> Result<Fate> {
    let json = explain(model, packet, path).to_json();
    understand(&json).with_context(|| format!("explain answered {json}"))
}

fn understand(json: &str) -> Result<Fate> {
    let answer: Value = serde_json::from_str(json)?;
    let endpoint = |value: &Value| -> Result<(SocketAddr, bool)> {
        let address = value["address"].as_str().context("no address")?.parse()?;
        Ok((
            address,
            value["masquerade"].as_bool().context("no masquerade")?,
        ))
    };
    let endpoints = answer["endpoints"].as_array().context("no endpoints")?;
    let endpoints: BTreeMap<_, _> = endpoints.iter().map(endpoint).collect::<Result<_>>()?;
    let outcome = answer["outcome"].as_str();
    ensure!(
        (outcome == Some("forward")) != endpoints.is_empty(),
        "endpoints are for what is forwarded"
    );
    Ok(match outcome {
        Some("forward") => Fate::Endpoints(endpoints),
        Some("reject") => Fate::Rejected,
        Some("drop") => Fate::Dropped,
        Some("pass") => Fate::Untouched,
        other => bail!("{other:?} is no outcome"),
    })
}
