//! Opens layers: at the start, and later what was not to be had then. Must not know what stopped it.

use std::time::{Duration, Instant};

use proxy_backend::{BackendKind, OpenError, Settings, Surroundings};
use proxy_model::{
    Backend, Capability, ChangeSet, CompareError, Device, Difference, FatalCause, Figure,
    NodeState, PacketLayer, RepairReport, SyncError, SyncReport,
};
use tokio::{task::block_in_place, time::sleep};

use super::Dataplane;
use crate::{backend::choice::Chosen, config::Run, heart::Heart, run::RunError};

/// What is waited after the first failure; the sync machine waits longer after each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// For so long after the start, a holder of what only one agent has may still be one that was killed: a
/// program that it was just starting has its descriptors until that begins.
const MOMENT: Duration = Duration::from_secs(1);
/// Between two looks at whether it has let go.
const LOOK: Duration = Duration::from_millis(20);

/// Opens the layers that are `chosen`.
pub async fn open(
    config: &Run,
    heart: &Heart,
    surroundings: &Surroundings,
    chosen: &Chosen,
) -> Result<Dataplane, RunError> {
    let began = Instant::now();
    loop {
        heart.at("opening the backends");
        let opened =
            block_in_place(|| Dataplane::open(config, surroundings.clone(), chosen.clone()));
        match opened {
            Err(RunError::Open(error)) if error.is_holder() && began.elapsed() < MOMENT => {
                tracing::debug!(%error, "waiting for another agent to end");
                sleep(LOOK).await;
            }
            opened => return opened,
        }
    }
}

/// What every backend is opened with.
#[derive(Clone)]
pub(super) struct Opener {
    pub(super) settings: Settings,
    pub(super) surroundings: Surroundings,
}

impl Opener {
    /// Opens one. Blocks; needs a runtime.
    pub(super) fn open(&self, kind: BackendKind) -> Result<Box<dyn Backend>, OpenError> {
        let host = kind.host().ok_or_else(|| {
            OpenError::Host(format!(
                "the backend {} programs another system than this one",
                kind.name()
            ))
        })?;
        host.open(&self.settings, &self.surroundings)
    }
}

/// A backend that could not be opened yet: each sync tries, and the layers around it serve.
pub(super) struct Unopened {
    kind: BackendKind,
    opener: Opener,
    /// Once it could.
    backend: Option<Box<dyn Backend>>,
    /// What it is to be told then.
    over: PacketLayer,
    /// What an earlier run left of it leads nothing any more.
    stands_aside: bool,
}

impl Unopened {
    pub(super) fn new(opener: &Opener, kind: BackendKind) -> Self {
        Self {
            kind,
            opener: opener.clone(),
            backend: None,
            over: PacketLayer::default(),
            stands_aside: false,
        }
    }

    fn opened(&mut self) -> Result<&mut dyn Backend, SyncError> {
        if self.backend.is_none() {
            let opened = self.opener.open(self.kind);
            if self.over == PacketLayer::Serves && matches!(opened, Err(OpenError::Later(_))) {
                self.stand_aside();
            }
            let mut backend = opened.map_err(|error| as_sync(&error))?;
            backend.lies_over(self.over);
            self.backend = Some(backend);
        }
        let backend = self.backend.as_mut();
        Ok(&mut **backend.expect("it is open, or this function has returned"))
    }
}

impl Unopened {
    /// The layers beneath know what is new; what an earlier run left of this one does not.
    fn stand_aside(&mut self) {
        let Some(host) = self.kind.host().filter(|_| !self.stands_aside) else {
            return;
        };
        match host.stand_aside(&self.opener.settings) {
            Ok(was_there) => {
                self.stands_aside = true;
                if was_there {
                    tracing::warn!(
                        layer = self.kind.name(),
                        text = "what an earlier agent programmed would grow old: new connections are \
                                left to the layer beneath until this one can be opened",
                        "layer stands aside"
                    );
                }
            }
            Err(error) => tracing::error!(
                layer = self.kind.name(),
                %error,
                "layer does not stand aside"
            ),
        }
    }
}

/// Another agent may end, and what passes may pass.
fn as_sync(error: &OpenError) -> SyncError {
    let reason = error.to_string();
    if error.may_pass() {
        return SyncError::Retry {
            reason,
            after: FIRST_WAIT,
        };
    }
    let cause = match error {
        OpenError::Host(_) => FatalCause::Host,
        _ => FatalCause::Other,
    };
    SyncError::Fatal { cause, reason }
}

impl Backend for Unopened {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn lacks(&self) -> &[Capability] {
        let opened = self.backend.as_ref();
        opened.map_or(self.kind.lacks(), |backend| backend.lacks())
    }

    fn sync(&mut self, state: &NodeState, change: &ChangeSet) -> Result<SyncReport, SyncError> {
        self.opened()?.sync(state, change)
    }

    fn differences(&mut self, state: &NodeState) -> Result<Vec<Difference>, CompareError> {
        self.opened()
            .map_err(CompareError::failed)?
            .differences(state)
    }

    fn repair(&mut self, state: &NodeState) -> Result<RepairReport, SyncError> {
        self.opened()?.repair(state)
    }

    fn disturbed(&mut self) -> bool {
        let backend = self.backend.as_mut();
        backend.is_some_and(Backend::disturbed)
    }

    fn tend(&mut self, state: &NodeState) {
        if let Some(backend) = &mut self.backend {
            backend.tend(state);
        }
    }

    fn lies_over(&mut self, beneath: PacketLayer) -> bool {
        self.over = beneath;
        let backend = self.backend.as_mut();
        backend.is_some_and(|backend| backend.lies_over(beneath))
    }

    fn devices(&self) -> Vec<Device> {
        let backend = self.backend.as_ref();
        backend.map_or_else(Vec::new, Backend::devices)
    }

    fn figures(&self) -> Vec<Figure> {
        let backend = self.backend.as_ref();
        backend.map_or_else(Vec::new, Backend::figures)
    }
}
