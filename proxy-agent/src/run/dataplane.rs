//! What an agent makes of the state: one backend at a time, or nothing in a brain. Opens it, and
//! another one when what Services need asks for it, and says which one serves. Knows neither where
//! the state comes from nor who else wants it.

mod opening;

use proxy_backend::{BackendKind, OpenError, Settings, Surroundings};
use proxy_model::Backend;

pub use self::opening::open;
use super::{
    RunError,
    succession::{Predecessors, Succession},
};
use crate::{
    backend::{
        check,
        choice::{Cause, Choice, Chosen, Mode, NoBackend, Refused, choose},
        none,
    },
    backends,
    config::Run,
    logging::list,
    pipeline::{Alternatives, Demand, NoneLeft, Wanting},
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
            backend: Box::new(none::NoDataplane::default()),
            demand: Demand::WhatItCan,
            alternatives: None,
            on_this_host: false,
        }
    }

    /// The backend that was chosen; with mode auto, the next one where that cannot be opened. What
    /// passes ([`OpenError::Later`]) is an error up to the last try. Blocks; needs a runtime.
    fn open(
        config: &Run,
        surroundings: Surroundings,
        chosen: Chosen,
        last_try: bool,
    ) -> Result<Self, RunError> {
        let predecessors = Predecessors {
            settings: config.backends.clone(),
            take_over: config.take_over,
        };
        let succession = Succession::start(predecessors).map_err(|error| RunError::Io {
            what: "starting a thread to remove what others left".to_owned(),
            error,
        })?;
        let mut candidates = Candidates {
            settings: config.backends.clone(),
            surroundings,
            mode: config.mode,
            succession,
            kind: chosen.kind,
            choice: chosen.choice,
            wanting: Wanting::default(),
            untold: false,
            usable: chosen.usable,
        };
        let backend = candidates.begin(last_try)?;
        Ok(Self {
            choice: candidates.choice.clone(),
            backend,
            demand: match config.mode.only() {
                Some(_) => Demand::WhatItCan,
                None => Demand::Everything,
            },
            alternatives: Some(Box::new(candidates)),
            on_this_host: true,
        })
    }

    /// Tells the log which backend serves, and why.
    pub fn tell(&self) {
        for refused in &self.choice.refused {
            tell_refused(refused.backend, &refused.reason);
        }
        tell(&self.choice, &Wanting::default());
    }
}

fn tell_refused(backend: &str, reason: &str) {
    tracing::info!(backend, reason, "backend refused");
}

/// `wanting` is why it takes the place of another one, where Services are why.
fn tell(choice: &Choice, wanting: &Wanting) {
    tracing::info!(
        backend = choice.backend,
        mode = choice.mode,
        reason = choice.reason,
        lacks = %list(&choice.lacks),
        services = %list(&wanting.services),
        capabilities = %list(&wanting.missing),
        "backend chosen"
    );
}

/// Which backend serves, and why. Where there is something to choose, this host is looked at
/// before anything is opened.
pub fn choose_backend(config: &Run) -> Result<Chosen, NoBackend> {
    choose(config.mode, &config.order, |kind| {
        check::why_not(kind, &config.backends)
    })
}

/// The backends that an agent may use, one at a time.
struct Candidates {
    settings: Settings,
    surroundings: Surroundings,
    mode: Mode,
    /// Takes away what others left.
    succession: Succession,
    /// The one that is in use.
    kind: BackendKind,
    /// The same for whoever is told.
    choice: Choice,
    /// Why another one was opened last.
    wanting: Wanting,
    /// The choice was made after the start was told of, and the log was not told yet.
    untold: bool,
    /// In the order of preference.
    usable: Vec<BackendKind>,
}

impl Candidates {
    /// The backend called `name`: of one that is open, that is all the pipeline knows.
    fn named(&self, name: &str) -> BackendKind {
        BackendKind::named(name, backends::ALL).unwrap_or(self.kind)
    }

    /// Another one is in use.
    fn choose(&mut self, kind: BackendKind, why: (Cause, String), refused: Vec<Refused>) {
        self.kind = kind;
        self.choice = Choice::of(self.mode, kind, why, refused);
    }

    fn open(&self, kind: BackendKind) -> Result<Box<dyn Backend>, OpenError> {
        self.succession.spare(kind);
        let host = kind.host().ok_or_else(|| {
            OpenError::Host(format!(
                "the backend {} programs another system than this one",
                kind.name()
            ))
        })?;
        host.open(&self.settings, &self.surroundings)
    }

    /// Opens the backend that was chosen, or the next one.
    fn begin(&mut self, last_try: bool) -> Result<Box<dyn Backend>, RunError> {
        match self.open(self.kind) {
            Ok(backend) => Ok(backend),
            Err(error @ (OpenError::Locked(_) | OpenError::Held { .. })) => Err(error.into()),
            Err(error @ OpenError::Later(_)) if !last_try => Err(error.into()),
            Err(error) if self.mode.only().is_some() => Err(error.into()),
            Err(error) => {
                let next = self.next_after(error.to_string());
                // The start tells of it.
                self.untold = false;
                Ok(next?)
            }
        }
    }

    /// Refuses the backend in use, for `reason`, and opens the next one that can be used.
    fn next_after(&mut self, reason: String) -> Result<Box<dyn Backend>, NoBackend> {
        let first = self.kind;
        let (mut kind, mut reason) = (first, reason);
        loop {
            self.usable.retain(|one| *one != kind);
            self.choice.refused.insert(
                0,
                Refused {
                    backend: kind.name(),
                    reason,
                },
            );
            let refused = self.choice.refused.clone();
            let Some(&next) = self.usable.first() else {
                return Err(NoBackend(refused));
            };
            match self.open(next) {
                Ok(backend) => {
                    let reason = format!("{} cannot be used on this host", first.name());
                    self.choose(next, (Cause::Instead, reason), refused);
                    self.untold = true;
                    return Ok(backend);
                }
                Err(error) => (kind, reason) = (next, error.to_string()),
            }
        }
    }
}

impl Alternatives for Candidates {
    fn better(&mut self, wanting: Wanting) -> Option<Box<dyn Backend>> {
        let now = self.kind;
        self.wanting = wanting;
        for kind in self.usable.clone() {
            let lacks = |need| kind.lacks().contains(need);
            if kind == now || self.wanting.needs.iter().any(lacks) {
                continue;
            }
            match self.open(kind) {
                Ok(backend) => {
                    // What it lacks on this host, it knows once it is open.
                    let lacks = |need| backend.lacks().contains(need);
                    if !self.wanting.needs.iter().any(lacks) {
                        return Some(backend);
                    }
                }
                Err(error) => tracing::warn!(
                    backend = kind.name(),
                    %error,
                    "backend that would suffice not opened"
                ),
            }
        }
        None
    }

    fn instead(&mut self, reason: &str) -> Result<Box<dyn Backend>, NoneLeft> {
        if self.mode.only().is_some() {
            let reason = reason.to_owned();
            return Err(NoneLeft::Only { reason });
        }
        let refused = self.kind;
        let next = self.next_after(reason.to_owned())?;
        tell_refused(refused.name(), reason);
        Ok(next)
    }

    fn retire_others(&mut self, name: &str) {
        self.succession.serves(self.named(name));
    }

    fn chosen(&mut self, name: &str) -> Option<Choice> {
        let (now, serving) = (self.kind, self.named(name));
        let untold = std::mem::take(&mut self.untold);
        if serving == now {
            return untold.then(|| {
                tell(&self.choice, &Wanting::default());
                self.choice.clone()
            });
        }
        let wanting = std::mem::take(&mut self.wanting);
        let reason = format!("{wanting}, which {} cannot do", now.name());
        let refused = std::mem::take(&mut self.choice.refused);
        self.choose(serving, (Cause::Needed, reason), refused);
        tell(&self.choice, &wanting);
        Some(self.choice.clone())
    }
}
