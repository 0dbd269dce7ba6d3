//! Runs a scenario as real traffic: a world, servers on every endpoint address, the real agent.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write as _,
    net::{IpAddr, SocketAddr},
};

use anyhow::{Context as _, Result, bail};

use proxy_model::NodeState;

use super::{
    Outcome, Probe, Scenario, Step,
    judge::{Judge, Seen, keeper},
    objects,
};
use crate::{
    agent::{Agent, AgentOptions},
    pod::{Attempt, Listen, Prober, Server},
    requires::{self, Need},
    world::{Host, World},
};

/// Addresses of the pod that sends probes.
const CLIENT: [&str; 2] = ["10.244.254.1", "fd00:10:244:fffe::1"];

/// Requests per question to a prober.
const ROUND: u32 = 16;

/// Rounds per endpoint after which an endpoint that never answered is missing. With two
/// endpoints and a fair choice, 640 requests miss one with a probability of 2⁻⁶³⁹.
const ROUNDS_PER_ENDPOINT: usize = 20;

/// Runs every step and its probes. `states` are the node-local states after each step: what the
/// oracle judges by.
pub fn run(scenario: &Scenario, states: &[NodeState]) -> Result<()> {
    let listen: BTreeSet<Listen> = objects::listeners(scenario)?;
    let addresses: BTreeSet<IpAddr> = listen
        .iter()
        .map(|listener| listener.address.ip())
        .collect();
    let addresses: Vec<IpAddr> = addresses.into_iter().collect();
    let world = World::of(&scenario.settings.node_addresses, &addresses)?;
    let client: Result<Vec<IpAddr>, _> = CLIENT.iter().map(|address| address.parse()).collect();
    let client = world.pod("client", &client?)?;
    let endpoints = world.pod("endpoints", &addresses)?;
    let _server = Server::start(&endpoints, &listen.iter().copied().collect::<Vec<_>>())?;

    let options = AgentOptions {
        node_name: scenario.settings.model.node.to_string(),
        arguments: scenario.settings.arguments(),
        ..AgentOptions::default()
    };
    let first = manifest(&scenario.steps[0], 0);
    let mut agent = Agent::start(&world, options, &[(MANIFEST, &first)])?;
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
        refusal: agent.refusal()?.to_owned(),
    };
    let mut judge = Judge::default();
    for (index, step) in scenario.steps.iter().enumerate() {
        if index > 0 {
            agent
                .apply_and_sync(MANIFEST, &manifest(step, index))
                .with_context(|| format!("step {}", index + 1))?;
        }
        for probe in &step.probes {
            if needs_cookie(probe) && !requires::met("traffic", &[Need::NetnsCookie]) {
                continue;
            }
            let seen = witness.check(probe);
            let judged = seen.and_then(|seen| judge.observation(&states[index], probe, &seen));
            if let Err(error) = judged {
                let log: Vec<_> = agent.log().into_iter().map(|line| line.raw).collect();
                bail!(
                    "step {}, line {}: {probe}\n{error:#}\nthe agent's log:\n{}",
                    index + 1,
                    probe.line,
                    log.join("\n")
                );
            }
        }
    }
    agent.terminate()
}

const MANIFEST: &str = "cluster.yaml";

/// All files of a step in one, so that the agent takes them over at once. A Service without
/// endpoints that is another one in each step makes sure that each step changes something.
fn manifest(step: &Step, index: usize) -> String {
    let mut text = String::new();
    for content in step.files.values() {
        writeln!(text, "{}\n---", content.trim_end()).expect("writing to a String cannot fail");
    }
    text + &format!(
        "apiVersion: v1\n\
         kind: Service\n\
         metadata: {{name: step-{index}, namespace: scenario-step}}\n\
         spec: {{clusterIP: 10.111.0.{index}, clusterIPs: [10.111.0.{index}], ports: [{{port: 1}}]}}\n"
    )
}

/// Whether the probe tells the loopback addresses of a test's node from those of its pods.
fn needs_cookie(probe: &Probe) -> bool {
    let to = probe.to.ip().to_canonical();
    probe.source == "node" && (to.is_loopback() || to.is_unspecified())
}

struct Witness<'a> {
    probers: HashMap<String, Prober>,
    hosts: HashMap<&'static str, &'a Host>,
    /// The endpoint of each open socket, and of each client with session affinity, per source,
    /// socket or protocol, and destination.
    kept: HashMap<(String, String, SocketAddr), SocketAddr>,
    listen: BTreeSet<Listen>,
    refusal: String,
}

impl Witness<'_> {
    fn check(&mut self, probe: &Probe) -> Result<Seen> {
        match &probe.outcome {
            Outcome::Endpoints(expected) if probe.socket.is_none() => self.spread(probe, expected),
            Outcome::Endpoints(expected) | Outcome::OneOf(expected) | Outcome::Sticky(expected) => {
                self.stay(probe, expected)
            }
            Outcome::Refused => {
                let refusal = self.refusal.clone();
                self.fail(probe, &refusal)
            }
            Outcome::Unreachable => {
                // One kernel feature decides how both are told.
                let permitted = self.refusal == "ECONNREFUSED";
                self.fail(probe, if permitted { "EHOSTUNREACH" } else { "EPERM" })
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
                    self.fail(probe, "ECONNREFUSED")
                } else {
                    self.fail(probe, "ENETUNREACH")
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

    /// Every attempt fails with `errno`.
    fn fail(&mut self, probe: &Probe, errno: &str) -> Result<Seen> {
        for attempt in self.send(probe, 3)? {
            if attempt.errno() != Some(errno) {
                bail!("expected {errno}, not {attempt:?}");
            }
        }
        Ok(Seen::Failed(errno.to_owned()))
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
