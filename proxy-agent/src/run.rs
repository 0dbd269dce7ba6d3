//! `run`: source -> pipeline -> backend, until a signal. Leaves the dataplane in place. `brain`: the
//! same without a dataplane.
//!
//! ```text
//! source ──Message──┐            ┌──> sinks
//! admin ───Query────┼─> owner { pipeline } ──> backend
//! signals, timers ──┤            └──> serving (metrics, health)
//! configuration file┘
//! ```

mod addresses;
mod anew;
mod config_file;
mod dataplane;
mod dry_run;
mod life;
mod listeners;
mod observed;
mod owner;
mod reload;
mod signals;
mod source;
mod succession;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use proxy_api::{
    Replica, client,
    server::{ListenError, socket::SocketError},
};
use proxy_backend::{ConntrackObserver, OpenError, Settings as BackendSettings, Surroundings};
use proxy_model::{
    Capability, FrontendKind, Model, NodePortSelection, NodeState, Protocol, Settings,
};
use thiserror::Error;
use tokio::{runtime, sync::mpsc, task::block_in_place};

use self::{
    config_file::Concerned,
    dataplane::{Dataplane, choose_layers},
    observed::Observer,
    owner::{Inbox, Origin, Owner},
    signals::Order,
    source::Source,
};
use crate::{
    admin::server::Socket,
    backend::choice::NoBackend,
    backends,
    cluster::{
        brain,
        kube::{self, ConnectError},
        manifests::ManifestError,
    },
    config::{self, Agent, Run},
    heart::Heart,
    host::settings::apply,
    kept::keep,
    memory, oom,
    open_files::OpenFilesError,
    pipeline::{Desired, Pipeline},
    serving::{self, Clients, Conntrack, Serving, ServingError},
    sinks::{
        Sink, Sinks,
        file::{Destination, Ending, FileSink},
    },
    watch::WatchError,
};

pub use self::{
    anew::{Anew, handed_over},
    config_file::ConfigFile,
    life::{End, Handle, serve},
    reload::Configuration,
    signals::hold as hold_signals,
};
pub use crate::pipeline::Fatal;

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
    /// Clients cannot come in where they should. Nothing was changed.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Mode auto found no backend for this host. Nothing was changed.
    #[error(transparent)]
    NoBackend(#[from] NoBackend),
    /// Another agent serves here.
    #[error(transparent)]
    Served(SocketError),
    /// The dataplane cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The dataplane failed for good.
    #[error(transparent)]
    Sync(#[from] Fatal),
    /// Health or metrics cannot be served, and the user wants that to be fatal.
    #[error(transparent)]
    Serving(#[from] ServingError),
    /// A part that nothing works without met a defect.
    #[error(
        "the agent panicked: {0}; this is a defect, please report it with the log. What is in the \
         kernel stays in force"
    )]
    Panicked(String),
    /// The source ended by itself.
    #[error("the source of cluster objects ended: this is a defect, please report it with the log")]
    SourceEnded,
    /// This process may not have enough files open to serve.
    #[error(transparent)]
    OpenFiles(#[from] OpenFilesError),
    /// The kernel refused a handle that every process gets.
    #[error("{what}: {error}")]
    Io {
        /// What it was for.
        what: String,
        /// Why not.
        error: io::Error,
    },
}

/// Serves until SIGTERM or SIGINT, or until a change of `file`, of which `config` is, takes another start.
pub async fn run(config: Run, file: Option<ConfigFile>, handle: Handle) -> Result<End, RunError> {
    let file = file.map(|file| (file, Configuration::Run(Box::new(config.clone()))));
    let heart = Arc::clone(&handle.heart);
    warn_of_configuration(&config.agent);
    heart.at("choosing the backends");
    let chosen = block_in_place(|| choose_layers(&config))?;
    let masquerades = !chosen.choice().lacks.contains(&Capability::Masquerade);
    if config.agent.model.traffic.masquerade_all && !masquerades {
        let text = "masqueradeAll: true: none of the layers in use masquerades, and endpoints see the \
                    true source";
        tracing::warn!(text, "configuration");
    }
    let programmed = programmed(&config.backends);
    heart.at("opening the addresses of the node API");
    let listeners = listeners::open(&config.agent.listen).await?;
    let source = open_source(&config.agent, &heart, &chosen.choice().lacks, programmed)?;
    let counted = Conntrack::new();
    let of_backend = counted.clone();
    let surroundings = Surroundings {
        conntrack: ConntrackObserver::new(move |family, deleted, took| {
            of_backend.cleaned(family, deleted, took);
        }),
    };
    let dataplane = dataplane::open(&config, &heart, &surroundings, &chosen).await?;
    // Only now: where another agent serves, this is its host.
    heart.at("setting the limits and timeouts of connection tracking");
    block_in_place(|| apply::apply_and_tell(&config.host));
    heart.at("opening the admin socket");
    let socket = Socket::open_unless_served(&config.agent.admin_socket).await;
    // Not every backend has a lock of its own.
    let socket = match socket {
        Err(error) if error.error.kind() == io::ErrorKind::AddrInUse => {
            return Err(RunError::Served(error));
        }
        socket => socket,
    };
    let sockets = Sockets {
        admin: socket,
        node_api: listeners,
    };
    let dataplane = (dataplane, counted);
    live(config.agent, file, source, dataplane, sockets, handle).await
}

/// Whether an earlier run, or this one, serves an address already.
fn programmed(settings: &BackendSettings) -> impl Fn(SocketAddr) -> bool + Send + Sync + 'static {
    let settings = settings.clone();
    move |address| {
        let mut hosts = backends::ALL.iter().filter_map(|kind| kind.host());
        hosts.any(|host| host.is_programmed(&settings, address, Protocol::Tcp))
    }
}

/// Computes the state for backends elsewhere, until SIGTERM or SIGINT, or until a change of `file`, of
/// which `config` is, takes another start.
pub async fn brain(
    config: Agent,
    file: Option<ConfigFile>,
    handle: Handle,
) -> Result<End, RunError> {
    let file = file.map(|file| (file, Configuration::Brain(Box::new(config.clone()))));
    let heart = Arc::clone(&handle.heart);
    warn_of_configuration(&config);
    heart.at("opening the addresses of the node API");
    // Whether the address of the API server is served here, this process cannot know.
    let listeners = listeners::open(&config.listen).await?;
    let dataplane = Dataplane::none();
    let source = open_source(&config, &heart, &dataplane.choice.lacks, |_| false)?;
    heart.at("opening the admin socket");
    let socket = Socket::open_unless_served(&config.admin_socket).await;
    let sockets = Sockets {
        admin: socket,
        node_api: listeners,
    };
    live(
        config,
        file,
        source,
        (dataplane, Conntrack::new()),
        sockets,
        handle,
    )
    .await
}

/// The sockets that an agent is reached at.
struct Sockets {
    /// For `state` and `explain`.
    admin: Result<Socket, SocketError>,
    /// For clients of the node API.
    node_api: Vec<listeners::Open>,
}

fn warn_of_configuration(config: &Agent) {
    for warning in &config.warnings {
        tracing::warn!(text = warning, "configuration");
    }
}

/// The life of an agent whose parts are ready.
async fn live(
    config: Agent,
    file: Option<(ConfigFile, Configuration)>,
    source: Source,
    (dataplane, conntrack): (Dataplane, Conntrack),
    sockets: Sockets,
    handle: Handle,
) -> Result<End, RunError> {
    dataplane.tell();
    for note in &config.notes {
        tracing::info!(text = note, "configuration note");
    }
    oom::set_score(config.oom_score_adj);
    let (sender, messages) = mpsc::channel(source.queue());
    // Kept here too: the owner listens to it whether or not there is a socket.
    let (asking, queries) = mpsc::channel(QUERIES);
    if let Err(error) = &sockets.admin {
        // Serving goes on: only `state` and `explain` cannot ask this agent.
        tracing::error!(%error, "admin socket not opened");
    }
    let mut socket = sockets.admin.ok();
    let (path, asked) = (config.admin_socket.clone(), asking.clone());
    keep("admin socket", move || {
        Socket::serve_for_ever(socket.take(), path.clone(), asked.clone())
    });
    let (name, servers) = (source.name(), source.servers().await);
    let events = source.recorder();
    let clients = (!sockets.node_api.is_empty()).then(Clients::new);
    let (serving, figures) = Serving::start(
        &config.serving,
        config.sync_period,
        &dataplane.choice,
        &conntrack,
        serving::Cluster {
            name: name.clone(),
            figures: source.collectors(),
            events: events.clone(),
        },
        clients.clone(),
        Arc::clone(&handle.heart),
    )
    .await?;
    let concerned = Concerned {
        owner: handle.tell,
        serving: Arc::clone(&serving),
        events: events.clone(),
    };
    let (sinks, ending) = open_sinks(config.output, sockets.node_api, clients.as_deref())?;
    let here = dataplane.on_this_host;
    let (link, nodes) = (source.link(), source.nodes());
    let (desired, node_ports) = if link.is_some() {
        // The brain has chosen, and says which addresses they are.
        (Replica::new().into(), NodePortSelection::Primary)
    } else {
        // Elsewhere, those of the Node object stand in.
        if config.on_its_node {
            addresses::follow(&sender).await;
        }
        let node_ports = config.model.node_ports.clone();
        let model = Settings {
            reserved: servers.clone(),
            ..config.model
        };
        (Desired::from(Model::new(model)), node_ports)
    };
    tokio::spawn(source.run(sender));
    let pipeline =
        Pipeline::new(desired, dataplane.layers).with_alternatives(dataplane.alternatives);
    let owner = Owner::new(
        pipeline,
        sinks,
        Observer::new(
            serving,
            here.then_some(node_ports),
            events,
            config.sync_period,
        ),
        dataplane.choice,
        Origin {
            name,
            link,
            nodes,
            reports: here,
        },
    );
    let inbox = Inbox {
        messages,
        queries,
        figures,
        orders: handle.orders,
    };
    let first = |state: &NodeState| {
        warn_of_circle(state, &servers);
        memory::give_back();
    };
    let sync_period = here.then_some(config.sync_period);
    handle.heart.live();
    config_file::follow(file, concerned);
    let ended = owner.run(inbox, sync_period, first).await;
    if let Some(ending) = ending {
        block_in_place(|| ending.wait(LAST_STATE));
    }
    let signal = match ended? {
        Order::Anew(configuration) => return Ok(End::Anew(configuration)),
        Order::Stop(signal) => signal,
        order => unreachable!("{order:?} ends nothing"),
    };
    let rest = if here { "; the dataplane stays" } else { "" };
    tracing::info!("{signal}: stopping{rest}");
    Ok(End::Stopped)
}

/// Where the state goes besides the backend, and what to wait for in the end.
fn open_sinks(
    output: Option<Destination>,
    listeners: Vec<listeners::Open>,
    clients: Option<&Clients>,
) -> Result<(Sinks, Option<Ending>), RunError> {
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    let mut waiting = None;
    if let Some(output) = output {
        let name = output.to_string();
        let (file, ending) = FileSink::start(output).map_err(|error| RunError::Io {
            what: format!("starting to write the state to {name}"),
            error,
        })?;
        sinks.push(Box::new(file));
        waiting = Some(ending);
    }
    if let Some(clients) = clients {
        let publisher = clients.publisher().clone();
        sinks.push(Box::new(listeners::serve(listeners, publisher)));
    }
    Ok((Sinks::new(sinks), waiting))
}

/// Opens it, which may mean to read files and to start programs.
fn open_source(
    config: &Agent,
    heart: &Heart,
    lacks: &[Capability],
    already_programmed: impl Fn(SocketAddr) -> bool + Send + Sync + 'static,
) -> Result<Source, RunError> {
    match &config.source {
        config::SourceOptions::Manifests(paths) => {
            heart.at("reading the manifests");
            Source::manifests(paths.clone())
        }
        config::SourceOptions::ApiServer {
            kubeconfig,
            masters,
        } => {
            let options = kube::ApiServerOptions {
                kubeconfig: kubeconfig.clone(),
                masters: masters.iter().map(ToString::to_string).collect(),
                already_programmed: Arc::new(already_programmed),
                ..kube::ApiServerOptions::new(Arc::clone(&config.model.node))
            };
            heart.at(
                "reading the kubeconfig, or getting credentials from the program that it names",
            );
            // It blocks for as long as that program takes.
            let open = || runtime::Handle::current().block_on(kube::ApiServerSource::new(options));
            let source = block_in_place(open)?;
            Ok(Source::Kube(Box::new(source)))
        }
        config::SourceOptions::Brain(brain) => {
            let options = client::ClientOptions {
                target: brain.target.clone(),
                tls: brain.tls.clone(),
                token_file: brain.token_file.clone(),
                name: brain.client_name.clone(),
                lacks: lacks.to_vec(),
            };
            let source = brain::BrainSource::new(options, brain.node.clone());
            Ok(Source::Brain(Box::new(source)))
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
                text = "after a reboot, nothing serves this address until this agent does; give \
                        the API server's own address (--master, or the kubeconfig)",
                "API server behind a Service of this cluster"
            );
        }
    }
}
