//! `backends`: the layers, and each backend alone, on the same clusters, one beside the other: a full
//! sync, one change, what they cost, and traffic through them against that on a host without a proxy.
//!
//! Each has a world and an API server of its own, so that neither one's rules nor its work for a
//! change are in the other's way.

mod traffic;

use std::{net::SocketAddr, process::Stdio};

use anyhow::{Context as _, Result};

use super::{
    Session,
    api::{self, Goals, POD, PORTS, Subject, objects},
    figures::{Collected, Goal},
    rig,
};
use proxy_api_server::ApiServer;
use proxy_harness::{Agent, AgentOptions, World, process::Process, world::Host};
use serde_json::Value;
use traffic::Place;

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
        let servers = ["--tcp", "--udp", "--sink"].iter().zip(steady());
        command
            .args(servers.map(|(flag, at)| format!("{flag}={at}")))
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

/// The servers of the Service that never changes.
fn steady() -> [SocketAddr; 3] {
    traffic::SERVERS.map(|port| SocketAddr::new(POD, port))
}

/// Layers that serve.
#[derive(Debug)]
struct Stack {
    name: String,
    arguments: Vec<String>,
    /// Whether connections are redirected where they begin, so that they should cost nothing.
    quick: bool,
}

/// Runs it for clusters of each size.
pub(super) fn measure(session: &Session) -> Result<Collected> {
    let mut collected = Collected::default();
    let bare = World::new()?;
    let _bare = Site::build(&bare)?;
    let stacks = usable(&bare)?;
    let worlds: Vec<World> = stacks.iter().map(|_| World::new()).collect::<Result<_>>()?;
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
            for object in objects::steady(steady()) {
                server.apply(&object)?;
            }
            servers.push(server);
        }
        let mut places = vec![Place::new(&bare, None, false)?];
        for (stack, world) in stacks.iter().zip(&worlds) {
            places.push(Place::new(world, Some(&stack.name), stack.quick)?);
        }
        for start in 1..=session.starts {
            let mut agents = Vec::new();
            for ((stack, world), server) in stacks.iter().zip(&worlds).zip(&servers) {
                session.progress(&format!(
                    "backends: {case}, {}, start {start} of {}",
                    stack.name, session.starts
                ));
                session.still_wanted()?;
                let subject = Subject {
                    world,
                    server,
                    arguments: stack.arguments.clone(),
                    endpoints: PORTS.map(|port| SocketAddr::new(POD, port)),
                    case: &format!("{case}, {}", stack.name),
                    goals: Goals {
                        start: Some(Goal::AtMost(1_500.0)),
                        resident: Some(Goal::AtMost(80.0)),
                        half: Some(Goal::AtMost(10.0)),
                        ..Goals::default()
                    },
                };
                agents.push(api::one(session, &subject, &mut collected)?);
            }
            session.progress(&format!("backends: {case}, traffic"));
            traffic::measure(session, case, &mut places, &mut collected)?;
        }
    }
    Ok(collected)
}

/// What this host can use: the layers of mode auto, and each backend alone.
fn usable(world: &World) -> Result<Vec<Stack>> {
    let agent = Agent::prepare(world, AgentOptions::default(), &[])?;
    let mut command = agent.command("check")?;
    let cgroup = world.cgroup().path();
    command.args(["-o", "json", "--cgroup-path"]).arg(cgroup);
    let output = command.output().context("cannot run check")?;
    let said: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))?;
    let auto = || "--proxy-mode=auto".to_owned();
    let mut stacks = Vec::new();
    let layers = said["layers"].as_array().context("no layers")?;
    if layers.len() > 1 {
        stacks.push(Stack {
            name: "layers".to_owned(),
            arguments: vec![auto()],
            quick: true,
        });
    }
    let all = said["backends"].as_array().context("no backends")?;
    let usable = all.iter().filter(|backend| backend["whyNot"].is_null());
    for backend in usable {
        let name = backend["name"].as_str().context("a backend has a name")?;
        let lacks = backend["lacks"]
            .as_array()
            .context("a backend lacks something, or nothing")?;
        stacks.push(Stack {
            name: name.to_owned(),
            arguments: vec![auto(), format!("--backend-order={name}")],
            // Who meets no packets meets calls.
            quick: lacks
                .iter()
                .any(|one| one["capability"] == "foreign-clients"),
        });
    }
    Ok(stacks)
}
