//! What a start with another configuration would need, tried while the agent serves: changes nothing, and
//! leaves nothing behind.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use proxy_model::Capability;
use tokio::task::block_in_place;

use super::{Configuration, RunError, anew, choose_layers, open_source, programmed};
use crate::{
    backend::{check, none},
    config::{Agent, Run},
    heart::Heart,
    serving::ServingOptions,
};

/// Tries what a start with `wanted` does before it writes anything, in the process that has `now`. An
/// error says why such a start would fail. Blocks for as long as programs take that give credentials.
pub fn start(now: &Configuration, wanted: &Configuration) -> Result<(), String> {
    block_in_place(|| {
        anew::check()?;
        let opened = match wanted {
            Configuration::Run(run) => {
                let programmed = programmed(&run.backends);
                source(&run.agent, &layers(run)?, programmed)
            }
            Configuration::Brain(agent) => source(agent, &none::choice().lacks, |_| false),
        };
        opened.map_err(|error| error.to_string())?;
        addresses(&now.agent().serving, &wanted.agent().serving)
    })
}

/// Whether there are layers that this host supports, and what they lack. A start would not ask about one
/// that the mode requires: it would find out when it opens it, after this agent has ended.
fn layers(run: &Run) -> Result<Vec<Capability>, String> {
    if let Some(kind) = run.mode.required()
        && let Some(reason) = check::why_not(kind, &run.backends)
    {
        let name = kind.name();
        return Err(format!("mode: {name} cannot serve on this host: {reason}"));
    }
    let chosen = choose_layers(run).map_err(|error| error.to_string())?;
    Ok(chosen.choice().lacks)
}

/// Opens the source and closes it again. Nobody is told what it is at: that is the serving agent's.
fn source(
    agent: &Agent,
    lacks: &[Capability],
    programmed: impl Fn(SocketAddr) -> bool + Send + Sync + 'static,
) -> Result<(), RunError> {
    open_source(agent, &Heart::default(), lacks, programmed).map(drop)
}

/// Addresses that are new must be free, also where a start would go on without them: what asks there
/// now would be left without an answer.
fn addresses(now: &ServingOptions, wanted: &ServingOptions) -> Result<(), String> {
    let is_new = (now.healthz, now.metrics) != (wanted.healthz, wanted.metrics);
    if let (Some(healthz), Some(metrics)) = (wanted.healthz, wanted.metrics)
        && is_new
        && overlap(healthz, metrics)
    {
        return Err(format!(
            "metricsBindAddress: {metrics} is also that of healthzBindAddress, {healthz}; give another \
             port"
        ));
    }
    let own: Vec<_> = [now.healthz, now.metrics].into_iter().flatten().collect();
    let each = [
        ("healthzBindAddress", wanted.healthz),
        ("metricsBindAddress", wanted.metrics),
    ];
    for (field, address) in each {
        if let Some(address) = address.filter(|address| !own.contains(address)) {
            bind(address, &own).map_err(|error| {
                format!(
                    "{field}: {address} cannot be bound: {error}; stop the process that listens there, \
                     or give another address"
                )
            })?;
        }
    }
    Ok(())
}

/// What this process itself has, by an address that holds this one or is held by it, will be free.
fn bind(address: SocketAddr, own: &[SocketAddr]) -> io::Result<()> {
    match TcpListener::bind(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let is_own = own.iter().any(|one| overlap(*one, address));
            if is_own { Ok(()) } else { Err(error) }
        }
        bound => bound.map(drop),
    }
}

/// Whether only one of them can be bound.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_any = |address: SocketAddr| address.ip().is_unspecified();
    let same = one.ip() == other.ip() || is_any(one) || is_any(other);
    // Each family may have one of its own, but for the address that is any of both.
    let both = one.is_ipv4() == other.is_ipv4()
        || [one, other]
            .iter()
            .any(|address| address.is_ipv6() && is_any(*address));
    one.port() == other.port() && same && both
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_new_address_must_be_free_and_a_port_of_ones_own_will_be() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = taken.local_addr().unwrap();
        let error = bind(address, &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let everywhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
        bind(address, &[everywhere]).unwrap();
        let elsewhere = SocketAddr::new([127, 0, 0, 2].into(), address.port());
        bind(address, &[elsewhere]).unwrap_err();
        drop(taken);
        bind(address, &[]).unwrap();
    }
}
