//! `api-server`: an agent that follows an API server: how soon a change reaches the first
//! connection, how long a cold start takes, and what all of it costs.

mod changes;
pub(super) mod dial;
mod model;
pub(super) mod objects;

use std::{
    net::{IpAddr, SocketAddr},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::usage::Usage;
use super::{
    Session,
    figures::{Collected, Goal},
    rig,
    sizes::Size,
};
pub(super) use changes::{Changed, Times, changes};
use proxy_api_server::{ApiServer, Kind, Verb};
use proxy_harness::{Agent, AgentOptions, World, process::Process, scraped, world::Host};

/// Where the endpoints of the changed Service listen, in turn.
pub(super) const PORTS: [u16; 2] = [9001, 9002];
/// The pod they are in.
pub(super) const POD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 244, 0, 200));

/// What figures should be, of those that should be something here.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Goals {
    /// Of the cold start.
    pub(super) start: Option<Goal>,
    /// Of the first sync of that.
    pub(super) full: Option<Goal>,
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
    pub(super) changed: Changed<'a, 'w>,
    pub(super) server: &'a ApiServer,
    pub(super) arguments: Vec<String>,
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
                changed: Changed {
                    world,
                    endpoints: servers,
                    case,
                },
                server: &server,
                arguments: Vec::new(),
                goals: Goals {
                    start: only_large(1_000.0),
                    resident: only_large(60.0),
                    most: Some(Goal::AtMost(5.0)),
                    ..Goals::default()
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

/// One start and its changes. Gives the agent, which still runs, and how long these took.
pub(super) fn one<'w>(
    session: &Session,
    subject: &Subject<'_, 'w>,
    collected: &mut Collected,
) -> Result<(Agent<'w>, Times)> {
    let Subject {
        server,
        goals,
        changed,
        ..
    } = *subject;
    let (agent, start) = cold_start(subject, collected)?;
    let pid = agent.pid().context("the agent is not running")?;
    let sent = server.sight().bytes;
    let times = changes(session, &changed, |new| {
        let slice = objects::changed_slice(new, &now());
        server.apply(&slice).map(drop)
    })?;
    let end = Usage::of(pid)?;
    let full = full_sync(changed.world)?;
    let mut add = |metric: &str, unit, goal, value| {
        collected.add_with_goal(changed.case, metric, unit, goal, value);
    };
    add("full sync", "ms", goals.full, full);
    for (metric, goal, percent) in [
        ("change to first connection, p50", goals.half, 50),
        ("change to first connection, p99", goals.most, 99),
        ("change to first connection, most", None, 100),
    ] {
        add(metric, "ms", goal, times.at(percent));
    }
    #[expect(clippy::cast_precision_loss, reason = "hundreds")]
    let count = times.count() as f64;
    let per_change =
        |of: fn(&Usage) -> Duration| millis(of(&end).saturating_sub(of(&start))) / count;
    let cpu = per_change(|usage| usage.cpu);
    add("CPU of the agent per change", "ms", None, cpu);
    let programs = per_change(|usage| usage.programs);
    if programs > 0.0 {
        add("CPU of programs per change", "ms", None, programs);
    }
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
    Ok((agent, times))
}

/// Starts the agent. Gives it, and what it has used until it served.
fn cold_start<'w>(
    subject: &Subject<'_, 'w>,
    collected: &mut Collected,
) -> Result<(Agent<'w>, Usage)> {
    let Subject {
        server,
        goals,
        changed,
        ..
    } = *subject;
    let options = AgentOptions {
        source: vec!["--master".to_owned(), server.url()],
        arguments: subject.arguments.clone(),
        ..AgentOptions::default()
    };
    // Where an earlier start left it, whichever endpoint that was.
    server.apply(&objects::changed_slice(changed.endpoints[0], &now()))?;
    let before = server.sight();
    let mut agent = Agent::prepare(changed.world, options, &[])?;
    let began = Instant::now();
    agent.launch()?;
    let serving = Instant::now();
    let start = Usage::of(agent.pid().context("the agent is not running")?)?;
    let sent = server.sight().bytes - before.bytes;
    let asked = first_list(server, before.requests.len())?;
    let said = agent.serving()?;
    let [maps, elements] = ["maps_kib", "elements"].map(|field| said.decimal(field));
    let mut add = |metric: &str, unit, goal, value| {
        collected.add_with_goal(changed.case, metric, unit, goal, value);
    };
    add(
        "cold start, from first request to programmed",
        "ms",
        goals.start,
        millis(serving - asked),
    );
    add(
        "from start of the process to programmed",
        "ms",
        None,
        millis(serving - began),
    );
    add("cold start: CPU", "ms", None, millis(start.cpu));
    if !start.programs.is_zero() {
        let programs = millis(start.programs);
        add("cold start: CPU of programs", "ms", None, programs);
    }
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
    add("read from the API server at start", "KiB", None, kib(sent));
    Ok((agent, start))
}

/// How long the sync of the whole state took, as kube-proxy measures it, in milliseconds.
fn full_sync(world: &World) -> Result<f64> {
    let metrics = scraped::metrics(world.node())?;
    let part = |part: &str| {
        let histogram = "kubeproxy_sync_full_proxy_rules_duration_seconds";
        let name = format!("{histogram}_{part}{{ip_family=\"IPv4\"}}");
        let value = scraped::sample(&metrics, &name);
        value.with_context(|| format!("the agent does not tell {name}"))
    };
    Ok(part("sum")? / part("count")? * 1e3)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
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
