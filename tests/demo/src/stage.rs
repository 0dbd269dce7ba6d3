//! The throw-away node with its pods, its agent and the traffic: everything the demo makes.

use std::{net::SocketAddr, path::Path};

use anyhow::{Context as _, Result, bail};

use super::{
    cluster::{self, CLIENT, PODS, PodSpec, STREAMS},
    screen::number,
    traffic::Traffic,
};
use proxy_harness::{
    Agent, AgentOptions, Prober, Server, World,
    pod::{Attempt, Transport},
    world::{Host, NODE_ADDRESSES},
};

/// The name of the file that the cluster's objects are in.
pub(super) const CLUSTER: &str = "cluster.yaml";

/// A node of the cluster at work. Dropped in the order of its fields: first who sends, last who
/// answers.
#[derive(Debug)]
pub(super) struct Stage<'w> {
    pub(super) traffic: Traffic,
    pub(super) agent: Agent<'w>,
    pub(super) client: Host,
    pods: Vec<Pod>,
    asker: Prober,
    world: &'w World,
}

/// A pod that serves.
#[derive(Debug)]
pub(super) struct Pod {
    name: &'static str,
    /// Dropped before the pod it runs in.
    _server: Server,
    _host: Host,
}

impl<'w> Stage<'w> {
    /// Makes pods in `world`, starts their servers, the agent and the traffic.
    pub(super) fn set(world: &'w World) -> Result<Self> {
        let client = world.pod(CLIENT.name, &CLIENT.addresses())?;
        let pods = PODS
            .iter()
            .map(|spec| Pod::start(world, spec))
            .collect::<Result<_>>()?;
        let files = [(CLUSTER, cluster::MIXED)];
        let options = AgentOptions {
            // As it is installed.
            arguments: vec!["--proxy-mode=auto".to_owned()],
            ..AgentOptions::default()
        };
        let agent = Agent::start(world, options, &files)?;
        let traffic = Traffic::start(&client, agent.refusal()?)?;
        let asker = Prober::start(&client)?;
        Ok(Self {
            traffic,
            agent,
            client,
            pods,
            asker,
            world,
        })
    }

    /// What was made, one line each.
    pub(super) fn describe(&self) -> Result<Vec<String>> {
        let serving = self.agent.serving()?;
        let field = |name| serving.number(name).map_or_else(|| "?".to_owned(), number);
        let [v4, v6] = NODE_ADDRESSES;
        Ok(vec![
            format!("node     node-a with {v4} and {v6}, a network namespace"),
            format!(
                "pods     {} that serve HTTP, TCP and UDP, one that sends; a network namespace \
                 and a cgroup each",
                self.pods.len()
            ),
            format!("cgroup   {}", self.world.cgroup().path().display()),
            "cluster  tests/data/cluster-mixed.yaml: three nodes, as kubectl printed them"
                .to_owned(),
            format!(
                "agent    {}{}",
                short(proxy_harness::agent::path()?).display(),
                if cfg!(debug_assertions) {
                    ", not optimised: a release is faster"
                } else {
                    ""
                }
            ),
            format!(
                "         serves {} Service ports as node-a, {:.0} ms after its start, from {} KiB \
                 of maps",
                field("services"),
                serving
                    .decimal("duration_ms")
                    .context("\"serving\" has no duration_ms")?,
                field("maps_kib"),
            ),
            format!(
                "traffic  requests to {} frontends, each on a socket of its own",
                STREAMS.len()
            ),
        ])
    }

    /// Sends one request from the client, apart from the traffic.
    pub(super) fn ask(&mut self, transport: Transport, to: SocketAddr) -> Result<Vec<Attempt>> {
        self.asker.send(transport, to, 1)
    }

    /// Adds a pod and starts its servers.
    pub(super) fn add_pod(&mut self, spec: &'static PodSpec) -> Result<()> {
        self.pods.push(Pod::start(self.world, spec)?);
        Ok(())
    }

    /// Stops the servers of a pod and takes it away.
    pub(super) fn remove_pod(&mut self, name: &str) -> Result<()> {
        let index = self.pods.iter().position(|pod| pod.name == name);
        let index = index.with_context(|| format!("there is no pod {name}"))?;
        drop(self.pods.remove(index));
        Ok(())
    }

    /// An error if a request failed that must not have.
    pub(super) fn no_failures(&self) -> Result<()> {
        let failures = self.traffic.failures();
        if failures.is_empty() {
            return Ok(());
        }
        let told: Vec<_> = failures
            .iter()
            .map(|(what, count)| format!("{count} × {what}"))
            .collect();
        bail!("requests failed: {}", told.join("; "))
    }
}

/// A path as one would type it here.
fn short(path: &Path) -> &Path {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path)
}

impl Pod {
    fn start(world: &World, spec: &PodSpec) -> Result<Self> {
        let host = world.pod(spec.name, &spec.addresses())?;
        let server = Server::start(&host, &spec.listen())?;
        Ok(Self {
            name: spec.name,
            _server: server,
            _host: host,
        })
    }
}
