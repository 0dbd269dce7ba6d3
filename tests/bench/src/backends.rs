//! `backends`: each backend on the same clusters, one beside the other: a full sync, one change, what
//! they cost, and connections through them against connections on a host without a proxy.
//!
//! Each has a world and an API server of its own, so that neither one's rules nor its work for a
//! change are in the other's way.

use std::{net::SocketAddr, process::Stdio, time::Duration};

use anyhow::{Context as _, Result};

use super::{
    Session,
    api::{self, Goals, POD, PORTS, Subject, objects},
    connect,
    figures::{Collected, Goal},
    rig,
};
use proxy_api_server::ApiServer;
use proxy_harness::{Agent, World, process::Process, world::Host};

/// Backends, by the names that `--proxy-mode` takes.
const BACKENDS: [&str; 2] = ["ebpf", "nftables"];
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
    let worlds = [World::new()?, World::new()?];
    let _sites = [Site::build(&worlds[0])?, Site::build(&worlds[1])?];
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
            for (place, backend) in BACKENDS.into_iter().enumerate() {
                session.progress(&format!(
                    "backends: {case}, {backend}, start {start} of {}",
                    session.starts
                ));
                session.still_wanted()?;
                let subject = Subject {
                    world: &worlds[place],
                    server: &servers[place],
                    arguments: vec!["--proxy-mode".to_owned(), backend.to_owned()],
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
            connections(session, case, &bare, &worlds, &mut collected)?;
        }
    }
    Ok(collected)
}

/// Makes the Service lead to the endpoint that connections are counted with.
fn lead_to_the_quick_one(agent: &mut Agent<'_>, server: &ApiServer) -> Result<()> {
    let before = synced(agent);
    server.apply(&objects::changed_slice(
        SocketAddr::new(POD, PORT),
        &api::now(),
    ))?;
    while synced(agent) == before {
        agent.wait_for("synced").context("the last change")?;
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
fn connections(
    session: &Session,
    case: &str,
    bare: &World,
    worlds: &[World; 2],
    collected: &mut Collected,
) -> Result<()> {
    let frontend = SocketAddr::from(objects::FRONTEND);
    let endpoint = SocketAddr::new(POD, PORT);
    let [ebpf, nftables] = worlds;
    let places = [
        ("no proxy", bare, endpoint),
        (BACKENDS[0], ebpf, frontend),
        (BACKENDS[1], nftables, frontend),
    ];
    for _ in 0..session.runs {
        session.still_wanted()?;
        let mut direct = None;
        for (name, world, to) in places {
            let moment = connect::during(world.node(), to, MOMENT)?;
            let case = format!("{case}, {name}");
            let rate = moment.rate();
            collected.add(&case, "connections", "1/s", rate);
            let most = moment.most.as_secs_f64() * 1e6;
            collected.add(&case, "connect, p99", "µs", most);
            let direct = *direct.get_or_insert(rate);
            if name != places[0].0 {
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
