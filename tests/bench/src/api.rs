//! `api-server`: an agent that follows an API server: how soon a change reaches the first
//! connection, how long a cold start takes, and what all of it costs.

pub(super) mod dial;
mod model;
pub(super) mod objects;

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
    sizes::Size,
};
use dial::Dialler;
use proxy_api_server::{ApiServer, Kind, Verb};
use proxy_harness::{Agent, AgentOptions, World, process::Process, world::Host};

/// Changes after each start; each is a value of its own, so that the tail shows.
const CHANGES: u32 = 200;
/// The same with `--quick`.
const QUICK_CHANGES: u32 = 5;
/// Where the endpoints of the changed Service listen, in turn.
pub(super) const PORTS: [u16; 2] = [9001, 9002];
/// The pod they are in.
pub(super) const POD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 244, 0, 200));

/// What figures should be, of those that should be something here.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Goals {
    /// Of the cold start.
    pub(super) start: Option<Goal>,
    /// Of the agent's memory when it begins to serve.
    pub(super) resident: Option<Goal>,
    /// Of half of the changes.
    pub(super) half: Option<Goal>,
    /// Of nearly all changes.
    pub(super) most: Option<Goal>,
}

/// What is measured: an agent with these further arguments on this server's cluster, in which the
/// Service that is changed leads to one of two endpoints.
#[derive(Debug)]
pub(super) struct Subject<'a, 'w> {
    pub(super) world: &'w World,
    pub(super) server: &'a ApiServer,
    pub(super) arguments: Vec<String>,
    pub(super) endpoints: [SocketAddr; 2],
    pub(super) case: &'a str,
    pub(super) goals: Goals,
}

/// Runs it for clusters of each size, and the model alone.
pub(super) fn measure(session: &Session, world: &World) -> Result<Collected> {
    let mut collected = Collected::default();
    let pod = world.pod("changed", &[POD])?;
    let servers = PORTS.map(|port| SocketAddr::new(POD, port));
    let _answering = start_servers(&pod, &servers)?;
    for size in session.sizes {
        let case = &format!("{size} services");
        let server = ApiServer::start(proxy_api_server::Options {
            netns: Some(world.node().netns()),
            ..proxy_api_server::Options::default()
        })?;
        fill(&server, size, servers[0])?;
        for start in 0..session.starts {
            session.progress(&format!(
                "api-server: {case}, start {} of {}",
                start + 1,
                session.starts
            ));
            session.still_wanted()?;
            let large = size == session.large();
            let only_large = |goal| large.then_some(Goal::AtMost(goal));
            let subject = Subject {
                world,
                server: &server,
                arguments: Vec::new(),
                endpoints: servers,
                case,
                goals: Goals {
                    start: only_large(1_000.0),
                    resident: only_large(60.0),
                    half: None,
                    most: Some(Goal::AtMost(5.0)),
                },
            };
            one(session, &subject, &mut collected)?;
        }
    }
    session.progress("api-server: the model alone");
    model::measure(session, &mut collected)?;
    Ok(collected)
}

/// A cluster of this size, Services with ten endpoints each, and the Service that is changed.
pub(super) fn fill(server: &ApiServer, size: Size, first: SocketAddr) -> Result<()> {
    for number in 0..size.0 {
        for object in objects::service(number) {
            server.apply(&object)?;
        }
    }
    server.apply(&objects::changed_service())?;
    server.apply(&objects::changed_slice(first, &now()))?;
    Ok(())
}

/// One start and its changes. Gives the agent, which still runs.
pub(super) fn one<'w>(
    session: &Session,
    subject: &Subject<'_, 'w>,
    collected: &mut Collected,
) -> Result<Agent<'w>> {
    let Subject {
        world,
        server,
        case,
        goals,
        ..
    } = *subject;
    let options = AgentOptions {
        source: vec!["--master".to_owned(), server.url()],
        arguments: subject.arguments.clone(),
        ..AgentOptions::default()
    };
    // Where an earlier start left it, whichever endpoint that was.
    server.apply(&objects::changed_slice(subject.endpoints[0], &now()))?;
    let before = server.sight();
    let mut agent = Agent::prepare(world, options, &[])?;
    let began = Instant::now();
    agent.launch()?;
    let serving = Instant::now();
    let pid = agent.pid().context("the agent is not running")?;
    let asked = first_list(server, before.requests.len())?;
    let said = agent.serving()?;
    let [maps, elements] = ["maps_kib", "elements"].map(|field| said.decimal(field));
    let mut add = |metric: &str, unit, goal, value| {
        collected.add_with_goal(case, metric, unit, goal, value);
    };
    let millis = |from: Instant| (serving - from).as_secs_f64() * 1e3;
    add(
        "cold start, from first request to programmed",
        "ms",
        goals.start,
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
    add("agent resident", "MiB", goals.resident, start.resident_mib);
    add(
        "agent resident, at most so far",
        "MiB",
        None,
        start.peak_mib,
    );
    if let Some(maps) = maps {
        add("kernel maps", "MiB", None, maps / 1024.0);
    }
    if let Some(elements) = elements {
        add("elements in force", "elements", None, elements);
    }
    let sent = server.sight().bytes;
    add(
        "read from the API server at start",
        "KiB",
        None,
        kib(sent - before.bytes),
    );

    let times = changes(session, subject)?;
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    add("change to first connection, p50", "ms", goals.half, at(50));
    add("change to first connection, p99", "ms", goals.most, at(99));
    add("change to first connection, most", "ms", None, at(100));
    let end = Usage::of(pid)?;
    let count = f64::from(number_of_changes(session));
    let per_change = end.cpu.saturating_sub(start.cpu).as_secs_f64() * 1e3 / count;
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
        kib(bytes) / count,
    );
    if let Some(writes) = writes(&agent) {
        add("written per change", "entries", None, writes);
    }
    Ok(agent)
}

/// How long each change took until the first connection reached the new endpoint, in milliseconds,
/// the shortest first.
fn changes(session: &Session, subject: &Subject<'_, '_>) -> Result<Vec<f64>> {
    let Subject {
        world, endpoints, ..
    } = subject;
    let mut dialler = Dialler::start(world.node(), rig::own_program("dial")?)?;
    let frontend = SocketAddr::from(objects::FRONTEND);
    let mut times = Vec::new();
    for change in 0..number_of_changes(session) {
        session.still_wanted()?;
        let new = endpoints[usize::from(change % 2 == 0)];
        let slice = objects::changed_slice(new, &now());
        let apply = || subject.server.apply(&slice).map(drop);
        let took = dialler.time(frontend, new.port(), apply)?;
        times.push(took.as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

fn number_of_changes(session: &Session) -> u32 {
    if session.starts == 1 {
        QUICK_CHANGES
    } else {
        CHANGES
    }
}

/// What the agent last wrote for one change of one Service.
fn writes(agent: &Agent<'_>) -> Option<f64> {
    let log = agent.log();
    let mut synced = log.iter().filter(|line| line.message() == Some("synced"));
    synced
        .rfind(|line| line.number("upserted") == Some(1))?
        .decimal("writes")
}

#[expect(clippy::cast_precision_loss, reason = "far from 2^53 bytes")]
fn kib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

/// Now, as the annotation of an EndpointSlice has it.
pub(super) fn now() -> String {
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

/// Servers that say which of these addresses they are at.
pub(super) fn start_servers(pod: &Host, addresses: &[SocketAddr]) -> Result<Process> {
    let mut command = rig::own_program("name-yourselves")?;
    command
        .args(addresses.iter().map(|address| format!("--at={address}")))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut process = pod.spawn(command)?;
    rig::wait_until_ready(&mut process)?;
    Ok(process)
}
