//! `backends`: the layers, and each backend alone, on the same clusters, one beside the other: a full
//! sync, one change, what they cost, and traffic through them against that on a host without a proxy.
//!
//! Each has a world and an API server of its own, so that neither one's rules nor its work for a
//! change are in the other's way.

mod restores;
mod traffic;

use std::{net::SocketAddr, process::Stdio};

use anyhow::{Context as _, Result};

use super::{
    Session,
    api::{self, Changed, Goals, POD, PORTS, Subject, objects},
    figures::{Collected, Goal},
    rig,
    sizes::Size,
};
use proxy_api_server::ApiServer;
use proxy_harness::{Agent, AgentOptions, World, process::Process, world::Host};
use restores::Flavour;
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
    /// The programs that write its rules, if it has some.
    flavour: Option<Flavour>,
}

impl Stack {
    /// Whether it is meant for clusters of this size.
    fn is_for(&self, size: Size) -> bool {
        /// What `proxy-agent check` says.
        const MOST_BY_NFT: Size = Size(1_000);
        self.flavour != Some(Flavour::Nft) || size <= MOST_BY_NFT
    }

    fn goals(&self, size: Size) -> Goals {
        match self.flavour {
            // No slower than kube-proxy 1.36 by the same programs on such a machine.
            Some(flavour) => Goals {
                full: flavour.full_sync_of_kube_proxy(size).map(Goal::AtMost),
                ..Goals::default()
            },
            None => Goals {
                start: Some(Goal::AtMost(1_500.0)),
                resident: Some(Goal::AtMost(80.0)),
                half: Some(Goal::AtMost(10.0)),
                ..Goals::default()
            },
        }
    }
}

/// Runs it for clusters of each size.
pub(super) fn measure(session: &Session) -> Result<Collected> {
    let mut collected = Collected::default();
    let bare = World::new()?;
    let _bare = Site::build(&bare)?;
    let stacks = usable(&bare)?;
    let worlds: Vec<World> = stacks.iter().map(|_| World::new()).collect::<Result<_>>()?;
    let _sites: Vec<Site> = worlds.iter().map(Site::build).collect::<Result<_>>()?;
    for (stack, world) in stacks.iter().zip(&worlds) {
        stack
            .flavour
            .map_or(Ok(()), |flavour| flavour.prepare(world))?;
    }
    for size in session.sizes {
        let case = &format!("{size} services");
        let all = stacks.iter().zip(&worlds);
        let stacks: Vec<_> = all.filter(|(stack, _)| stack.is_for(size)).collect();
        let mut servers = Vec::new();
        for (_, world) in &stacks {
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
        for (stack, world) in &stacks {
            places.push(Place::new(world, Some(&stack.name), stack.quick)?);
        }
        for start in 1..=session.starts {
            let mut agents = Vec::new();
            for ((stack, world), server) in stacks.iter().zip(&servers) {
                session.progress(&format!(
                    "backends: {case}, {}, start {start} of {}",
                    stack.name, session.starts
                ));
                session.still_wanted()?;
                let subject = Subject {
                    changed: Changed {
                        world,
                        endpoints: PORTS.map(|port| SocketAddr::new(POD, port)),
                        case: &format!("{case}, {}", stack.name),
                    },
                    server,
                    arguments: stack.arguments.clone(),
                    goals: stack.goals(size),
                };
                agents.push(api::one(session, &subject, &mut collected)?);
            }
            session.progress(&format!("backends: {case}, traffic"));
            traffic::measure(session, case, &mut places, &mut collected)?;
            for ((stack, world), (agent, times)) in stacks.iter().zip(&mut agents) {
                let Some(flavour) = stack.flavour else {
                    continue;
                };
                session.progress(&format!("backends: {case}, {}, bare restores", stack.name));
                let changed = Changed {
                    world,
                    endpoints: PORTS.map(|port| SocketAddr::new(POD, port)),
                    case: &format!("{case}, {}", stack.name),
                };
                // Its tables stay.
                agent.kill()?;
                restores::measure(session, flavour, &changed, times, &mut collected)?;
            }
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
            flavour: None,
        });
    }
    let all = said["backends"].as_array().context("no backends")?;
    let usable = all.iter().filter(|backend| backend["whyNot"].is_null());
    for backend in usable {
        let name = backend["name"].as_str().context("a backend has a name")?;
        let lacks = backend["lacks"]
            .as_array()
            .context("a backend lacks something, or nothing")?;
        let stack = |flavour: Option<Flavour>| Stack {
            name: flavour.map_or_else(
                || name.to_owned(),
                |flavour| format!("{name}-{}", flavour.as_str()),
            ),
            arguments: vec![auto(), format!("--backend-order={name}")],
            // Who meets no packets meets calls.
            quick: lacks
                .iter()
                .any(|one| one["capability"] == "foreign-clients"),
            flavour,
        };
        stacks.extend(Flavour::all_of(name).into_iter().map(stack));
    }
    Ok(stacks)
}
