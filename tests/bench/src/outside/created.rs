//! `new-node-port`: how soon a NodePort that has just been created answers a host outside: from just before the API
//! server is given the Service until the first connection.

use std::{
    net::{SocketAddr, TcpStream},
    sync::mpsc::{self, Sender},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use proxy_api_server::{ApiServer, Options};
use proxy_harness::{Agent, AgentOptions, World, netns::NetNs};
use serde_json::json;

use super::{
    super::{
        Session, api,
        figures::{Collected, Goal},
    },
    cluster::{self, SERVERS},
    place::{Endpoints, Place},
    way::{self, Kind},
};

/// NodePorts of each kind; few with `--quick`.
const TIMES: u8 = 200;
const QUICK_TIMES: u8 = 5;
/// The first of them.
const FIRST: u16 = 31_000;
/// Of nearly all.
const SOON: Goal = Goal::AtMost(5.0);
/// Between two attempts: often enough for figures of a tenth of a millisecond.
const PAUSE: Duration = Duration::from_micros(100);
/// After that there will be no connection.
const LIMIT: Duration = Duration::from_secs(10);

/// Measures it for each way with an agent, beside a large cluster.
pub(in super::super) fn measure(session: &Session) -> Result<Collected> {
    let mut collected = Collected::default();
    let size = session.large();
    for place in [Place::Here, Place::Elsewhere] {
        for (kind, world) in &way::worlds()? {
            let Some(arguments) = kind.arguments() else {
                continue;
            };
            let case = format!("{place}, {size} services, {kind}");
            session.progress(&format!("new-node-port: {case}"));
            let server = ApiServer::start(Options {
                netns: Some(world.node().netns()),
                ..Options::default()
            })?;
            let servers = place.addresses().map(|ip| SocketAddr::new(ip, SERVERS[0]));
            api::fill(&server, size, servers[0])?;
            let times = one(session, *kind, world, (&server, arguments), place);
            let times = times.context(case.clone())?;
            let at = |percent: usize| times[(times.len() - 1) * percent / 100];
            let mut add = |what: &str, goal, value| {
                let metric = format!("creation to first connection, {what}");
                collected.add_with_goal(&case, &metric, "ms", goal, value);
            };
            add("p50", None, at(50));
            add("p99", kind.has_programs().then_some(SOON), at(99));
            add("most", None, at(100));
        }
    }
    Ok(collected)
}

/// How long each took, in milliseconds, the shortest first.
fn one(
    session: &Session,
    kind: Kind,
    world: &World,
    (server, arguments): (&ApiServer, &[&str]),
    place: Place,
) -> Result<Vec<f64>> {
    let neighbour = world.neighbour(1)?;
    let endpoints = Endpoints::start(place, world)?;
    let _answering = way::answer(place, endpoints.host())?;
    let [node, _] = neighbour.node;
    server.apply(&json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-a" },
        "status": { "addresses": [{ "type": "InternalIP", "address": node }] }
    }))?;
    let options = AgentOptions {
        source: vec!["--master".to_owned(), server.url()],
        arguments: arguments.iter().map(|one| (*one).to_owned()).collect(),
        ..AgentOptions::default()
    };
    let mut agent = Agent::start(world, options, &[])?;
    if kind.has_programs() {
        let devices = [&*neighbour.device].into_iter().chain(endpoints.device());
        way::served(&mut agent, devices.collect())?;
    }
    let mut times = Vec::new();
    let count = if session.quick { QUICK_TIMES } else { TIMES };
    for number in 1..=count {
        session.still_wanted()?;
        let port = FIRST + u16::from(number);
        let name = format!("new-{number}");
        let ports = [("main".to_owned(), "TCP", SERVERS[0], port)];
        let first = &place.addresses()[..1];
        let [service, slice] = cluster::service(place, &name, number, &ports, first);
        server.apply(&slice)?;
        let to = SocketAddr::new(node, port);
        let took = created(neighbour.host.netns(), to, || {
            server.apply(&service).map(drop)
        })?;
        times.push(took.as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// From just before `create` until the first connection.
fn created(
    outside: &NetNs,
    to: SocketAddr,
    create: impl FnOnce() -> Result<()>,
) -> Result<Duration> {
    thread::scope(|scope| {
        let (refused, hears) = mpsc::channel();
        let dialling = scope.spawn(move || outside.run(|| dial(to, &refused))?);
        // If nobody says so, it has failed, and tells why.
        let is_refused = hears.recv().is_ok();
        let began = Instant::now();
        let outcome = if is_refused { create() } else { Ok(()) };
        match dialling.join() {
            Ok(connected) => {
                let connected = connected?;
                outcome?;
                Ok(connected.saturating_duration_since(began))
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// When the first connection was there. Says so once an attempt has failed.
fn dial(to: SocketAddr, refused: &Sender<()>) -> Result<Instant> {
    let began = Instant::now();
    let mut failed = false;
    while began.elapsed() < LIMIT {
        let connected = TcpStream::connect_timeout(&to, LIMIT);
        let now = Instant::now();
        match connected {
            Ok(_) if failed => return Ok(now),
            Ok(_) => bail!("{to} answers before it is created"),
            Err(_) if failed => {}
            Err(_) => {
                failed = true;
                refused.send(()).context("nobody creates the NodePort")?;
            }
        }
        thread::sleep(PAUSE);
    }
    bail!("{to} does not answer")
}
