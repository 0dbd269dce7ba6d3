//! SOURCES, with OWN_ADDRS, and PORTS: from where endpoints are reached in the place of clients.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::IpAddr,
    time::{Duration, Instant},
};

use aya::{
    Ebpf,
    maps::{Array, HashMap, Map, MapData, MapError},
};
use proxy_common::track::{SourceKey, SourceValue};

use super::{
    super::{OpenError, with_causes},
    own::Own,
};
use crate::reserved::Ports;

/// Which ports are kept for something, in the network namespace of whoever reads.
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";
/// How often that is looked at: the kernel tells nobody of a change.
const EVERY: Duration = Duration::from_secs(5);

/// Whether netfilter is told of packets of IPv4 and of IPv6 that bridges carry, in the network namespace of
/// whoever asks. Without the module that does so there is nothing to read.
pub fn bridges_call() -> [bool; 2] {
    ["bridge-nf-call-iptables", "bridge-nf-call-ip6tables"].map(|name| {
        let read = fs::read_to_string(format!("/proc/sys/net/bridge/{name}"));
        read.is_ok_and(|value| value.trim() != "0")
    })
}

/// The maps, which nobody else writes.
pub struct Sourced {
    sources: HashMap<MapData, SourceKey, SourceValue>,
    own: Own,
    ports: Array<MapData, u32>,
    /// What PORTS holds, once that is known.
    held: Option<Ports>,
    looked: Option<Instant>,
    sources_fail: Failing,
    ports_fail: Failing,
}

impl Sourced {
    /// The maps of these programs.
    pub fn of(ebpf: &mut Ebpf) -> Result<Self, OpenError> {
        Ok(Self {
            sources: take(ebpf, "SOURCES")?,
            own: Own::of(ebpf)?,
            ports: take(ebpf, "PORTS")?,
            held: None,
            looked: None,
            sources_fail: Failing::default(),
            ports_fail: Failing::default(),
        })
    }

    /// Makes SOURCES hold what is `wanted`, OWN_ADDRS the addresses that `own` are, and PORTS what the host says; of
    /// the devices that are `spared`, nothing is removed. A failure is told, and tried again: where the programs
    /// know no source, the layer beneath serves.
    pub fn settle(
        &mut self,
        wanted: &BTreeMap<SourceKey, SourceValue>,
        own: &BTreeSet<IpAddr>,
        spared: &BTreeSet<u32>,
    ) {
        // A flow goes on as long as its address is in OWN_ADDRS.
        let written = self.own.settle(own);
        let written = written.and_then(|()| self.write_sources(wanted, spared));
        if let Some(error) = self.sources_fail.first(written) {
            tracing::warn!(%error, "addresses in the place of clients not known; trying again");
        }
        if self.looked.is_some_and(|at| at.elapsed() < EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let written = self.write_ports();
        if let Some(error) = self.ports_fail.first(written) {
            tracing::warn!(%error, "reserved ports not known; trying again");
        }
    }

    /// What cannot be written keeps nothing else from being so.
    fn write_sources(
        &mut self,
        wanted: &BTreeMap<SourceKey, SourceValue>,
        spared: &BTreeSet<u32>,
    ) -> Result<(), OpenError> {
        let there: Result<BTreeMap<_, _>, _> = self.sources.iter().collect();
        let there = there.map_err(|error| failed("reading map SOURCES", &error))?;
        let mut first = Ok(());
        // The last ones first: programs look for them from 0 on, without a gap.
        let is_over = |key: &&SourceKey| !wanted.contains_key(key) && !spared.contains(&key.device);
        for key in there.keys().rev().filter(is_over) {
            match self.sources.remove(key) {
                Ok(()) | Err(MapError::KeyNotFound) => {}
                Err(error) => first = first.and(Err(failed("removing from map SOURCES", &error))),
            }
        }
        for (key, value) in wanted {
            if there.get(key) != Some(value)
                && let Err(error) = self.sources.insert(key, value, 0)
            {
                first = first.and(Err(failed("writing to map SOURCES", &error)));
            }
        }
        first
    }

    fn write_ports(&mut self) -> Result<(), OpenError> {
        let text = fs::read_to_string(RESERVED).map_err(|error| failed(RESERVED, &error))?;
        let ports = Ports::parse(&text).map_err(|error| failed(RESERVED, &error))?;
        // After half of it nobody knows.
        let held = self.held.take();
        for (index, word) in ports.changed(held.as_ref()) {
            let written = self.ports.set(index, word, 0);
            written.map_err(|error| failed("writing map PORTS", &error))?;
        }
        self.held = Some(ports);
        Ok(())
    }
}

/// Whether the last attempt failed.
#[derive(Debug, Default)]
struct Failing(bool);

impl Failing {
    /// Why the attempt failed, if the one before did not: that is to be told.
    fn first(&mut self, outcome: Result<(), OpenError>) -> Option<OpenError> {
        let failed_before = std::mem::replace(&mut self.0, outcome.is_err());
        outcome.err().filter(|_| !failed_before)
    }
}

pub(super) fn take<M: TryFrom<Map, Error = MapError>>(
    ebpf: &mut Ebpf,
    name: &'static str,
) -> Result<M, OpenError> {
    let map = ebpf.take_map(name);
    let map = map.ok_or_else(|| OpenError::Other(format!("no map {name}")))?;
    map.try_into()
        .map_err(|error| failed(&format!("opening map {name}"), &error))
}

pub(super) fn failed(what: &str, error: &dyn std::error::Error) -> OpenError {
    OpenError::Later(format!("{what}: {}", with_causes(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_and_again_is_told_once() {
        let mut failing = Failing::default();
        let failure = || Err(OpenError::Later("no room".to_owned()));
        let told = |outcome| failing.first(outcome).is_some();
        let outcomes = [Ok(()), failure(), failure(), Ok(()), failure()];
        let all = outcomes.map(told);
        assert_eq!(all, [false, true, false, false, true]);
    }
}
