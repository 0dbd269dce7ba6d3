//! `run`: source -> pipeline -> backend, until a signal. Leaves the dataplane in place.

use std::time::Duration;

use thiserror::Error;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::block_in_place,
    time::sleep,
};

use crate::{
    backend::ebpf::{EbpfBackend, OpenError},
    cluster::manifests::{ManifestError, ManifestSource, WatchError, watch},
    config::{Run, Source},
    kernel_log, oom,
    pipeline::Pipeline,
};
use proxy_model::Model;

pub use crate::pipeline::Fatal;

/// Why the agent stopped, or did not start.
#[derive(Debug, Error)]
pub enum RunError {
    /// The manifests cannot be used. Nothing was changed.
    #[error(transparent)]
    Manifests(#[from] ManifestError),
    /// The manifests cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The dataplane cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The dataplane failed for good.
    #[error(transparent)]
    Sync(#[from] Fatal),
    /// The kernel refused a handle that every process gets.
    #[error("{0}")]
    Io(String),
}

/// Serves until SIGTERM or SIGINT.
pub async fn run(config: Run) -> Result<(), RunError> {
    let io = |what: &str, error: &std::io::Error| RunError::Io(format!("{what}: {error}"));
    let mut terminate =
        signal(SignalKind::terminate()).map_err(|error| io("waiting for SIGTERM", &error))?;
    let mut interrupt =
        signal(SignalKind::interrupt()).map_err(|error| io("waiting for SIGINT", &error))?;

    for warning in &config.warnings {
        tracing::warn!(text = warning, "configuration");
    }
    oom::set_score(config.oom_score_adj);
    let Source::Manifests(manifests) = config.source else {
        return Err(RunError::Io("this version reads manifests only".to_owned()));
    };
    // The watch comes first: what changes while the files are read is then seen.
    let mut changes = watch(&manifests)?;
    let mut source = ManifestSource::new(manifests);
    let events = block_in_place(|| source.load())?;
    let mut backend = block_in_place(|| EbpfBackend::open(&config.ebpf))?;
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
    let mut pipeline = Pipeline::new(Model::new(config.node), backend);
    let mut retry = block_in_place(|| pipeline.advance(events))?;
    loop {
        tokio::select! {
            _ = terminate.recv() => break tracing::info!("SIGTERM: stopping; the dataplane stays"),
            _ = interrupt.recv() => break tracing::info!("SIGINT: stopping; the dataplane stays"),
            () = changes.changed() => {}
            () = sleep(retry.unwrap_or(Duration::MAX)), if retry.is_some() => {}
        }
        let poll = block_in_place(|| source.poll());
        for rejected in &poll.rejected {
            tracing::error!(
                file = %rejected.file.display(),
                reason = rejected.reason(),
                "manifest rejected"
            );
        }
        for file in &poll.recovered {
            tracing::info!(file = %file.display(), "manifest accepted again");
        }
        retry = block_in_place(|| pipeline.advance(poll.events))?;
    }
    Ok(())
}
