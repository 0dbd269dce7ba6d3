//! `run`: source -> pipeline -> backend, until a signal. Leaves the dataplane in place.
//!
//! ```text
//! source ──Message──┐
//! admin ───Query────┼─> owner { pipeline } ──> backend
//! signals, timers ──┘        └──> serving (metrics, health)
//! ```

mod addresses;
mod observed;
mod owner;
mod signals;
mod source;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use proxy_model::{FrontendKind, Model, NodeState, Protocol};
use thiserror::Error;
use tokio::{sync::mpsc, task::block_in_place};

use self::{
    owner::{Inbox, Owner},
    source::Source,
};
use crate::{
    admin::server::Socket,
    backend::{
        check::Check,
        choice::{Choice, Mode, NoBackend, choose},
        ebpf::{self, EbpfBackend, OpenError},
    },
    cluster::{
        kube::{self, ConnectError},
        manifests::{ManifestError, WatchError},
    },
    config::{self, Run},
    kernel_log, memory, oom,
    pipeline::{Demand, Pipeline},
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
    memory::few_arenas();
    let orders = signals::listen()?;
    for warning in &config.warnings {
        tracing::warn!(text = warning, "configuration");
    }
    let choice = block_in_place(|| choose_backend(&config))?;
    let source = open_source(&config).await?;
    let mut backend = block_in_place(|| EbpfBackend::open(&config.ebpf))?;
    tell(&choice);
    for note in &config.notes {
        tracing::info!(text = note, "configuration note");
    }
    oom::set_score(config.oom_score_adj);
    if config.ebpf.kernel_log {
        let logger = backend
            .take_kernel_log()
            .map_err(|error| RunError::Io(format!("reading the kernel programs' log: {error}")))?;
        tokio::spawn(async {
            // Serving goes on without: these lines are there to look on, not to work.
            let Err(error) = kernel_log::forward(logger).await;
            tracing::error!(%error, "kernel programs' log lost; restart the agent to read it again");
        });
    }
    let (sender, messages) = mpsc::channel(BATCHES);
    // Kept here too: the owner listens to it whether or not there is a socket.
    let (asking, queries) = mpsc::channel(QUERIES);
    match Socket::open(&config.admin_socket) {
        Ok(socket) => drop(tokio::spawn(socket.serve(asking.clone()))),
        // Serving goes on: only `state` and `explain` cannot ask this agent.
        Err(error) => tracing::error!(%error, "admin socket not opened"),
    }
    let (name, servers) = (source.name(), source.servers());
    let (serving, figures) = Serving::start(
        &config.serving,
        config.sync_period,
        &choice,
        source.numbers(),
    )
    .await?;
    addresses::follow(&sender).await;
    tokio::spawn(source.run(sender));
    let demand = match config.mode {
        Mode::Auto => Demand::Everything,
        Mode::Unset | Mode::Ebpf | Mode::Other(_) => Demand::WhatItCan,
    };
    let (sinks, ending) = open_sinks(config.output)?;
    let pipeline = Pipeline::new(Model::new(config.model), Box::new(backend), demand);
    let owner = Owner::new(pipeline, sinks, serving, choice, name);
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
    let ended = owner.run(inbox, config.sync_period, first).await;
    if let Some(ending) = ending {
        block_in_place(|| ending.wait(LAST_STATE));
    }
    tracing::info!("{}: stopping; the dataplane stays", ended?);
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

/// Which backend serves, and why. With mode auto, this host is looked at before anything is opened.
fn choose_backend(config: &Run) -> Result<Choice, NoBackend> {
    choose(config.mode, ebpf::LACKS, || {
        Check::run(&config.ebpf).why_not()
    })
}

/// Tells the log which backend serves, and why.
fn tell(choice: &Choice) {
    for refused in &choice.refused {
        tracing::info!(
            backend = refused.backend,
            reason = refused.reason,
            "backend refused"
        );
    }
    let lacks: Vec<_> = choice.lacks.iter().map(|one| one.as_str()).collect();
    tracing::info!(
        backend = choice.backend,
        mode = choice.mode,
        reason = choice.reason,
        lacks = lacks.join(", "),
        "backend chosen"
    );
}

async fn open_source(config: &Run) -> Result<Source, RunError> {
    match &config.source {
        config::Source::Manifests(paths) => Source::manifests(paths.clone()),
        config::Source::ApiServer {
            kubeconfig,
            masters,
        } => {
            let pin_dir = config.ebpf.pin_dir.clone();
            let options = kube::Options {
                kubeconfig: kubeconfig.clone(),
                masters: masters.iter().map(ToString::to_string).collect(),
                already_programmed: Arc::new(move |address| {
                    ebpf::is_programmed(&pin_dir, address, Protocol::Tcp)
                }),
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
