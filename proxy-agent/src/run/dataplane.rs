//! What an agent makes of the state: a backend for each layer, or nothing in a brain. Opens them, and
//! another one where one turns out to be of no use, and says which ones serve. Knows neither where
//! the state comes from nor who else wants it.

mod opening;

use proxy_backend::{BackendKind, Given, OpenError, Surroundings};
use proxy_model::Backend;

pub use self::opening::open;
use self::opening::{Opener, Unopened};
use super::{
    RunError,
    succession::{Predecessors, Succession},
};
use crate::{
    backend::{
        check,
        choice::{Choice, Chosen, Missing, NoBackend, choose},
        layers, none,
    },
    backends,
    config::Run,
    logging::list,
    pipeline::{Alternatives, Instead, NoneLeft},
};

/// Layers that are open, and what is to be known of them.
pub struct Dataplane {
    /// Which, and why.
    pub choice: Choice,
    /// What is handed the state; the one that decides first comes first.
    pub layers: Vec<Box<dyn Backend>>,
    /// What may take the place of one.
    pub alternatives: Option<Box<dyn Alternatives>>,
    /// Whether they leave something on this host that is compared with the state, and that load
    /// balancers may be told of.
    pub on_this_host: bool,
}

impl Dataplane {
    /// None: what there is to do, others do.
    pub fn none() -> Self {
        Self {
            choice: none::choice(),
            layers: vec![Box::new(none::NoDataplane::default())],
            alternatives: None,
            on_this_host: false,
        }
    }

    /// The layers that were chosen; the next backend where one cannot be opened. What passes
    /// ([`OpenError::Later`]) is tried again with the syncs of that layer: the others serve
    /// meanwhile. Blocks; needs a runtime.
    fn open(
        config: &Run,
        surroundings: Surroundings,
        mut chosen: Chosen,
    ) -> Result<Self, RunError> {
        let predecessors = Predecessors {
            settings: config.backends.clone(),
            take_over: config.take_over,
        };
        let succession = Succession::start(predecessors).map_err(|error| RunError::Io {
            what: "starting a thread to remove what others left".to_owned(),
            error,
        })?;
        let opener = Opener {
            // One that turns out not to be usable counts too: what an earlier run of it left may
            // translate still.
            settings: layers::under(chosen.layers(), config.backends.clone()),
            surroundings,
        };
        let mut layers: Vec<Box<dyn Backend>> = Vec::new();
        // From the bottom up, as they are synced: a packet backend that another agent holds is found
        // before anything is pinned.
        while let Some(kind) = unopened(&chosen, &layers) {
            succession.spare(kind);
            match opener.open(kind) {
                Ok(backend) => layers.insert(0, backend),
                Err(error) if error.is_holder() => return Err(error.into()),
                Err(OpenError::Later(reason)) => {
                    tracing::error!(
                        layer = kind.name(),
                        reason,
                        text = "tried again with each sync; the other layer serves meanwhile",
                        "layer not opened"
                    );
                    layers.insert(0, Box::new(Unopened::new(&opener, kind)));
                }
                Err(error) => match chosen.instead(kind, error.to_string()) {
                    Ok(_) => {}
                    Err(Missing::Required) => return Err(error.into()),
                    Err(Missing::All(none)) => return Err(none.into()),
                },
            }
        }
        tell_idle_flags(chosen.layers(), &config.backends.given);
        Ok(Self {
            choice: chosen.choice(),
            layers,
            alternatives: Some(Box::new(Candidates {
                opener,
                succession,
                chosen,
            })),
            on_this_host: true,
        })
    }

    /// Tells the log which layers there are, and why.
    pub fn tell(&self) {
        for refused in &self.choice.refused {
            tell_refused(refused.backend, &refused.reason);
        }
        tell(&self.choice);
    }
}

/// The lowest layer that is not open yet.
fn unopened(chosen: &Chosen, open: &[Box<dyn Backend>]) -> Option<BackendKind> {
    let is_open = |kind: &BackendKind| open.iter().any(|one| one.name() == kind.name());
    let mut layers = chosen.layers().iter().rev();
    layers.find(|kind| !is_open(kind)).copied()
}

fn tell_refused(backend: &str, reason: &str) {
    tracing::info!(backend, reason, "backend refused");
}

/// Whoever gave them waits for what does not come.
fn tell_idle_flags(layers: &[BackendKind], given: &Given) {
    for kind in backends::ALL {
        let serves = layers.contains(kind);
        let flags = kind.idle_flags(given, serves);
        if flags.is_empty() {
            continue;
        }
        let flags: Vec<_> = flags.iter().map(|flag| format!("--{flag}")).collect();
        let text = if serves {
            "another flag, or field of the configuration file, turns off what they are about"
        } else {
            "this backend is no layer of this node's dataplane: see --proxy-mode, and `proxy-agent \
             check` for what this host lacks"
        };
        tracing::warn!(
            backend = kind.name(),
            flags = flags.join(" "),
            text,
            "flags without effect"
        );
    }
}

fn tell(choice: &Choice) {
    tracing::info!(
        backend = choice.name(),
        mode = choice.mode,
        reason = choice.reason,
        lacks = %list(&choice.lacks),
        "backend chosen"
    );
}

/// Which layers there are to be, and why. Where there is something to choose, this host is looked at
/// before anything is opened.
pub fn choose_layers(config: &Run) -> Result<Chosen, NoBackend> {
    choose(config.mode, &config.order, |kind| {
        check::why_not(kind, &config.backends)
    })
}

/// The backends that an agent may use.
struct Candidates {
    opener: Opener,
    /// Takes away what others left.
    succession: Succession,
    chosen: Chosen,
}

/// The backend called `name`.
fn named(name: &str) -> BackendKind {
    BackendKind::named(name, backends::ALL).expect("a layer is one of the backends that there are")
}

impl Candidates {
    fn refuse(&mut self, kind: BackendKind, reason: &str) -> Result<Option<BackendKind>, NoneLeft> {
        let spare = self.chosen.instead(kind, reason.to_owned());
        let spare = spare.map_err(|missing| match missing {
            Missing::Required => NoneLeft::Required {
                reason: reason.to_owned(),
            },
            Missing::All(none) => NoneLeft::OfAll(none),
        })?;
        tell_refused(kind.name(), reason);
        Ok(spare)
    }
}

impl Alternatives for Candidates {
    fn instead(&mut self, name: &str, reason: &str) -> Result<Instead, NoneLeft> {
        let (mut kind, mut reason) = (named(name), reason.to_owned());
        let backend = loop {
            let Some(spare) = self.refuse(kind, &reason)? else {
                break None;
            };
            self.succession.spare(spare);
            match self.opener.open(spare) {
                Ok(backend) => break Some(backend),
                Err(error) if error.may_pass() => {
                    break Some(Box::new(Unopened::new(&self.opener, spare)));
                }
                Err(error) => (kind, reason) = (spare, error.to_string()),
            }
        };
        let choice = self.chosen.choice();
        tell(&choice);
        Ok(Instead { backend, choice })
    }

    fn retire_all_but(&mut self, names: &[&'static str]) {
        self.succession
            .serve(names.iter().map(|name| named(name)).collect());
    }
}
