//! `api-server`: an agent that follows an API server: how soon a change reaches the first
//! connection, how long a cold start takes, and what all of it costs.

pub(super) mod dial;
mod model;
mod objects;

use std::{
    net::{IpAddr, SocketAddr},
    process::Stdio,
    time::Instant,
};

use anyhow::{Context as _, Result};

use super::usage::Usage;
use super::{
    Session,
    figures::{Collected, Goal},
    rig,
};
use crate::{
    Agent, AgentOptions, World,
    api_server::{self, ApiServer, Kind, Verb},
    process::Process,
    world::Host,
};
use dial::Dialler;

/// Sizes of the clusters: Services with ten endpoints each.
const SIZES: [(u32, &str); 3] = [
    (10, "10 services"),
    (1_000, "1,000 services"),
    (10_000, "10,000 services"),
];
/// Changes after each start; each is a value of its own, so that the tail shows.
const CHANGES: u32 = 200;
/// The same with `--quick`.
const QUICK_CHANGES: u32 = 5;
/// Where the endpoints of the changed Service listen, in turn.
const PORTS: [u16; 2] = [9001, 9002];
/// The pod they are in.
const POD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 244, 0, 200));

/// Runs it for clusters of each size, and the model alone.
pub(super) fn measure(session: &Session, world: &World) -> Result<Collected> {
    let mut collected = Collected::default();
    let pod = world.pod("changed", &[POD])?;
    let servers = PORTS.map(|port| SocketAddr::new(POD, port));
    let _answering = start_servers(&pod, &servers)?;
    for (size, case) in SIZES {
        let server = ApiServer::start(api_server::Options {
            netns: Some(world.node().netns()),
            ..api_server::Options::default()
        })?;
        fill(&server, size, servers[0])?;
        for start in 0..session.starts {
            session.progress(&format!(
                "api-server: {case}, start {} of {}",
                start + 1,
                session.starts
            ));
            session.still_wanted()?;
            one(session, world, &server, case, servers, &mut collected)?;
        }
    }
    session.progress("api-server: the model alone");
    model::measure(session, &mut collected)?;
    Ok(collected)
}

fn fill(server: &ApiServer, size: u32, first: SocketAddr) -> Result<()> {
    for number in 0..size {
        for object in objects::service(number) {
            server.apply(&object)?;
        }
    }
    server.apply(&objects::changed_service())?;
    server.apply(&objects::changed_slice(first, &now()))?;
    Ok(())
}

fn one(
    session: &Session,
    world: &World,
    server: &ApiServer,
    case: &str,
    servers: [SocketAddr; 2],
    collected: &mut Collected,
) -> Result<()> {
    let options = AgentOptions {
        source: vec!["--master".to_owned(), server.url()],
        ..AgentOptions::default()
    };
    // Where an earlier start left it, whichever endpoint that was.
    server.apply(&objects::changed_slice(servers[0], &now()))?;
    let before = server.sight();
    let mut agent = Agent::prepare(world, options, &[])?;
    let began = Instant::now();
    agent.launch()?;
    let serving = Instant::now();
    let pid = agent.pid().context("the agent is not running")?;
    let asked = first_list(server, before.requests.len())?;
    let maps = agent
        .serving()?
        .decimal("maps_kib")
        .context("\"serving\" has no maps_kib")?;
    let mut add = |metric: &str, unit, goal, value| {
        collected.add_with_goal(case, metric, unit, goal, value);
    };
    let large = case == SIZES[2].1;
    let only_large = |goal| large.then_some(goal);
    let millis = |from: Instant| (serving - from).as_secs_f64() * 1e3;
    let goal = only_large(Goal::AtMost(1_000.0));
    add(
        "cold start, from first request to programmed",
        "ms",
        goal,
        millis(asked),
    );
    add(
        "from start of the process to programmed",
        "ms",
        None,
        millis(began),
    );
    let start = Usage::of(pid)?;
    add("cold start: CPU", "ms", None, start.cpu.as_secs_f64() * 1e3);
    let goal = only_large(Goal::AtMost(60.0));
    add("agent resident", "MiB", goal, start.resident_mib);
    add(
        "agent resident, at most so far",
        "MiB",
        None,
        start.peak_mib,
    );
    add("kernel maps", "MiB", None, maps / 1024.0);
    let sent = server.sight().bytes;
    add(
        "read from the API server at start",
        "KiB",
        None,
        kib(sent - before.bytes),
    );

    let mut dialler = Dialler::start(world.node(), rig::own_program("dial")?)?;
    let frontend = SocketAddr::from(objects::FRONTEND);
    let changes = if session.starts == 1 {
        QUICK_CHANGES
    } else {
        CHANGES
    };
    let mut times = Vec::new();
    for change in 0..changes {
        session.still_wanted()?;
        let new = servers[usize::from(change % 2 == 0)];
        let slice = objects::changed_slice(new, &now());
        let took = dialler.time(frontend, new.port(), || server.apply(&slice).map(drop))?;
        times.push(took.as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    add("change to first connection, p50", "ms", None, at(50));
    add(
        "change to first connection, p99",
        "ms",
        Some(Goal::AtMost(5.0)),
        at(99),
    );
    add("change to first connection, most", "ms", None, at(100));
    let end = Usage::of(pid)?;
    let per_change = end.cpu.saturating_sub(start.cpu).as_secs_f64() * 1e3 / f64::from(changes);
    add("CPU of the agent per change", "ms", None, per_change);
    add(
        "agent resident after the changes",
        "MiB",
        None,
        end.resident_mib,
    );
    let bytes = server.sight().bytes - sent;
    add(
        "read from the API server per change",
        "KiB",
        None,
        kib(bytes) / f64::from(changes),
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "far from 2^53 bytes")]
fn kib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

/// Now, as the annotation of an EndpointSlice has it.
fn now() -> String {
    jiff::Timestamp::now().to_string()
}

/// When the agent first asked for EndpointSlices, after the first `before` requests.
fn first_list(server: &ApiServer, before: usize) -> Result<Instant> {
    server
        .sight()
        .requests
        .iter()
        .skip(before)
        .find(|request| {
            matches!(
                request.asks,
                Some((Verb::List | Verb::StreamingList, Kind::EndpointSlice))
            )
        })
        .map(|request| request.at)
        .context("the agent serves and never asked for EndpointSlices")
}

fn start_servers(pod: &Host, addresses: &[SocketAddr]) -> Result<Process> {
    let mut command = rig::own_program("name-yourselves")?;
    command
        .args(addresses.iter().map(|address| format!("--at={address}")))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut process = pod.spawn(command)?;
    rig::wait_until_ready(&mut process)?;
    Ok(process)
}
