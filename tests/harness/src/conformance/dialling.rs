//! The probes of scenarios, between real sockets, by a backend that meets packets: every socket is
//! outside of it, those of the node too. What must come of a probe is what the oracle says of the
//! packet that its socket sends; what files say is for backends that meet sockets.
//!
//! Only sockets tell what connections live through: an open one keeps its endpoint, answers come back
//! from the address that was dialled. What a packet is worth that nobody answers is seen better by
//! [`witness`](super::witness), which need not wait for nothing to happen.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use proxy_model::{
    NodeState, Protocol,
    oracle::{Outcome, Packet, Path, Verdict, verdict},
};

use crate::{
    pod::{ATTEMPT_LIMIT, Attempt, Listen, Prober, Server},
    scenario::{Probe, Scenario, objects, subject::Subject, traffic::CLIENT},
    world::{Host, NODE_ADDRESSES, World},
};

use super::{gaps, trial::Backend};
use crate::journey::Entry;

/// Requests per question to a prober.
const ROUND: u32 = 16;

/// Rounds per endpoint after which one that never answered is missing.
const ROUNDS: usize = 20;

/// How long nothing may come for it to be nothing. What would come needs a thousandth of it.
const SILENCE: Duration = Duration::from_millis(300);

/// The device by which packets of pods reach the node.
const BRIDGE: &str = "br0";

/// Runs every step of `scenario` and its probes. `states` are the node-local states after each step.
pub fn run(scenario: &Scenario, states: &[NodeState], backend: &Backend) -> Result<()> {
    let lacks = backend.lacks()?;
    let listen = objects::listeners(scenario)?;
    let addresses: BTreeSet<IpAddr> = listen.iter().map(|one| one.address.ip()).collect();
    let addresses: Vec<IpAddr> = addresses.into_iter().collect();
    let world = World::routed(&scenario.settings.node_addresses, &addresses)?;
    let mut wire = Wire::new(&world, &listen)?;
    let node = &scenario.settings.model.node;
    let mut subject = Subject::behind_brain(backend.under(), &world, node, &states[0])?;
    for (index, (step, state)) in scenario.steps.iter().zip(states).enumerate() {
        let here = || format!("step {}", index + 1);
        if index > 0 {
            subject.follow(state).with_context(here)?;
            subject = subject.replace_brain(state)?;
        }
        for probe in &step.probes {
            let packet = wire.packet(probe)?;
            let says = verdict(state, &packet, Path::Packet);
            let entry = match probe.source.as_str() {
                "node" => Entry::Node,
                _ => Entry::Interface(BRIDGE.into()),
            };
            if let Some(gap) = gaps::of(state, &packet, &entry, &says, lacks) {
                println!("GAP: {}, line {}: needs {gap}", scenario.name, probe.line);
                continue;
            }
            if let Err(error) = wire.check(state, probe, &packet, &says) {
                bail!(
                    "step {}, line {}: {probe}\nfrom {}, of which the oracle says {} {:?}, but: \
                     {error:#}\nits log:\n{}",
                    index + 1,
                    probe.line,
                    packet.source,
                    says.outcome,
                    targets(&says),
                    subject.log()
                );
            }
        }
    }
    subject.finish()
}

fn targets(says: &Verdict) -> BTreeSet<SocketAddr> {
    let targets = says.targets.iter();
    targets.map(|target| target.address).collect()
}

/// Pods, and who was led where.
struct Wire<'w> {
    world: &'w World,
    client: Host,
    /// One for each endpoint address that is none of the node's.
    endpoints: BTreeMap<IpAddr, Host>,
    _servers: Vec<Server>,
    listen: BTreeSet<Listen>,
    probers: HashMap<(String, IpAddr), Prober>,
    /// The endpoint of each open socket, and of each client with session affinity, by source, socket
    /// or protocol, and destination.
    kept: HashMap<(IpAddr, String, SocketAddr), SocketAddr>,
}

impl<'w> Wire<'w> {
    fn new(world: &'w World, listen: &BTreeSet<Listen>) -> Result<Self> {
        let client: Result<Vec<IpAddr>, _> = CLIENT.iter().map(|text| text.parse()).collect();
        let mut endpoints = BTreeMap::new();
        let mut servers = Vec::new();
        let addresses: BTreeSet<IpAddr> = listen.iter().map(|one| one.address.ip()).collect();
        for address in addresses {
            let own: Vec<_> = listen
                .iter()
                .filter(|one| one.address.ip() == address)
                .copied()
                .collect();
            // What runs in the node's network needs no other.
            if world.node().addresses().contains(&address) {
                servers.push(Server::start(world.node(), &own)?);
                continue;
            }
            let pod = world.pod(&format!("endpoint{}", endpoints.len()), &[address])?;
            servers.push(Server::start(&pod, &own)?);
            endpoints.insert(address, pod);
        }
        Ok(Self {
            world,
            client: world.pod("client", &client?)?,
            endpoints,
            _servers: servers,
            listen: listen.clone(),
            probers: HashMap::new(),
            kept: HashMap::new(),
        })
    }

    /// The first packet that the socket of `probe` sends.
    fn packet(&self, probe: &Probe) -> Result<Packet> {
        let to = SocketAddr::new(probe.to.ip().to_canonical(), probe.to.port());
        let alike = |address: &&IpAddr| address.is_ipv4() == to.is_ipv4();
        let own = self.world.node().addresses();
        let mut endpoints = self.endpoints.keys();
        let source = match probe.source.as_str() {
            // What is local is reached from there.
            "node" if own.contains(&to.ip()) || to.ip().is_loopback() => Some(to.ip()),
            "node" => NODE_ADDRESSES.iter().find(alike).copied(),
            "pod" => self.client.addresses().iter().find(alike).copied(),
            _ => endpoints.find(alike).copied(),
        };
        Ok(Packet {
            source: source.with_context(|| format!("{} has no such address", probe.source))?,
            destination: to,
            protocol: if probe.transport.is_udp() {
                Protocol::Udp
            } else {
                Protocol::Tcp
            },
            interface: (probe.source != "node").then(|| BRIDGE.into()),
        })
    }

    fn check(
        &mut self,
        state: &NodeState,
        probe: &Probe,
        packet: &Packet,
        says: &Verdict,
    ) -> Result<()> {
        let service = says.service.as_ref();
        let service = service.and_then(|key| state.services.get(key));
        let sticks = service.is_some_and(|service| service.affinity.is_some());
        let name = probe.socket.clone();
        let name = name.unwrap_or_else(|| packet.protocol.to_string());
        let key = (packet.source, name, packet.destination);
        let keeps = sticks || probe.socket.is_some();
        if !keeps {
            self.kept.remove(&key);
        }
        let key = keeps.then_some(key);
        let kept = key.as_ref().and_then(|key| self.kept.get(key)).copied();
        let connected = probe.socket.is_some() && packet.protocol == Protocol::Tcp;
        match (says.outcome, kept) {
            // Connections that exist are never touched.
            (_, Some(kept)) if connected => self.stay(probe, packet, &[kept].into()).map(drop),
            (Outcome::Forward, kept) => {
                let targets = targets(says);
                let Some(key) = key else {
                    return self.spread(probe, packet, &targets);
                };
                let may_be = match kept.filter(|kept| targets.contains(kept)) {
                    Some(kept) => [kept].into(),
                    None => targets,
                };
                let answer = self.stay(probe, packet, &may_be)?;
                self.kept.insert(key, answer);
                Ok(())
            }
            (Outcome::Reject, _) if !probe.transport.is_connected() => {
                // Nobody tells a socket that has no peer.
                self.fail(probe, packet, &["timeout", "EPERM"], SILENCE)
            }
            (Outcome::Reject, _) => {
                self.fail(probe, packet, &["ECONNREFUSED", "EPERM"], ATTEMPT_LIMIT)
            }
            (Outcome::Drop, _) => self.fail(probe, packet, &["timeout", "EPERM"], SILENCE),
            (Outcome::Pass, _) => self.untouched(probe, packet),
        }
    }

    fn untouched(&mut self, probe: &Probe, packet: &Packet) -> Result<()> {
        let to = packet.destination;
        let listener = Listen {
            udp: probe.transport.is_udp(),
            address: to,
        };
        let own = self.world.node().addresses();
        let here = to.ip().is_loopback() || to.ip().is_unspecified() || own.contains(&to.ip());
        if self.listen.contains(&listener) {
            self.spread(probe, packet, &[to].into())
        } else if here && probe.transport.is_connected() {
            // There is a way there, and nobody listens.
            self.fail(probe, packet, &["ECONNREFUSED"], ATTEMPT_LIMIT)
        } else {
            let silence = ["timeout", "EHOSTUNREACH", "ENETUNREACH"];
            self.fail(probe, packet, &silence, SILENCE)
        }
    }

    /// Every answer is expected and everything expected answers.
    fn spread(
        &mut self,
        probe: &Probe,
        packet: &Packet,
        expected: &BTreeSet<SocketAddr>,
    ) -> Result<()> {
        let mut missing = expected.clone();
        for _ in 0..ROUNDS * expected.len() {
            for attempt in self.send(probe, packet, ROUND, ATTEMPT_LIMIT)? {
                let answer = attempt.answer_as(probe.to).map_err(anyhow::Error::msg)?;
                ensure!(expected.contains(&answer), "{answer} answered");
                missing.remove(&answer);
            }
            if missing.is_empty() {
                return Ok(());
            }
        }
        bail!("these never answered: {missing:?}")
    }

    /// Every answer comes from the same one.
    fn stay(
        &mut self,
        probe: &Probe,
        packet: &Packet,
        expected: &BTreeSet<SocketAddr>,
    ) -> Result<SocketAddr> {
        let mut answers = BTreeSet::new();
        for attempt in self.send(probe, packet, ROUND, ATTEMPT_LIMIT)? {
            answers.insert(attempt.answer_as(probe.to).map_err(anyhow::Error::msg)?);
        }
        match (answers.pop_first(), answers.pop_first()) {
            (Some(answer), None) if expected.contains(&answer) => Ok(answer),
            (one, other) => bail!("{one:?} answered, and {other:?}, not one of {expected:?}"),
        }
    }

    fn fail(
        &mut self,
        probe: &Probe,
        packet: &Packet,
        errors: &[&str],
        timeout: Duration,
    ) -> Result<()> {
        for attempt in self.send(probe, packet, 1, timeout)? {
            let errno = attempt.errno();
            ensure!(
                errno.is_some_and(|errno| errors.contains(&errno)),
                "expected {}, not {attempt:?}",
                errors.join(" or ")
            );
        }
        Ok(())
    }

    fn send(
        &mut self,
        probe: &Probe,
        packet: &Packet,
        count: u32,
        timeout: Duration,
    ) -> Result<Vec<Attempt>> {
        let host = match probe.source.as_str() {
            "node" => self.world.node(),
            "pod" => &self.client,
            _ => &self.endpoints[&packet.source],
        };
        let key = (host.name().to_owned(), host.addresses()[0]);
        if !self.probers.contains_key(&key) {
            self.probers.insert(key.clone(), Prober::start(host)?);
        }
        let prober = self
            .probers
            .get_mut(&key)
            .expect("it has just been inserted");
        match &probe.socket {
            Some(socket) => {
                prober.send_on_within(timeout, socket, probe.transport, probe.to, count)
            }
            None => prober.send_within(timeout, probe.transport, probe.to, count),
        }
    }
}
