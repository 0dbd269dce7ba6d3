//! What an agent makes of the state: one backend at a time, or nothing in a brain. Opens it, and
//! another one when what Services need asks for it, and says which one serves. Knows neither where the state comes from nor who else wants it.

use proxy_model::{Backend, Capability};

use super::{
    RunError,
    succession::{Predecessors, Succession},
};
use crate::{
    backend::{
        check,
        choice::{BackendKind, Choice, Mode, NoBackend, choose},
        ebpf::{self, EbpfBackend, OpenError},
        nftables::{self, NftablesBackend},
        none,
    },
    config::Run,
    kernel_log,
    pipeline::{Alternatives, Demand},
};

/// A backend that is open, and what is to be known of it.
pub struct Dataplane {
    /// Which, and why.
    pub choice: Choice,
    /// What is handed the state.
    pub backend: Box<dyn Backend>,
    /// What is expected of it.
    pub demand: Demand,
    /// What may take its place.
    pub alternatives: Option<Box<dyn Alternatives>>,
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
            alternatives: None,
            on_this_host: false,
        }
    }

    /// The backend that was chosen. Blocks; needs a runtime.
    pub fn open(
        config: &Run,
        (choice, usable): (Choice, Vec<BackendKind>),
    ) -> Result<Self, RunError> {
        let predecessors = Predecessors {
            ebpf: config.ebpf.clone(),
            take_over: config.take_over,
        };
        let succession = Succession::start(predecessors).map_err(|error| {
            RunError::Io(format!(
                "starting a thread to remove what others left: {error}"
            ))
        })?;
        let others = Others {
            ebpf: config.ebpf.clone(),
            nftables: config.nftables,
            mode: config.mode,
            succession,
            choice: choice.clone(),
            usable,
        };
        let kind = others.kind();
        Ok(Self {
            choice,
            backend: others.open(kind)?,
            demand: match config.mode.only() {
                Some(_) => Demand::WhatItCan,
                None => Demand::Everything,
            },
            alternatives: Some(Box::new(others)),
            on_this_host: true,
        })
    }

    /// Tells the log which backend serves, and why.
    pub fn tell(&self) {
        for refused in &self.choice.refused {
            tracing::info!(
                backend = refused.backend,
                reason = refused.reason,
                "backend refused"
            );
        }
        tell(&self.choice);
    }
}

fn tell(choice: &Choice) {
    let lacks: Vec<_> = choice.lacks.iter().map(|one| one.as_str()).collect();
    tracing::info!(
        backend = choice.backend,
        mode = choice.mode,
        reason = choice.reason,
        lacks = lacks.join(", "),
        "backend chosen"
    );
}

/// Which backend serves, and why. Where there is something to choose, this host is looked at
/// before anything is opened.
pub fn choose_backend(config: &Run) -> Result<(Choice, Vec<BackendKind>), NoBackend> {
    choose(config.mode, &config.order, |kind| {
        check::why_not(kind, &config.ebpf)
    })
}

/// The backends that an agent may use, one at a time.
struct Others {
    ebpf: ebpf::Options,
    nftables: nftables::Options,
    mode: Mode,
    /// Takes away what others left.
    succession: Succession,
    choice: Choice,
    /// In the order of preference.
    usable: Vec<BackendKind>,
}

impl Others {
    /// The one that is in use.
    fn kind(&self) -> BackendKind {
        let mut all = BackendKind::ALL.into_iter();
        all.find(|kind| kind.as_str() == self.choice.backend)
            .expect("only backends of this version are chosen")
    }

    fn open(&self, kind: BackendKind) -> Result<Box<dyn Backend>, OpenError> {
        self.succession.spare(kind);
        match kind {
            BackendKind::Ebpf => {
                let mut backend = EbpfBackend::open(&self.ebpf)?;
                if self.ebpf.kernel_log {
                    forward_kernel_log(&mut backend)?;
                }
                Ok(Box::new(backend))
            }
            BackendKind::Nftables => Ok(Box::new(NftablesBackend::open(self.nftables)?)),
        }
    }
}

impl Alternatives for Others {
    fn better(&mut self, needs: &[Capability]) -> Option<Box<dyn Backend>> {
        let now = self.kind();
        for kind in self.usable.clone() {
            if kind == now || needs.iter().any(|need| kind.lacks().contains(need)) {
                continue;
            }
            match self.open(kind) {
                Ok(backend) => return Some(backend),
                Err(error) => tracing::warn!(
                    backend = kind.as_str(),
                    %error,
                    "backend that would suffice not opened"
                ),
            }
        }
        None
    }

    fn serves(&mut self, name: &str) -> Option<Choice> {
        let now = self.kind();
        let serving = BackendKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == name);
        let serving = serving.unwrap_or(now);
        self.succession.serves(serving);
        if serving == now {
            return None;
        }
        let reason = format!("Services need what {} cannot do", now.as_str());
        let refused = std::mem::take(&mut self.choice.refused);
        self.choice = Choice::of(self.mode, serving, reason, refused);
        tell(&self.choice);
        Some(self.choice.clone())
    }
}

fn forward_kernel_log(backend: &mut EbpfBackend) -> Result<(), OpenError> {
    let logger = backend
        .take_kernel_log()
        .map_err(|error| OpenError::Other(format!("reading the kernel programs' log: {error}")))?;
    tokio::spawn(async {
        // Serving goes on without: these lines are there to look on, not to work.
        let Err(error) = kernel_log::forward(logger).await;
        tracing::error!(%error, "kernel programs' log lost; restart the agent to read it again");
    });
    Ok(())
}
