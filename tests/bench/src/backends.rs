//! `backends`: each backend on the same clusters, one beside the other: a full sync, one change, what
//! they cost, and connections through them against connections on a host without a proxy.
//!
//! Each has a world and an API server of its own, so that neither one's rules nor its work for a
//! change are in the other's way.

use std::{iter, net::SocketAddr, process::Stdio, time::Duration};

use anyhow::{Context as _, Result};

use super::{
    Session,
    api::{self, Goals, POD, PORTS, Subject, objects},
    connect,
    figures::{Collected, Goal},
    rig,
};
use proxy_api_server::ApiServer;
use proxy_harness::{Agent, AgentOptions, World, process::Process, world::Host};
use serde_json::Value;

/// Where the endpoint listens that connections are counted with.
const PORT: u16 = 9003;
/// How long connections are counted at a time, in each place in turn, as often as there are runs.
const MOMENT: Duration = Duration::from_millis(100);
/// A world with a pod that has all endpoints.
#[derive(Debug)]
struct Site {
    _servers: Vec<Process>,
    _pod: Host,
}

impl Site {
    fn build(world: &World) -> Result<Self> {
        let pod = world.pod("changed", &[POD])?;
        let naming = api::start_servers(&pod, &PORTS.map(|port| SocketAddr::new(POD, port)))?;
        let mut command = rig::own_program("answer")?;
        command
            .arg(format!("--tcp={}", SocketAddr::new(POD, PORT)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        // Rules see what the node sends only after it has a route.
        world
            .node()
            .netns()
            .ip("route add 10.96.0.0/12 dev br0\n")?;
        let mut answering = pod.spawn(command)?;
        rig::wait_until_ready(&mut answering)?;
        Ok(Self {
            _servers: vec![naming, answering],
            _pod: pod,
        })
    }
}

/// Runs it for clusters of each size.
pub(super) fn measure(session: &Session) -> Result<Collected> {
    let mut collected = Collected::default();
    let bare = World::new()?;
    let _bare = Site::build(&bare)?;
    let backends = usable(&bare)?;
    let each = || backends.iter();
    let worlds: Vec<World> = each().map(|_| World::new()).collect::<Result<_>>()?;
    let _sites: Vec<Site> = worlds.iter().map(Site::build).collect::<Result<_>>()?;
    for size in session.sizes {
        let case = &format!("{size} services");
        let mut servers = Vec::new();
        for world in &worlds {
            let server = ApiServer::start(proxy_api_server::Options {
                netns: Some(world.node().netns()),
                ..proxy_api_server::Options::default()
            })?;
            api::fill(&server, size, SocketAddr::new(POD, PORTS[0]))?;
            servers.push(server);
        }
        for start in 1..=session.starts {
            let mut agents = Vec::new();
            for ((backend, world), server) in each().zip(&worlds).zip(&servers) {
                session.progress(&format!(
                    "backends: {case}, {backend}, start {start} of {}",
                    session.starts
                ));
                session.still_wanted()?;
                let subject = Subject {
                    world,
                    server,
                    arguments: vec!["--proxy-mode".to_owned(), backend.clone()],
                    endpoints: PORTS.map(|port| SocketAddr::new(POD, port)),
                    case: &format!("{case}, {backend}"),
                    goals: Goals {
                        start: Some(Goal::AtMost(3_000.0)),
                        half: Some(Goal::AtMost(10.0)),
                        ..Goals::default()
                    },
                };
                agents.push(api::one(session, &subject, &mut collected)?);
            }
            session.progress(&format!("backends: {case}, connections"));
            for (agent, server) in agents.iter_mut().zip(&servers) {
                lead_to_the_quick_one(agent, server)?;
            }
            let served = each().map(String::as_str).zip(&worlds);
            connections(session, case, &bare, served, &mut collected)?;
        }
    }
    Ok(collected)
}

/// The names of the backends that this host can use, as `--proxy-mode` takes them.
fn usable(world: &World) -> Result<Vec<String>> {
    let agent = Agent::prepare(world, AgentOptions::default(), &[])?;
    let mut command = agent.command("check")?;
    let cgroup = world.cgroup().path();
    command.args(["-o", "json", "--cgroup-path"]).arg(cgroup);
    let output = command.output().context("cannot run check")?;
    let said: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))?;
    let all = said["backends"].as_array().context("no backends")?;
    let usable = all.iter().filter(|backend| backend["whyNot"].is_null());
    let names = usable.filter_map(|backend| backend["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

/// Makes the Service lead to the endpoint that connections are counted with.
fn lead_to_the_quick_one(agent: &mut Agent<'_>, server: &ApiServer) -> Result<()> {
    let before = synced(agent);
    server.apply(&objects::changed_slice(
        SocketAddr::new(POD, PORT),
        &api::now(),
    ))?;
    while synced(agent) == before {
        agent.wait_until_synced().context("the last change")?;
    }
    Ok(())
}

/// Changes that were told so far.
fn synced(agent: &Agent<'_>) -> usize {
    let log = agent.log();
    log.iter()
        .filter(|line| line.message() == Some("synced"))
        .count()
}

/// Counts connections in each place in turn: whatever else the machine does meets all alike.
fn connections<'a>(
    session: &Session,
    case: &str,
    bare: &'a World,
    served: impl Iterator<Item = (&'a str, &'a World)>,
    collected: &mut Collected,
) -> Result<()> {
    let frontend = SocketAddr::from(objects::FRONTEND);
    let endpoint = SocketAddr::new(POD, PORT);
    let served = served.map(|(backend, world)| (backend, world, frontend));
    let places: Vec<_> = iter::once(("no proxy", bare, endpoint))
        .chain(served)
        .collect();
    for _ in 0..session.runs {
        session.still_wanted()?;
        let mut direct = None;
        for (name, world, to) in &places {
            let moment = connect::during(world.node(), *to, MOMENT)?;
            let case = format!("{case}, {name}");
            let rate = moment.rate();
            collected.add(&case, "connections", "1/s", rate);
            let most = moment.most.as_secs_f64() * 1e6;
            collected.add(&case, "connect, p99", "µs", most);
            let direct = *direct.get_or_insert(rate);
            if *name != places[0].0 {
                collected.add(
                    &case,
                    "connections, ratio to no proxy",
                    "ratio",
                    rate / direct,
                );
            }
        }
    }
    Ok(())
}
