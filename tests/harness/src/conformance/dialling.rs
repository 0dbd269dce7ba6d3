//! The probes of scenarios, between real sockets, where packets are met: by a backend that meets
//! nothing else, to which every socket is outside, those of the node too; or by layers, where socket
//! hooks decide first. What must come of a probe is what the oracle says of the packet that its
//! socket sends; what files say is for socket hooks alone.
//!
//! Where there are layers, each probe is sent twice from one network namespace: by a process, and by
//! one that no hook sees, as in a virtual machine.
//!
//! Only sockets tell what connections live through: an open one keeps its endpoint, answers come back
//! from the address that was dialled. What a packet is worth that nobody answers is seen better by
//! [`witness`](super::witness), which need not wait for nothing to happen.

mod ruling;
mod wire;

use std::{
    collections::{BTreeSet, HashMap},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use proxy_model::{
    NodeState, Protocol,
    oracle::{Outcome, Packet},
};

use self::{
    ruling::{Affinity, By, Dialler, Ruling},
    wire::Wire,
};
use super::{
    gaps,
    trial::{Backend, Meets},
};
use crate::{
    pod::{ATTEMPT_LIMIT, Attempt, Listen},
    requires::{self, Need},
    scenario::{Probe, Scenario, objects, sources::Sources, subject::Subject, traffic},
    world::World,
};

/// Requests per question to a prober.
const ROUND: u32 = 16;

/// Rounds per endpoint after which one that never answered is missing.
const ROUNDS: usize = 20;

/// How long nothing may come for it to be nothing. What would come needs a thousandth of it.
const SILENCE: Duration = Duration::from_millis(300);

/// Runs every step of `scenario` and its probes. `states` are the node-local states after each step.
pub fn run(scenario: &Scenario, states: &[NodeState], backend: &Backend) -> Result<()> {
    let (lacks, meets) = (backend.lacks()?, backend.meets()?);
    let localnet = backend.has_localnet()?;
    let (listen, sources) = (objects::listeners(scenario)?, Sources::of(scenario)?);
    let addresses: BTreeSet<IpAddr> = listen.iter().map(|one| one.address.ip()).collect();
    let addresses: Vec<IpAddr> = addresses.into_iter().collect();
    let world = World::routed(&scenario.settings.node_addresses, &addresses)?;
    let wire = Wire::new(&world, &listen)?;
    let node = &scenario.settings.model.node;
    let mut subject = Subject::behind_brain(backend.under(), &world, node, &states[0])?;
    let mut witness = Witness {
        wire,
        kept: HashMap::new(),
        refusals: match meets {
            Meets::Both => subject.refusals()?,
            Meets::Sockets | Meets::Packets => vec![],
        },
    };
    for (index, (step, state)) in scenario.steps.iter().zip(states).enumerate() {
        let here = || format!("step {}", index + 1);
        if index > 0 {
            subject.follow(state).with_context(here)?;
            subject = subject.replace_brain(state)?;
        }
        witness.wire.step(index).with_context(here)?;
        let layered = step.layered.iter().map(|line| &line.probe);
        let layered = layered.filter(|_| meets == Meets::Both);
        for probe in step.probes.iter().chain(layered) {
            for dialler in Dialler::of(meets) {
                let packet = sources.packet(probe)?;
                let ruling = Ruling::of(state, &packet, *dialler, meets, localnet);
                let (says, entry) = (&ruling.verdict, Wire::entry(probe));
                if let Some(gap) = gaps::of(state, &packet, &entry, says, lacks) {
                    println!("GAP: {}, line {}: needs {gap}", scenario.name, probe.line);
                    continue;
                }
                let told_apart = [Need::NetnsCookie];
                if ruling.by == By::Hooks
                    && traffic::needs_cookie(probe)
                    && !requires::met("conformance", &told_apart)
                {
                    continue;
                }
                if let Err(error) = witness.check(probe, &packet, *dialler, &ruling) {
                    bail!(
                        "step {}, line {}: {probe}\nfrom {}, by a {dialler:?}, of which the oracle \
                         says {} {:?} by {:?}, but: {error:#}\nits log:\n{}",
                        index + 1,
                        probe.line,
                        packet.source,
                        says.outcome,
                        ruling.targets(),
                        ruling.by,
                        subject.log()
                    );
                }
            }
        }
    }
    subject.finish()
}

/// Who was led where.
struct Witness<'w> {
    wire: Wire<'w>,
    kept: HashMap<Key, Kept>,
    /// How socket hooks refuse.
    refusals: Vec<String>,
}

/// What keeps an endpoint, its source and what it dials.
type Key = (Keeper, IpAddr, SocketAddr);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Keeper {
    /// An open socket.
    Socket(Dialler, String),
    /// A client with session affinity, which is each layer's own.
    Client(By, Protocol),
}

#[derive(Debug, Clone, Copy)]
struct Kept {
    endpoint: SocketAddr,
    by: By,
}

/// A probe as it is sent, and what must come of it.
#[derive(Clone, Copy)]
struct Asked<'a> {
    probe: &'a Probe,
    packet: &'a Packet,
    dialler: Dialler,
    ruling: &'a Ruling,
}

impl Witness<'_> {
    fn check(
        &mut self,
        probe: &Probe,
        packet: &Packet,
        dialler: Dialler,
        ruling: &Ruling,
    ) -> Result<()> {
        let asked = Asked {
            probe,
            packet,
            dialler,
            ruling,
        };
        let of_client = Keeper::Client(ruling.by, packet.protocol);
        let keeper = match &probe.socket {
            Some(name) => Some(Keeper::Socket(dialler, name.clone())),
            None if ruling.affinity == Affinity::Client => Some(of_client.clone()),
            None => None,
        };
        let of = |keeper| (keeper, packet.source, packet.destination);
        let Some(key) = keeper.map(of) else {
            self.kept.remove(&of(of_client));
            if ruling.verdict.outcome != Outcome::Forward {
                return self.fails(&asked);
            }
            let all = ruling.affinity != Affinity::Partly;
            return self.spread(&asked, &ruling.targets(), all);
        };
        let kept = self.kept.get(&key).copied();
        let is_open = kept.is_some() && probe.socket.is_some();
        if let Some(kept) = kept
            && is_open
            && probe.transport.is_connected()
            && (kept.by == By::Hooks || packet.protocol == Protocol::Tcp)
        {
            // Connections that exist are never touched.
            return self.stay(&asked, &[kept.endpoint].into(), true).map(drop);
        }
        if ruling.verdict.outcome != Outcome::Forward {
            return self.fails(&asked);
        }
        let (by, targets) = (ruling.by, ruling.targets());
        let held = |kept: &Kept| kept.by == by && targets.contains(&kept.endpoint);
        let endpoint = match kept.filter(held) {
            Some(kept) => self.stay(&asked, &[kept.endpoint].into(), is_open)?,
            None => self.stay(&asked, &targets, false)?,
        };
        self.kept.insert(key, Kept { endpoint, by });
        Ok(())
    }

    /// What leads to no endpoint.
    fn fails(&mut self, asked: &Asked<'_>) -> Result<()> {
        let connected = asked.probe.transport.is_connected();
        match (asked.ruling.verdict.outcome, asked.ruling.by) {
            (Outcome::Forward, _) => bail!("it leads somewhere"),
            (Outcome::Reject, By::Hooks) => self.refused(asked, "ECONNREFUSED"),
            (Outcome::Drop, By::Hooks) => self.refused(asked, "EHOSTUNREACH"),
            (Outcome::Reject, By::Packets) if connected => {
                self.fail(asked, &["ECONNREFUSED", "EPERM"], ATTEMPT_LIMIT)
            }
            // Nobody tells a socket that has no peer.
            (Outcome::Reject | Outcome::Drop, By::Packets) => {
                self.fail(asked, &["timeout", "EPERM"], SILENCE)
            }
            (Outcome::Pass, _) => self.untouched(asked),
        }
    }

    fn untouched(&mut self, asked: &Asked<'_>) -> Result<()> {
        let to = asked.packet.destination;
        let listener = Listen {
            udp: asked.probe.transport.is_udp(),
            address: to,
        };
        let own = self.wire.own();
        let here = to.ip().is_loopback() || to.ip().is_unspecified() || own.contains(&to.ip());
        if self.wire.answers(&listener) {
            self.spread(asked, &[to].into(), true)
        } else if here && asked.probe.transport.is_connected() {
            // There is a way there, and nobody listens.
            self.fail(asked, &["ECONNREFUSED"], ATTEMPT_LIMIT)
        } else {
            let silence = ["timeout", "EHOSTUNREACH", "ENETUNREACH"];
            self.fail(asked, &silence, SILENCE)
        }
    }

    /// Every answer is expected and, if `all` do, everything expected answers.
    fn spread(
        &mut self,
        asked: &Asked<'_>,
        expected: &BTreeSet<SocketAddr>,
        all: bool,
    ) -> Result<()> {
        let mut missing = expected.clone();
        for _ in 0..ROUNDS * expected.len() {
            for attempt in self.send(asked, ROUND, ATTEMPT_LIMIT)? {
                let answer = self.answer(asked, &attempt, false)?;
                ensure!(expected.contains(&answer), "{answer} answered");
                missing.remove(&answer);
            }
            if missing.is_empty() || !all {
                return Ok(());
            }
        }
        bail!("these never answered: {missing:?}")
    }

    /// Every answer comes from the same one. `is_old` if the connection may have begun when something
    /// else was true of it.
    fn stay(
        &mut self,
        asked: &Asked<'_>,
        expected: &BTreeSet<SocketAddr>,
        is_old: bool,
    ) -> Result<SocketAddr> {
        let mut answers = BTreeSet::new();
        for attempt in self.send(asked, ROUND, ATTEMPT_LIMIT)? {
            answers.insert(self.answer(asked, &attempt, is_old)?);
        }
        match (answers.pop_first(), answers.pop_first()) {
            (Some(answer), None) if expected.contains(&answer) => Ok(answer),
            (one, other) => bail!("{one:?} answered, and {other:?}, not one of {expected:?}"),
        }
    }

    /// Who answered: the socket and the endpoint must see each other as they should.
    fn answer(&self, asked: &Asked<'_>, attempt: &Attempt, is_old: bool) -> Result<SocketAddr> {
        let mut shows = asked.probe.to;
        if asked.ruling.by == By::Packets && shows.ip() == Ipv4Addr::UNSPECIFIED {
            // The kernel itself writes that there, before there is a packet.
            shows.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        let answer = attempt.answer_as(shows);
        let answer = answer.map_err(anyhow::Error::msg)?;
        if let Some(client) = attempt.client.filter(|_| !is_old) {
            let source = asked.packet.source;
            let (own, client) = (self.wire.own(), client.ip());
            let shows = asked.ruling.shows(own, source, answer, client);
            ensure!(shows, "{answer} sees {client} as the client");
        }
        Ok(answer)
    }

    /// A hook fails the call itself.
    fn refused(&mut self, asked: &Asked<'_>, errno: &str) -> Result<()> {
        let call = if asked.probe.transport.is_connected() {
            "connect"
        } else {
            "sendto"
        };
        // One kernel feature decides how both are told.
        let has_errno = self.refusals.iter().any(|one| one == "ECONNREFUSED");
        let expected = format!("{call} {}", if has_errno { errno } else { "EPERM" });
        for attempt in self.send(asked, 1, ATTEMPT_LIMIT)? {
            let error = attempt.error.as_deref();
            ensure!(
                error == Some(&expected),
                "expected {expected}, not {attempt:?}"
            );
        }
        Ok(())
    }

    fn fail(&mut self, asked: &Asked<'_>, errors: &[&str], timeout: Duration) -> Result<()> {
        for attempt in self.send(asked, 1, timeout)? {
            let errno = attempt.errno();
            ensure!(
                errno.is_some_and(|errno| errors.contains(&errno)),
                "expected {}, not {attempt:?}",
                errors.join(" or ")
            );
        }
        Ok(())
    }

    fn send(&mut self, asked: &Asked<'_>, count: u32, timeout: Duration) -> Result<Vec<Attempt>> {
        let Asked {
            probe,
            packet,
            dialler,
            ..
        } = asked;
        self.wire.send(probe, packet, *dialler, count, timeout)
    }
}
