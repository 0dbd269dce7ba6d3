//! Scenarios, and random clusters, as packets through a node with the backend that is under test; where
//! programs on its devices are, too, replies and errors.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Arc, OnceLock},
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use proxy_model::{
    Capability, NodeState, compute,
    oracle::{self, Packet},
};

use super::{
    dialling,
    gaps::Gaps,
    packets::{self, Place},
    random::Walk,
    witness::Witness,
};
use crate::{
    journey::Kind,
    scenario::{
        Scenario, Settings,
        subject::{Subject, Under},
        traffic,
    },
    world::{NODE_ADDRESSES, World},
};

/// Packets that are sent in each state of a random walk.
const RANDOM_PACKETS: usize = 400;

/// What meets what processes of the node and its pods send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meets {
    /// Socket hooks, in the call.
    Sockets,
    /// What handles packets.
    Packets,
    /// Both: what the hooks leave alone, and where they lead to, is a packet.
    Both,
}

/// What is under test, and what it lacks, once somebody asked.
#[derive(Debug, Clone)]
pub struct Backend {
    under: Under,
    kind: Kind,
    lacks: Arc<OnceLock<Result<Vec<Capability>, String>>>,
}

impl Backend {
    /// One of which nothing is known yet.
    pub fn new(under: Under) -> Self {
        Self {
            under,
            kind: Kind::default(),
            lacks: Arc::default(),
        }
    }

    /// The same, on a node with devices of this kind.
    #[must_use]
    pub fn on(&self, kind: Kind) -> Self {
        Self {
            kind,
            ..self.clone()
        }
    }

    /// The same, told to keep the addresses of clients, if it has programs on devices.
    #[must_use]
    pub fn keeping(&self) -> Self {
        let under = match &self.under {
            Under::Devices => Under::DevicesKeeping,
            other => other.clone(),
        };
        Self {
            under,
            ..self.clone()
        }
    }

    /// How to start it.
    pub fn under(&self) -> &Under {
        &self.under
    }

    /// What it says that it cannot do: it is started with nothing to do, the first time.
    pub fn lacks(&self) -> Result<&[Capability]> {
        let ask = || -> Result<Vec<Capability>> {
            let world = World::bare(&[])?;
            let idle = compute("node-a", []);
            let subject = Subject::behind_brain(&self.under, &world, "node-a", &idle)?;
            let lacks = subject.reported()?;
            subject.finish()?;
            let expected = self.under.start().lacks;
            if self.under.is_layered() && lacks != expected {
                bail!(
                    "what one layer lacks the other has but for {expected:?}, yet this lacks {lacks:?}"
                );
            }
            Ok(lacks)
        };
        let lacks = self
            .lacks
            .get_or_init(|| ask().map_err(|error| format!("{error:#}")));
        match lacks {
            Ok(lacks) => Ok(lacks),
            Err(error) => bail!("cannot learn what the backend lacks: {error}"),
        }
    }

    /// What meets what processes of the node and its pods send.
    pub fn meets(&self) -> Result<Meets> {
        Ok(match &self.under {
            Under::Agent => Meets::Sockets,
            Under::Layers(_) | Under::Devices | Under::DevicesKeeping | Under::DevicesAlone(_) => {
                Meets::Both
            }
            _ if self.meets_packets()? => Meets::Packets,
            _ => Meets::Sockets,
        })
    }

    /// Whether packets that the node sends to 127.0.0.0/8 reach NodePorts, by what handles packets.
    pub fn has_localnet(&self) -> Result<bool> {
        let lacks = self.lacks()?.contains(&Capability::LoopbackNodePorts);
        Ok(matches!(self.under, Under::OurBackend(_)) && !lacks)
    }

    fn meets_packets(&self) -> Result<bool> {
        // What programs on devices meet is known once there are devices.
        Ok(self.under.has_devices() || !self.lacks()?.contains(&Capability::ForeignClients))
    }
}

/// The probes of `scenario`, by the mechanism that the backend is.
pub fn probes(scenario: &Scenario, states: &[NodeState], backend: &Backend) -> Result<()> {
    match backend.meets()? {
        Meets::Sockets => traffic::run(scenario, states, &backend.under),
        Meets::Packets | Meets::Both => dialling::run(scenario, states, backend),
    }
}

/// Whether programs on devices take any packet of those that [`scenario`] sends.
pub fn is_any_taken(scenario: &Scenario, states: &[NodeState]) -> bool {
    let own = [&NODE_ADDRESSES[..], &scenario.settings.node_addresses].concat();
    let is_taken = |state: &NodeState| {
        let all = packets::all(state, &packets::places(state, &own), &own);
        let mut from_outside = all
            .iter()
            .filter(|packet| !own.contains(&packet.source) && !packet.source.is_loopback());
        from_outside.any(|packet| oracle::taken_on_device(state, packet, false).is_ok())
    };
    states.iter().any(is_taken)
}

/// Sends packets in every step of `scenario`: those that it names, and those that ask all that its
/// `states` answer, by the oracle.
pub fn scenario(scenario: &Scenario, states: &[NodeState], backend: &Backend) -> Result<()> {
    let lines = || scenario.steps.iter().flat_map(|step| &step.packets);
    if !backend.meets_packets()? {
        for line in lines() {
            let needs = Capability::ForeignClients;
            println!("GAP: {}, line {}: needs {needs}", scenario.name, line.line);
        }
        return Ok(());
    }
    let named = lines().filter_map(|line| line.packet.interface.clone());
    let world = World::bare(&scenario.settings.node_addresses)?;
    let mut run = Run::start(&world, &scenario.settings, named, &states[0], backend)?;
    let mut gaps = Gaps::default();
    for (index, (step, state)) in scenario.steps.iter().zip(states).enumerate() {
        let here = || format!("step {}", index + 1);
        if index > 0 {
            run.subject.follow(state).with_context(here)?;
            run.witness.forget_former(state);
        }
        for line in &step.packets {
            let checked = run.witness.check(state, &line.packet, &run.lacks);
            let checked = checked.with_context(|| format!("line {}: {line}", line.line));
            if let Some(needs) = run.told(checked).with_context(here)? {
                println!("GAP: {}, line {}: needs {needs}", scenario.name, line.line);
            }
        }
        run.ask(state, &mut gaps, |packets| packets)
            .with_context(here)?;
    }
    gaps.tell(&scenario.name);
    let taken = run.witness.taken();
    ensure!(taken != Some(0), "programs on devices took no packet");
    run.subject.finish()
}

/// Walks through `states` random clusters, with this number, and sends random packets in each.
pub fn walk(seed: u64, states: usize, backend: &Backend) -> Result<()> {
    let name = format!("random {seed}");
    if !backend.meets_packets()? {
        println!("GAP: {name}: needs {}", Capability::ForeignClients);
        return Ok(());
    }
    let mut walk = Walk::new(seed);
    walk.step();
    let settings = walk.settings().clone();
    let world = World::bare(&settings.node_addresses)?;
    let mut run = Run::start(&world, &settings, [], &walk.state(), backend)?;
    let mut gaps = Gaps::default();
    for number in 1..=states {
        if number > 1 {
            walk.step();
        }
        let state = walk.state();
        let chance = walk.chance().clone();
        let asked = (|| {
            if number > 1 {
                run.subject.follow(&state)?;
                run.witness.forget_clients();
            }
            run.ask(&state, &mut gaps, |packets| {
                chance.clone().sample(packets, RANDOM_PACKETS)
            })
        })();
        // What is wrong comes first: the scenario is long.
        asked.map_err(|error| {
            anyhow!(
                "{error:#}\n--seed {seed} --random {states}, state {number}, as a scenario:\n{}\n",
                walk.text()
            )
        })?;
    }
    gaps.tell(&name);
    run.subject.finish()
}

/// A node with a backend that follows.
struct Run<'w> {
    subject: Subject<'w>,
    witness: Witness<'w>,
    lacks: Vec<Capability>,
    own: Vec<IpAddr>,
    /// Whatever was special in any state so far: what is no longer so must be untouched again.
    places: BTreeSet<Place>,
}

impl<'w> Run<'w> {
    fn start(
        world: &'w World,
        settings: &Settings,
        interfaces: impl IntoIterator<Item = Arc<str>>,
        state: &NodeState,
        backend: &Backend,
    ) -> Result<Self> {
        let told_apart = packets::interfaces(&settings.model.traffic.detector);
        let interfaces = interfaces.into_iter().chain(told_apart).collect();
        let localnet = backend.has_localnet()?;
        let witness = Witness::new(world, &interfaces, backend.kind, &backend.under, localnet)?;
        let subject = Subject::behind_brain(&backend.under, world, &settings.model.node, state)?;
        let lacks = if matches!(backend.under, Under::DevicesAlone(_)) {
            let lacks = subject.reported()?;
            ensure!(
                !lacks.contains(&Capability::ExternalTraffic),
                "it has devices, and lacks {lacks:?}"
            );
            // The witness knows what of the others comes from outside.
            Vec::new()
        } else {
            backend.lacks()?.to_vec()
        };
        Ok(Self {
            subject,
            witness,
            lacks,
            own: world.node().addresses().to_vec(),
            places: BTreeSet::new(),
        })
    }

    /// Sends what `choose` leaves of all packets that have to do with `state` or one before it.
    fn ask(
        &mut self,
        state: &NodeState,
        gaps: &mut Gaps,
        choose: impl FnOnce(Vec<Packet>) -> Vec<Packet>,
    ) -> Result<()> {
        self.places.extend(packets::places(state, &self.own));
        for packet in choose(packets::all(state, &self.places, &self.own)) {
            let checked = self.witness.check(state, &packet, &self.lacks);
            if let Some(needs) = self.told(checked)? {
                gaps.add(needs);
            }
        }
        Ok(())
    }

    /// With the backend's log, if there is something wrong.
    fn told<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| anyhow!("{error:#}\nits log:\n{}", self.subject.log()))
    }
}
