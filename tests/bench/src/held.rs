//! `connections-held`: what a connect costs while many connections are open that were led to
//! Services, for several sizes of PEERS, side by side: one agent for each size, and one sender that
//! moves between their cgroups and holds as many connections in each.
//!
//! A connection that finds its place taken is remembered in storage of its socket, which costs
//! more. A larger map costs memory, and the CPU's cache.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};

use super::{
    Session, clusters,
    clusters::Kind,
    figures::{Collected, median},
    kernel_time::{Program, Statistics},
    rig::{Sender, endpoints, start_answering},
    task::Task,
    worker::{Order, Report},
};
use proxy_harness::{Agent, AgentOptions, World, cgroup::Cgroup};

/// Sizes of PEERS that are compared.
const PLACES: [u32; 3] = [1 << 14, 1 << 16, 1 << 18];
/// Connections that are open meanwhile, in each cgroup.
const HELD: [u32; 3] = [0, 20_000, 100_000];
/// Connections that one process holds: many may not open more files.
const EACH: u32 = 10_000;
/// With `--quick`, the first so many of them.
const QUICK: usize = 2;
/// How many Services are dialled.
const SERVICES: u32 = 10;

/// Slices of each size in one run; the run's figures are medians over them.
const ROUNDS: usize = 8;
/// Length of a slice.
const SLICE: Duration = Duration::from_millis(10);

/// An agent with one size of PEERS, and where its clients are.
struct Candidate<'w> {
    places: u32,
    cgroup: Cgroup,
    connect: Program,
    _agent: Agent<'w>,
}

/// Measures it in `world`, where nothing else may be.
pub(super) fn measure(session: &Session, world: &World) -> Result<Collected> {
    let pod = endpoints(world)?;
    let _answering = start_answering(&pod)?;
    // So many connections need more ports than usual.
    world.node().netns().sends_from([1024, 65_535])?;
    let candidates: Vec<Candidate<'_>> = PLACES
        .into_iter()
        .map(|places| Candidate::start(world, places))
        .collect::<Result<_>>()?;
    let mut sender = Sender::start(world.node())?;
    for (name, to) in [(DIRECT, Kind::Tcp.endpoints()), (SERVICE, frontends())] {
        targets(&mut sender, name, to)?;
    }
    let held = if session.quick { &HELD[..QUICK] } else { &HELD };
    let mut collected = Collected::default();
    for held in held {
        let _open = hold(session, world, &candidates, *held, &mut collected)?;
        for run in 0..session.runs {
            session.progress(&format!(
                "connections-held: {held} open, run {} of {}",
                run + 1,
                session.runs
            ));
            session.still_wanted()?;
            compare(&mut sender, &candidates, *held, &mut collected)?;
        }
    }
    Ok(collected)
}

const DIRECT: &str = "direct";
const SERVICE: &str = "ClusterIP";

impl<'w> Candidate<'w> {
    fn start(world: &'w World, places: u32) -> Result<Self> {
        let cgroup = world.cgroup().sibling()?;
        let options = AgentOptions {
            cgroup_path: Some(cgroup.path().to_owned()),
            arguments: vec![format!("--map-size=PEERS={places}")],
            ..AgentOptions::default()
        };
        let manifest = clusters::manifest(0..SERVICES);
        let agent = Agent::start(world, options, &[("services.json", &manifest)])?;
        let connect = Program::behind_link(&agent.pins().path().join("links/culvert_conn4"))?;
        Ok(Self {
            places,
            cgroup,
            connect,
            _agent: agent,
        })
    }
}

fn targets(sender: &mut Sender, name: &str, to: Vec<SocketAddr>) -> Result<()> {
    let name = name.to_owned();
    sender.order(&Order::Targets { name, to }).map(drop)
}

/// Opens as many connections to Services in each cgroup. All must know what was dialled, wherever
/// that is remembered. They are open for as long as the processes live.
fn hold(
    session: &Session,
    world: &World,
    candidates: &[Candidate<'_>],
    held: u32,
    collected: &mut Collected,
) -> Result<Vec<Sender>> {
    let mut open = Vec::new();
    for one in candidates.iter().filter(|_| held > 0) {
        session.progress(&format!("connections-held: opening {held}"));
        for _ in 0..held / EACH {
            session.still_wanted()?;
            let mut sender = Sender::start(world.node())?;
            sender.enter(&one.cgroup)?;
            targets(&mut sender, SERVICE, frontends())?;
            let report = sender.order(&Order::Hold {
                targets: SERVICE.to_owned(),
                count: EACH,
            })?;
            ensure!(
                matches!(report, Report::Held { as_dialled } if as_dialled == u64::from(EACH)),
                "{EACH} connections with {} places: {report:?}",
                one.places
            );
            open.push(sender);
        }
        let known = "held that know what they dialled";
        collected.add(&case(held, one.places), known, "", f64::from(held));
    }
    Ok(open)
}

/// The Services that are dialled.
fn frontends() -> Vec<SocketAddr> {
    let numbers = (0..SERVICES).filter(|number| Kind::of(*number) == Kind::Tcp);
    numbers.map(clusters::frontend).collect()
}

fn case(held: u32, places: u32) -> String {
    format!("{held} connections open, {places} places")
}

/// One run: slices of each size in turn, directly and through Services.
fn compare(
    sender: &mut Sender,
    candidates: &[Candidate<'_>],
    held: u32,
    collected: &mut Collected,
) -> Result<()> {
    let mut rounds: Vec<Vec<[f64; 2]>> = vec![Vec::new(); candidates.len()];
    for _ in 0..ROUNDS {
        for (one, costs) in candidates.iter().zip(&mut rounds) {
            sender.enter(&one.cgroup)?;
            let mut cpu = |name: &str| -> Result<f64> {
                let slice = sender.slice(Task::Connect, name, SLICE)?;
                Ok(slice.cpu.as_secs_f64() * 1e9 / per(slice.requests))
            };
            costs.push([cpu(DIRECT)?, cpu(SERVICE)?]);
        }
    }
    let of = |index: usize, what: &dyn Fn(&[f64; 2]) -> f64| {
        median(&rounds[index].iter().map(what).collect::<Vec<_>>())
    };
    for (index, one) in candidates.iter().enumerate() {
        let name = case(held, one.places);
        let added = of(index, &|[direct, service]| service - direct);
        collected.add(&name, "CPU per connect", "ns", of(index, &|cost| cost[1]));
        collected.add(&name, "CPU added to a connect", "ns", added);
    }
    // The kernel's account costs time itself: not while the above is measured.
    let _statistics = Statistics::enable()?;
    for one in candidates {
        sender.enter(&one.cgroup)?;
        let before = one.connect.spent()?;
        sender.slice(Task::Connect, SERVICE, SLICE)?;
        let spent = one.connect.spent()?.since(before);
        let each = spent.per_run().context("culvert_conn4 did not run")?;
        collected.add(&case(held, one.places), "culvert_conn4", "ns/run", each);
    }
    Ok(())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a slice has fewer than 2^53 requests"
)]
fn per(requests: u64) -> f64 {
    requests as f64
}
