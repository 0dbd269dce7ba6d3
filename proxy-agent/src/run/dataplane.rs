//! What an agent makes of the state: the eBPF backend, or nothing in a brain. Opens it; knows
//! neither where the state comes from nor who else wants it.

use proxy_model::Backend;

use super::RunError;
use crate::{
    backend::{
        check::Check,
        choice::{Choice, Mode, NoBackend, choose},
        ebpf::{self, EbpfBackend, OpenError},
        nftables::NftablesBackend,
        none,
    },
    config::Run,
    kernel_log,
    pipeline::Demand,
};

/// A backend that is open, and what is to be known of it.
pub struct Dataplane {
    /// Which, and why.
    pub choice: Choice,
    /// What is handed the state.
    pub backend: Box<dyn Backend>,
    /// What is expected of it.
    pub demand: Demand,
    /// Whether it leaves something on this host that is compared with the state, and that load
    /// balancers may be told of.
    pub on_this_host: bool,
}

impl Dataplane {
    /// None: what there is to do, others do.
    pub fn none() -> Self {
        Self {
            choice: none::choice(),
            backend: Box::new(none::Nothing::default()),
            demand: Demand::WhatItCan,
            on_this_host: false,
        }
    }

    /// The backend that was chosen. Blocks; needs a runtime.
    pub fn open(config: &Run, choice: Choice) -> Result<Self, RunError> {
        if choice.backend == "nftables" {
            let backend = NftablesBackend::open(config.nftables)
                .map_err(|error| RunError::Open(OpenError::Host(error.to_string())))?;
            return Ok(Self {
                choice,
                backend: Box::new(backend),
                demand: Demand::WhatItCan,
                on_this_host: true,
            });
        }
        let mut backend = EbpfBackend::open(&config.ebpf)?;
        if config.ebpf.kernel_log {
            forward_kernel_log(&mut backend)?;
        }
        Ok(Self {
            choice,
            backend: Box::new(backend),
            demand: match config.mode {
                Mode::Auto => Demand::Everything,
                Mode::Unset | Mode::Ebpf | Mode::Nftables | Mode::Other(_) => Demand::WhatItCan,
            },
            on_this_host: true,
        })
    }

    /// Tells the log which backend serves, and why.
    pub fn tell(&self) {
        let choice = &self.choice;
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
}

/// Which backend serves, and why. With mode auto, this host is looked at before anything is opened.
pub fn choose_backend(config: &Run) -> Result<Choice, NoBackend> {
    choose(config.mode, ebpf::LACKS, || {
        Check::run(&config.ebpf).why_not()
    })
}

fn forward_kernel_log(backend: &mut EbpfBackend) -> Result<(), RunError> {
    let logger = backend
        .take_kernel_log()
        .map_err(|error| RunError::Io(format!("reading the kernel programs' log: {error}")))?;
    tokio::spawn(async {
        // Serving goes on without: these lines are there to look on, not to work.
        let Err(error) = kernel_log::forward(logger).await;
        tracing::error!(%error, "kernel programs' log lost; restart the agent to read it again");
    });
    Ok(())
}
