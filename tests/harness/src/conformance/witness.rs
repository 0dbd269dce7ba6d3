//! Sends packets as often as it takes to see all that may become of them, and holds that against the
//! oracle.

use std::{
    collections::{BTreeSet, HashMap},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use anyhow::{Context as _, Result, bail, ensure};
use proxy_model::{
    Capability, NodeState, Protocol,
    oracle::{Outcome, Packet, PassedOn, Reason, Verdict, taken_on_device},
};

use super::{
    devices::Shared,
    gaps,
    verdict::{judge, on_packets},
};
use crate::{
    journey::{Datagram, Entry, Kind, Rig, Shot, Sighting},
    scenario::{packets::Fate, subject::Under},
    world::World,
};

/// How often a packet is sent that has but one way to go.
const FEW: usize = 3;

/// How often a client with session affinity dials.
const STICKY: usize = 16;

/// The odds of calling an endpoint missing that was only never chosen.
const MISS: f64 = 1e-9;

/// By which endpoints of this node send, where programs are on the devices of clients outside.
const INSIDE: &str = "pods0";

/// A node, and what its clients were led to so far.
#[derive(Debug)]
pub struct Witness<'w> {
    world: &'w World,
    rig: Rig,
    /// The endpoint of each client with session affinity, by what it dials.
    kept: HashMap<Client, SocketAddr>,
    /// What programs on its devices have, if they are there.
    shared: Option<Shared>,
    /// No layer beneath them decides about the rest.
    is_alone: bool,
    /// Endpoints on the node see clients.
    keeps_clients: bool,
    /// Packets that the node sends to 127.0.0.0/8 reach NodePorts.
    localnet: bool,
}

/// A client, the interface that it comes by, and what it dials. Nobody comes by two interfaces, by
/// one of which it would be led to other endpoints.
type Dials = (IpAddr, Option<Arc<str>>, SocketAddr, Protocol);

/// One that programs on devices take or do not: each layer has session affinity of its own.
type Client = (Dials, bool);

impl<'w> Witness<'w> {
    /// One for the node of `world`, which must be [bare](World::bare), where packets arrive on
    /// `interfaces`, devices of this kind, of what is `under` test, and has a packet path to loopback addresses
    /// or not.
    pub fn new(
        world: &'w World,
        interfaces: &BTreeSet<Arc<str>>,
        kind: Kind,
        under: &Under,
        localnet: bool,
    ) -> Result<Self> {
        let is_shared = under.has_devices();
        let mut interfaces = interfaces.clone();
        interfaces.extend(is_shared.then(|| INSIDE.into()));
        Ok(Self {
            world,
            rig: Rig::new(world, &interfaces, kind)?,
            kept: HashMap::new(),
            shared: is_shared.then(|| Shared::new(world)).transpose()?,
            is_alone: matches!(under, Under::DevicesAlone(_)),
            keeps_clients: matches!(under, Under::DevicesKeeping),
            localnet,
        })
    }

    /// How many packets programs on devices took, if they are there.
    pub fn taken(&self) -> Option<usize> {
        self.shared.as_ref().map(Shared::taken)
    }

    /// Sends `packet`: what becomes of it must be what the oracle says by `state`, whenever it is
    /// sent, and everything that it allows must happen. Says what it needs of `lacks`, instead, if it
    /// needs anything.
    pub fn check(
        &mut self,
        state: &NodeState,
        packet: &Packet,
        lacks: &[Capability],
    ) -> Result<Option<Capability>> {
        let packet = packet.canonical();
        let mut says = on_packets(state, &packet, self.localnet);
        let entry = self.entry(state, &packet, &says);
        let mut gap = gaps::of(state, &packet, &entry, &says, lacks);
        let is_by_device = entry != Entry::Node && entry != Entry::Interface(INSIDE.into());
        if self.keeps_clients
            && is_by_device
            && let Ok(taken) = taken_on_device(state, &packet, true)
        {
            // Of others, the layer beneath decides as ever.
            says = taken.verdict;
        }
        if self.is_alone && gap.is_none() {
            gap = self.settle(state, &packet, &entry, &mut says);
        }
        if gap.is_none() {
            self.hold(state, &packet, entry, &says).with_context(|| {
                let from = match &packet.interface {
                    Some(interface) => format!("{}@{interface}", packet.source),
                    None => packet.source.to_string(),
                };
                let (to, protocol) = (packet.destination, packet.protocol);
                let fate = Fate::from(&says);
                let why = says.reason;
                format!("{from} {to}/{protocol} -> {fate}, the oracle says ({why:?}), but")
            })?;
        }
        Ok(gap)
    }

    /// What is different where no layer beneath decides. Says what the packet needs that programs on devices
    /// lack.
    fn settle(
        &self,
        state: &NodeState,
        packet: &Packet,
        entry: &Entry,
        says: &mut Verdict,
    ) -> Option<Capability> {
        if matches!(says.reason, Reason::UnknownPort | Reason::Unallocated) {
            return Some(Capability::StrayTraffic);
        }
        if *entry == Entry::Node || *entry == Entry::Interface(INSIDE.into()) {
            return Some(Capability::ForeignClients);
        }
        match taken_on_device(state, packet, false) {
            Ok(taken) if taken.whatever_is_chosen() => {}
            Err(PassedOn::Protocol) => return Some(Capability::Sctp),
            // What the node may say of itself is served by nobody, either.
            Err(PassedOn::NoFrontend | PassedOn::SourceRanges | PassedOn::NoEndpoint)
                if says.outcome != Outcome::Forward => {}
            Ok(_) | Err(_) => return Some(Capability::ForeignClients),
        }
        if says.outcome == Outcome::Reject {
            let own = self.world.node().addresses();
            says.outcome = if own.contains(&packet.destination.ip()) {
                // The node's own stack refuses it there.
                Outcome::Pass
            } else {
                Outcome::Drop
            };
        }
        None
    }

    fn hold(
        &mut self,
        state: &NodeState,
        packet: &Packet,
        entry: Entry,
        says: &Verdict,
    ) -> Result<()> {
        let sticks = has_affinity(state, says);
        let count = match (says.outcome, says.targets.len()) {
            (Outcome::Forward, targets) if targets > 1 && !sticks => attempts(targets),
            (Outcome::Forward, _) if sticks => STICKY,
            _ => FEW,
        };
        let shot = Shot {
            entry,
            source: packet.source,
            destination: packet.destination,
            protocol: packet.protocol,
        };
        let own = self.world.node().addresses();
        let mut landed = BTreeSet::new();
        let is_inside = shot.entry == Entry::Interface(INSIDE.into());
        let is_taken = if is_inside {
            Some(false)
        } else {
            Shared::takes(state, packet, &shot.entry, self.keeps_clients)
        };
        for (sent, seen) in self.rig.fire(&vec![shot.clone(); count])? {
            let endpoint = judge(says, own, &shot.entry, &sent, seen)?;
            if let (Some(shared), Some(is_taken)) = (&mut self.shared, is_taken) {
                shared.judge(is_taken, &shot.entry, &sent, seen)?;
            }
            // A client that keeps its endpoint talks to it once.
            if endpoint.is_some_and(|endpoint| landed.insert(endpoint)) {
                self.converse(&shot.entry, &sent, seen)?;
            }
        }
        if sticks {
            let dials = (
                packet.source,
                packet.interface.clone(),
                packet.destination,
                packet.protocol,
            );
            return self.keep(
                (dials, is_taken == Some(true) && self.shared.is_some()),
                &landed,
            );
        }
        let mut targets = says.targets.iter().map(|target| target.address);
        match targets.find(|target| !landed.contains(target)) {
            Some(missing) => bail!("of {count} packets, none landed on {missing}"),
            None => Ok(()),
        }
    }

    /// What comes back from the endpoint, and errors in both directions.
    fn converse(&mut self, entry: &Entry, sent: &Datagram, seen: Sighting) -> Result<()> {
        match (&self.shared, seen) {
            (Some(_), Sighting::Left(landed)) => {
                Shared::converse(&mut self.rig, entry, sent, &landed)
            }
            _ => Ok(()),
        }
    }

    /// A client keeps its endpoint.
    fn keep(&mut self, client: Client, landed: &BTreeSet<SocketAddr>) -> Result<()> {
        ensure!(landed.len() <= 1, "one client landed on {landed:?}");
        let Some(endpoint) = landed.first().copied() else {
            return Ok(());
        };
        let before = self.kept.insert(client, endpoint);
        ensure!(
            before.is_none_or(|before| before == endpoint),
            "it landed on {endpoint}, and before, as the same client, on {before:?}"
        );
        Ok(())
    }

    /// Forgets which clients keep endpoints: a Service that had no session affinity meanwhile may have
    /// done so, too.
    pub fn forget_clients(&mut self) {
        self.kept.clear();
    }

    /// Forgets those whose endpoint `state` does not have for them: should a later one have it again,
    /// they need not get it back.
    pub fn forget_former(&mut self, state: &NodeState) {
        let localnet = self.localnet;
        self.kept.retain(|client, endpoint| {
            let (source, interface, destination, protocol) = client.0.clone();
            let packet = Packet {
                source,
                destination,
                protocol,
                interface,
            };
            let says = on_packets(state, &packet, localnet);
            let mut targets = says.targets.iter();
            has_affinity(state, &says) && targets.any(|target| target.address == *endpoint)
        });
    }

    fn entry(&self, state: &NodeState, packet: &Packet, says: &Verdict) -> Entry {
        let own = self.world.node().addresses();
        let mut targets = says.targets.iter();
        if self.shared.is_some()
            && targets.any(|target| target.address.ip() == packet.source)
            && Shared::takes(state, packet, &Entry::Anywhere, self.keeps_clients) != Some(false)
        {
            return Entry::Interface(INSIDE.into());
        }
        match &packet.interface {
            Some(interface) => Entry::Interface(Arc::clone(interface)),
            None if packet.source.is_loopback() || own.contains(&packet.source) => Entry::Node,
            None => Entry::Anywhere,
        }
    }
}

fn has_affinity(state: &NodeState, says: &Verdict) -> bool {
    let service = says.service.as_ref();
    service
        .and_then(|key| state.services.get(key))
        .is_some_and(|service| service.affinity.is_some())
}

/// How often to choose fairly among `targets` until one is missed with odds of [`MISS`] at most.
fn attempts(targets: usize) -> usize {
    let mut odds = f64::from(u32::try_from(targets).unwrap_or(u32::MAX));
    let others = 1.0 - 1.0 / odds;
    let mut count = 0;
    while odds > MISS {
        odds *= others;
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_attempts_for_any_number_of_endpoints() {
        assert_eq!([2, 3, 10].map(attempts), [31, 54, 219]);
    }
}
