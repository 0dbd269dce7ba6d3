//! `run`: source -> pipeline -> backend, until a signal. Leaves the dataplane in place. `brain`: the
//! same without a dataplane.
//!
//! ```text
//! source ──Message──┐            ┌──> sinks
//! admin ───Query────┼─> owner { pipeline } ──> backend
//! signals, timers ──┘            └──> serving (metrics, health)
//! ```

mod addresses;
mod dataplane;
mod observed;
mod owner;
mod signals;
mod source;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use proxy_model::{FrontendKind, Model, NodeState, Protocol};
use thiserror::Error;
use tokio::{sync::mpsc, task::block_in_place};

use self::{
    dataplane::{Dataplane, choose_backend},
    observed::Observer,
    owner::{Inbox, Owner},
    signals::Order,
    source::Source,
};
use crate::{
    admin::server::{Socket, SocketError},
    backend::{
        choice::NoBackend,
        ebpf::{self, OpenError},
    },
    cluster::{
        kube::{self, ConnectError},
        manifests::{ManifestError, WatchError},
    },
    config::{self, Agent, Run},
    memory, oom,
    pipeline::Pipeline,
    serving::{Serving, ServingError},
    sinks::{
        Sinks,
        file::{Ending, FileSink, Output},
    },
};

pub use crate::pipeline::Fatal;

/// Batches between source and owner. A source that is faster than the kernel waits, and its API
/// server with it, so that memory stays bounded.
const BATCHES: usize = 64;
/// Questions that wait for an answer.
const QUERIES: usize = 16;
/// How long the agent waits in the end for the last state to be written.
const LAST_STATE: Duration = Duration::from_secs(2);

/// Why the agent stopped, or did not start.
#[derive(Debug, Error)]
pub enum RunError {
    /// The manifests cannot be used. Nothing was changed.
    #[error(transparent)]
    Manifests(#[from] ManifestError),
    /// The manifests cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The API server cannot be used as configured. Nothing was changed.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Mode auto found no backend for this host. Nothing was changed.
    #[error(transparent)]
    NoBackend(#[from] NoBackend),
    /// The dataplane cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The dataplane failed for good.
    #[error(transparent)]
    Sync(#[from] Fatal),
    /// Health or metrics cannot be served, and the user wants that to be fatal.
    #[error(transparent)]
    Serving(#[from] ServingError),
    /// The source ended by itself.
    #[error("the source of cluster objects ended: this is a defect, please report it with the log")]
    SourceEnded,
    /// The kernel refused a handle that every process gets.
    #[error("{0}")]
    Io(String),
}

/// Serves until SIGTERM or SIGINT.
pub async fn run(config: Run) -> Result<(), RunError> {
    let orders = begin(&config.agent)?;
    let choice = block_in_place(|| choose_backend(&config))?;
    let pin_dir = config.ebpf.pin_dir.clone();
    let programmed = move |address| ebpf::is_programmed(&pin_dir, address, Protocol::Tcp);
    let source = open_source(&config.agent, programmed).await?;
    let dataplane = block_in_place(|| Dataplane::open(&config, choice))?;
    // The lock of the pin directory is the socket's as well: whatever is there is left over.
    let socket = Socket::open(&config.agent.admin_socket);
    live(config.agent, source, dataplane, socket, orders).await
}

/// Computes the state for backends elsewhere, until SIGTERM or SIGINT.
pub async fn brain(config: Agent) -> Result<(), RunError> {
    let orders = begin(&config)?;
    // Whether the address of the API server is served here, this process cannot know.
    let source = open_source(&config, |_| false).await?;
    let socket = Socket::open_unless_served(&config.admin_socket).await;
    live(config, source, Dataplane::none(), socket, orders).await
}

/// What comes before anything else: signals, and what is to be said of the configuration.
fn begin(config: &Agent) -> Result<mpsc::Receiver<Order>, RunError> {
    memory::few_arenas();
    let orders = signals::listen()?;
    for warning in &config.warnings {
        tracing::warn!(text = warning, "configuration");
    }
    Ok(orders)
}

/// The life of an agent whose parts are ready.
async fn live(
    config: Agent,
    source: Source,
    dataplane: Dataplane,
    socket: Result<Socket, SocketError>,
    orders: mpsc::Receiver<Order>,
) -> Result<(), RunError> {
    dataplane.tell();
    for note in &config.notes {
        tracing::info!(text = note, "configuration note");
    }
    oom::set_score(config.oom_score_adj);
    let (sender, messages) = mpsc::channel(BATCHES);
    // Kept here too: the owner listens to it whether or not there is a socket.
    let (asking, queries) = mpsc::channel(QUERIES);
    match socket {
        Ok(socket) => drop(tokio::spawn(socket.serve(asking.clone()))),
        // Serving goes on: only `state` and `explain` cannot ask this agent.
        Err(error) => tracing::error!(%error, "admin socket not opened"),
    }
    let (name, servers) = (source.name(), source.servers());
    let (serving, figures) = Serving::start(
        &config.serving,
        config.sync_period,
        &dataplane.choice,
        source.numbers(),
    )
    .await?;
    addresses::follow(&sender).await;
    tokio::spawn(source.run(sender));
    let (sinks, ending) = open_sinks(config.output)?;
    let here = dataplane.on_this_host;
    let node_ports = here.then(|| config.model.node_ports.clone());
    let model = Model::new(config.model);
    let pipeline = Pipeline::new(model, dataplane.backend, dataplane.demand);
    let owner = Owner::new(
        pipeline,
        sinks,
        Observer {
            serving,
            node_ports,
        },
        dataplane.choice,
        name,
    );
    let inbox = Inbox {
        messages,
        queries,
        figures,
        orders,
    };
    let first = |state: &NodeState| {
        warn_of_circle(state, &servers);
        memory::give_back();
    };
    let sync_period = here.then_some(config.sync_period);
    let ended = owner.run(inbox, sync_period, first).await;
    if let Some(ending) = ending {
        block_in_place(|| ending.wait(LAST_STATE));
    }
    let signal = ended?;
    let rest = if here { "; the dataplane stays" } else { "" };
    tracing::info!("{signal}: stopping{rest}");
    Ok(())
}

/// Where the state goes besides the backend, and what to wait for in the end.
fn open_sinks(output: Option<Output>) -> Result<(Sinks, Option<Ending>), RunError> {
    let Some(output) = output else {
        return Ok((Sinks::default(), None));
    };
    let name = output.to_string();
    let (file, ending) = FileSink::start(output)
        .map_err(|error| RunError::Io(format!("starting to write the state to {name}: {error}")))?;
    Ok((Sinks::new(vec![Box::new(file)]), Some(ending)))
}

async fn open_source(
    config: &Agent,
    already_programmed: impl Fn(SocketAddr) -> bool + Send + Sync + 'static,
) -> Result<Source, RunError> {
    match &config.source {
        config::Source::Manifests(paths) => Source::manifests(paths.clone()),
        config::Source::ApiServer {
            kubeconfig,
            masters,
        } => {
            let options = kube::Options {
                kubeconfig: kubeconfig.clone(),
                masters: masters.iter().map(ToString::to_string).collect(),
                already_programmed: Arc::new(already_programmed),
                ..kube::Options::new(Arc::clone(&config.model.node))
            };
            let source = kube::Source::new(options).await?;
            Ok(Source::Kube(Box::new(source)))
        }
    }
}

/// An agent that reaches the API server through a Service cannot start on a node where nothing
/// serves that Service yet, after a reboot for one.
fn warn_of_circle(state: &NodeState, servers: &[SocketAddr]) {
    for server in servers {
        let holder = state.services.iter().find(|(key, service)| {
            key.protocol == Protocol::Tcp
                && service.frontends.iter().any(|frontend| {
                    frontend.kind == FrontendKind::ClusterIp
                        && (frontend.address, frontend.port) == (Some(server.ip()), server.port())
                })
        });
        if let Some((key, _)) = holder {
            tracing::warn!(
                server = %server,
                service = %key.service,
                text = "after a reboot nothing serves this address until this agent does; name \
                        the API server's own address (--master, or the kubeconfig)",
                "API server behind a Service of this cluster"
            );
        }
    }
}
