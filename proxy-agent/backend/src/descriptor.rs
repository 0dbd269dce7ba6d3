//! One description for each backend: all that the agent knows of it, whether or not it is open. Who
//! adds a backend describes it so, in a crate of its own, and puts it on the agent's list: `check`,
//! the choice, `render`, `cleanup`, metrics, flags and the reference pages walk that.

use std::{net::SocketAddr, path::PathBuf};

use proxy_model::{Backend, Capability, Figure, NodeState, Protocol};

use crate::{ConntrackObserver, Flag, Given, Keeper, OpenError, Requirement};

/// A backend, as the agent knows it.
pub trait Descriptor: Sync {
    /// The name that `--proxy-mode` and `--backend-order` take: lower case, without spaces.
    fn name(&self) -> &'static str;

    /// What it programs, in a sentence without its first word and its period: `a table in …`.
    fn programs(&self) -> &'static str;

    /// What it cannot do on any host. What one host is short of besides, [`Host::probe`] says, and
    /// the backend itself once it is open.
    fn lacks(&self) -> &'static [Capability];

    /// What it would program, as text. Pure.
    fn render(&self, state: &NodeState, settings: &Settings) -> String;

    /// Its flags.
    fn flags(&self) -> &'static [Flag] {
        &[]
    }

    /// Checks what was given for its flags. A mistake names the flag, and says what to do.
    fn check(&self, _given: &Given, _mistakes: &mut Vec<String>) {}

    /// Every figure that it reports, at its start: for the reference page, and for what checks the
    /// names of metrics.
    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    /// A reference page of its own, if it has one.
    fn page(&self) -> Option<Page> {
        None
    }

    /// What it does on a host; `None` where it can be rendered only, because this program was built
    /// for another system than the one that it programs.
    fn host(&self) -> Option<&'static dyn Host> {
        None
    }
}

/// A backend's part that looks at a host and changes it.
pub trait Host: Sync {
    /// What it needs of this host, the simplest first. Changes nothing, and disturbs no agent that
    /// runs.
    fn probe(&self, settings: &Settings) -> Probe;

    /// Opens it: what serves goes on as it is until the first sync. Blocks; needs a tokio runtime.
    fn open(
        &self,
        settings: &Settings,
        surroundings: &Surroundings,
    ) -> Result<Box<dyn Backend>, OpenError>;

    /// Whether what an earlier run left in the kernel leads connections to `address` somewhere.
    /// `false` where that cannot be told.
    fn is_programmed(&self, settings: &Settings, address: SocketAddr, protocol: Protocol) -> bool;

    /// Whether an earlier run left something on this host, as far as can be told.
    fn left_something(&self, settings: &Settings) -> bool;

    /// Another backend serves: takes away what this one left. Returns what it was, if there was
    /// something.
    fn retire(&self, settings: &Settings) -> Result<Option<String>, OpenError>;

    /// An error that names the holder if an agent serves by it, whatever its pin directory.
    fn nobody_serves(&self) -> Result<(), OpenError> {
        Ok(())
    }

    /// Nobody is to serve any more: takes away all that is Culvert's. Returns lines that say what it
    /// was.
    fn cleanup(&self, settings: &Settings) -> Result<String, OpenError>;

    /// Another backend serves: tells the log of what others have in this one's place, which may
    /// decide before the backend that serves.
    fn tell_of_others(&self, _settings: &Settings) {}

    /// Whether its rules have the kernel translate: then nothing needs to keep what others have begun
    /// to translate.
    fn translates(&self) -> bool {
        false
    }

    /// What keeps the kernel translating when the rules of others go, if this backend has it.
    fn keeper(&self) -> Option<Box<dyn Keeper>> {
        None
    }
}

/// What was found on a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Probe {
    /// What is needed, with what was found.
    pub requirements: Vec<Requirement>,
    /// What the backend cannot do here.
    pub lacks: Vec<Capability>,
}

impl Probe {
    /// Why the backend cannot be used here; `None` if it can.
    pub fn why_not(&self) -> Option<String> {
        let missing = self.requirements.iter();
        let missing = missing.filter(|one| one.required && !one.met);
        let missing: Vec<&str> = missing.map(|one| one.name).collect();
        (!missing.is_empty()).then(|| format!("this host lacks: {}", missing.join(", ")))
    }
}

/// What backends are told at start.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// A directory on the BPF file system; one agent at a time. It names the agent, also where
    /// nothing is pinned.
    pub pin_dir: PathBuf,
    /// The bit of the packet mark that says that a packet is to be masqueraded, as a mask.
    pub masquerade_mark: u32,
    /// What was given for flags of backends.
    pub given: Given,
}

/// Who hears of what a backend does besides its reports.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Hears of flows that are removed from connection tracking.
    pub conntrack: ConntrackObserver,
}

/// A reference page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its file in `docs/reference`.
    pub file: &'static str,
    /// What stands in it.
    pub text: String,
}
