//! Runs a scenario as real traffic: a world, servers on every endpoint address, and what is
//! to be tested between them.

use std::{
    collections::{BTreeSet, HashMap},
    net::{IpAddr, SocketAddr},
};

use anyhow::{Context as _, Result, bail};

use proxy_model::{Capability, NodeState};

use super::{
    Outcome, Probe, Scenario, Settings,
    judge::{self, Judge, Seen, keeper},
    objects,
    sources::CLIENT,
    subject::{Subject, Under},
};
use crate::{
    pod::{Attempt, Listen, Prober, Server},
    requires::{self, Need},
    world::{Host, NODE_ADDRESSES, World, on_wire},
};

/// Requests per question to a prober.
const ROUND: u32 = 16;

/// Rounds per endpoint after which an endpoint that never answered is missing. With two
/// endpoints and a fair choice, 640 requests miss one with a probability of 2⁻⁶³⁹.
const ROUNDS_PER_ENDPOINT: usize = 20;

/// A node as a scenario needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ground {
    settings: Settings,
    /// Addresses of pods that nobody has a route to unless told.
    extra: Vec<IpAddr>,
}

impl Ground {
    /// The one that `scenario` needs.
    pub fn of(scenario: &Scenario) -> Result<Self> {
        let settings = scenario.settings.clone();
        let extra = in_pods(&settings, &objects::listeners(scenario)?)
            .into_iter()
            .filter(|address| !on_wire(*address))
            .collect();
        Ok(Self { settings, extra })
    }

    /// Such a node, without pods.
    pub fn world(&self) -> Result<World> {
        World::of(&self.settings.node_addresses, &self.extra)
    }
}

/// Addresses of pods among those that are listened on: what runs in the node's network is reached
/// there.
fn in_pods(settings: &Settings, listen: &BTreeSet<Listen>) -> BTreeSet<IpAddr> {
    let own = |address: &IpAddr| {
        settings.node_addresses.contains(address) || NODE_ADDRESSES.contains(address)
    };
    let addresses = listen.iter().map(|listener| listener.address.ip());
    addresses.filter(|address| !own(address)).collect()
}

/// Runs every step and its probes against `under`. `states` are the node-local states after each
/// step: what the oracle judges by.
pub fn run(scenario: &Scenario, states: &[NodeState], under: &Under) -> Result<()> {
    let world = Ground::of(scenario)?.world()?;
    let subject = Subject::start(under, &world, scenario, &states[0])?;
    play(scenario, states, &world, subject)?.finish()
}

/// Runs every step and its probes against `subject`, which has the first one in force, in a world
/// that is as the scenario needs it, and without pods before and after.
pub(super) fn play<'w>(
    scenario: &Scenario,
    states: &[NodeState],
    world: &'w World,
    mut subject: Subject<'w>,
) -> Result<Subject<'w>> {
    let listen: BTreeSet<Listen> = objects::listeners(scenario)?;
    let addresses = in_pods(&scenario.settings, &listen);
    let client: Result<Vec<IpAddr>, _> = CLIENT.iter().map(|address| address.parse()).collect();
    let client = world.pod("client", &client?)?;
    let endpoints = world.pod("endpoints", &addresses.iter().copied().collect::<Vec<_>>())?;
    let (in_pods, on_host): (Vec<Listen>, Vec<Listen>) = listen
        .iter()
        .copied()
        .partition(|listener| addresses.contains(&listener.address.ip()));
    let mut servers = Vec::new();
    for (host, listen) in [(&endpoints, in_pods), (world.node(), on_host)] {
        if !listen.is_empty() {
            servers.push(Server::start(host, &listen)?);
        }
    }

    let lacks = subject.lacks()?;
    let mut witness = Witness {
        probers: HashMap::new(),
        hosts: [
            ("node", world.node()),
            ("pod", &client),
            ("endpoints", &endpoints),
        ]
        .into(),
        kept: HashMap::new(),
        listen,
        refusals: subject.refusals()?,
    };
    let mut judge = Judge::default();
    for (index, step) in scenario.steps.iter().enumerate() {
        if index > 0 {
            subject
                .advance(index, step, &states[index])
                .with_context(|| format!("step {}", index + 1))?;
            subject = subject.replace_brain(&states[index])?;
        }
        for probe in &step.probes {
            if needs_cookie(probe) && !requires::met("traffic", &[Need::NetnsCookie]) {
                continue;
            }
            if let Some(gap) = gap(&states[index], probe, &lacks) {
                println!("GAP: {}, line {}: needs {gap}", scenario.name, probe.line);
                continue;
            }
            let seen = witness.check(probe);
            let judged = seen.and_then(|seen| judge.observation(&states[index], probe, &seen));
            if let Err(error) = judged {
                bail!(
                    "step {}, line {}: {probe}\n{error:#}\nits log:\n{}",
                    index + 1,
                    probe.line,
                    subject.log()
                );
            }
        }
    }
    world.detach_pods()?;
    Ok(subject)
}

/// Whether the probe tells the loopback addresses of a test's node from those of its pods.
pub(crate) fn needs_cookie(probe: &Probe) -> bool {
    let to = probe.to.ip().to_canonical();
    probe.source == "node" && (to.is_loopback() || to.is_unspecified())
}

/// What the probe needs that is not there. A process of the node dials, so that only this may be
/// missing.
fn gap(state: &NodeState, probe: &Probe, lacks: &[Capability]) -> Option<Capability> {
    let verdict = judge::of_probe(state, probe);
    let service = verdict.service.and_then(|key| state.services.get(&key));
    let needs = [
        (
            Capability::Affinity,
            matches!(probe.outcome, Outcome::Sticky(_)),
        ),
        (
            Capability::SourceRanges,
            service.is_some_and(|service| service.source_ranges.is_some()),
        ),
    ];
    let mut missing = needs
        .into_iter()
        .filter(|(one, needed)| *needed && lacks.contains(one));
    missing.next().map(|(one, _)| one)
}

struct Witness<'a> {
    probers: HashMap<String, Prober>,
    hosts: HashMap<&'static str, &'a Host>,
    /// The endpoint of each open socket, and of each client with session affinity, per source,
    /// socket or protocol, and destination.
    kept: HashMap<(String, String, SocketAddr), SocketAddr>,
    listen: BTreeSet<Listen>,
    refusals: Vec<String>,
}

impl Witness<'_> {
    fn check(&mut self, probe: &Probe) -> Result<Seen> {
        match &probe.outcome {
            Outcome::Endpoints(expected) if probe.socket.is_none() => self.spread(probe, expected),
            Outcome::Endpoints(expected) | Outcome::OneOf(expected) | Outcome::Sticky(expected) => {
                self.stay(probe, expected)
            }
            Outcome::Refused => {
                let refusals = self.refusals.clone();
                self.fail(probe, &refusals)
            }
            Outcome::Unreachable => {
                // One kernel feature decides how both are told.
                let told = |refusal: &String| match &**refusal {
                    "ECONNREFUSED" => "EHOSTUNREACH".to_owned(),
                    other => other.to_owned(),
                };
                let errors: Vec<_> = self.refusals.iter().map(told).collect();
                self.fail(probe, &errors)
            }
            Outcome::Untouched => {
                let listener = Listen {
                    udp: probe.transport.is_udp(),
                    address: probe.to,
                };
                if self.listen.contains(&listener) {
                    self.spread(probe, &[probe.to].into())
                } else if self.is_host(probe.to.ip()) {
                    // There is a way there, and nobody listens.
                    self.fail(probe, &["ECONNREFUSED".to_owned()])
                } else {
                    self.fail(probe, &["ENETUNREACH".to_owned()])
                }
            }
        }
    }

    fn is_host(&self, address: IpAddr) -> bool {
        let node = self.hosts["node"].addresses();
        address.is_loopback() || address.is_unspecified() || node.contains(&address)
    }

    /// Every answer is expected and everything expected answers.
    fn spread(&mut self, probe: &Probe, expected: &BTreeSet<SocketAddr>) -> Result<Seen> {
        let mut missing = expected.clone();
        let mut answers = BTreeSet::new();
        for _ in 0..ROUNDS_PER_ENDPOINT * expected.len() {
            for attempt in self.send(probe, ROUND)? {
                let answer = correct(probe, &attempt)?;
                if !expected.contains(&answer) {
                    bail!("{answer} answered");
                }
                missing.remove(&answer);
                answers.insert(answer);
            }
            if missing.is_empty() {
                return Ok(Seen::Answers(answers));
            }
        }
        bail!("these never answered: {missing:?}")
    }

    /// Every answer comes from the same endpoint, the one of earlier probes if it is allowed.
    fn stay(&mut self, probe: &Probe, expected: &BTreeSet<SocketAddr>) -> Result<Seen> {
        let socket = keeper(probe).unwrap_or_default();
        let key = (probe.source.clone(), socket, probe.to);
        let mut kept = self
            .kept
            .get(&key)
            .copied()
            .filter(|kept| expected.contains(kept));
        for attempt in self.send(probe, ROUND)? {
            let answer = correct(probe, &attempt)?;
            match kept {
                Some(kept) if kept != answer => bail!("{answer} answered after {kept}"),
                _ if !expected.contains(&answer) => bail!("{answer} answered"),
                _ => kept = Some(answer),
            }
        }
        self.kept.extend(kept.map(|kept| (key, kept)));
        Ok(Seen::Answers(kept.into_iter().collect()))
    }

    /// Every attempt fails with one of `errors`, the same one each time.
    fn fail(&mut self, probe: &Probe, errors: &[String]) -> Result<Seen> {
        let mut seen = BTreeSet::new();
        for attempt in self.send(probe, 3)? {
            match attempt.errno() {
                Some(errno) if errors.iter().any(|one| one == errno) => {
                    seen.insert(errno.to_owned());
                }
                _ => bail!("expected {}, not {attempt:?}", errors.join(" or ")),
            }
        }
        match (seen.pop_first(), seen.pop_first()) {
            (Some(errno), None) => Ok(Seen::Failed(errno)),
            (one, other) => bail!("failed in several ways: {one:?}, {other:?}"),
        }
    }

    fn send(&mut self, probe: &Probe, count: u32) -> Result<Vec<Attempt>> {
        if !self.probers.contains_key(&probe.source) {
            let host = self
                .hosts
                .get(probe.source.as_str())
                .context("no such source")?;
            self.probers
                .insert(probe.source.clone(), Prober::start(host)?);
        }
        let prober = self
            .probers
            .get_mut(&probe.source)
            .expect("it has just been inserted");
        match &probe.socket {
            Some(socket) => prober.send_on(socket, probe.transport, probe.to, count),
            None => prober.send(probe.transport, probe.to, count),
        }
    }
}

fn correct(probe: &Probe, attempt: &Attempt) -> Result<SocketAddr> {
    attempt.answer_as(probe.to).map_err(anyhow::Error::msg)
}
