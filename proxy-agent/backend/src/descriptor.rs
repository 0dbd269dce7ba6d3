//! One description per backend: all that the agent knows about it, whether or not it is open. To
//! add a backend, implement it in a crate of its own and add it to the agent's list, which `check`,
//! the choice, `render`, `cleanup`, metrics, flags and the reference pages walk.

use std::{net::SocketAddr, path::PathBuf};

use proxy_model::{Backend, Capability, Figure, NodeState, Protocol};

use crate::{
    ConntrackObserver, Flag, FlagMistake, Given, Keeper, OpenError, Requirement, Timeouts,
    connections::Connections,
};

/// A backend, as the agent knows it.
pub trait Descriptor: Sync {
    /// The name for `--proxy-mode` and `--backend-order`: lower case, without spaces.
    fn name(&self) -> &'static str;

    /// What it programs, as a phrase without a period: `a table in …`.
    fn programs(&self) -> &'static str;

    /// Where it stands in a node's dataplane.
    fn place(&self) -> Place;

    /// What it cannot do on any host. What it also cannot do on one particular host is reported by
    /// [`Host::probe`], and by the backend itself once it is open.
    fn lacks(&self) -> &'static [Capability];

    /// What it would program, as text. `over`: a packet backend lies beneath it
    /// ([`Backend::lies_over`]). Pure.
    fn render(&self, state: &NodeState, settings: &Settings, over: bool) -> String;

    /// Which connections it translates packet by packet, above a packet backend, with these flags. While
    /// its programs are not there, their packets reach that one, which must not take them for new
    /// connections.
    fn translates(&self, _given: &Given) -> Translates {
        Translates::Nothing
    }

    /// Its flags.
    fn flags(&self) -> &'static [Flag] {
        &[]
    }

    /// Checks the values of its flags, each by itself: some come from the command line, others from the
    /// configuration file.
    fn check(&self, _given: &Given, _mistakes: &mut Vec<FlagMistake>) {}

    /// Which of its flags were given, and change nothing: because of others, or because it is no layer
    /// (`serves`). Only what somebody may wait for counts.
    fn idle_flags(&self, _given: &Given, _serves: bool) -> Vec<&'static str> {
        Vec::new()
    }

    /// Every figure that it reports, with its initial value: for the reference page, and for the
    /// check of metric names.
    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    /// A reference page of its own, if it has one.
    fn page(&self) -> Option<Page> {
        None
    }

    /// What it does on a host; `None` if it can only render, because this program was built for
    /// another operating system than the one that it programs.
    fn host(&self) -> Option<&'static dyn Host> {
        None
    }
}

/// Where a backend stands in a node's dataplane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Above: it takes what it can where that is cheapest, and passes on the rest.
    Above,
    /// Beneath: it is complete for packets to Services, whatever sends them. A *packet backend*.
    Packets,
}

/// The part of a backend that examines a host and changes it.
pub trait Host: Sync {
    /// What it needs of this host, the simplest first. Changes nothing, and disturbs no running
    /// agent.
    fn probe(&self, settings: &Settings) -> Probe;

    /// Opens it; what is in force stays unchanged until the first sync. Blocks; needs a tokio
    /// runtime.
    fn open(
        &self,
        settings: &Settings,
        surroundings: &Surroundings,
    ) -> Result<Box<dyn Backend>, OpenError>;

    /// Whether what an earlier run left in the kernel redirects connections to `address`. `false`
    /// if that cannot be determined.
    fn is_programmed(&self, settings: &Settings, address: SocketAddr, protocol: Protocol) -> bool;

    /// Whether an earlier run left something on this host, as far as can be determined.
    fn left_something(&self, settings: &Settings) -> bool;

    /// Called when another backend serves: removes what this one left, but for what open connections
    /// need.
    fn retire(&self, settings: &Settings) -> Result<Retired, OpenError>;

    /// Called when this backend cannot be opened for now and a layer beneath serves: what an earlier run
    /// left would lead new connections by a state that gets older. Ends that; what open connections
    /// need stays. Returns whether there was anything.
    fn stand_aside(&self, _settings: &Settings) -> Result<bool, OpenError> {
        Ok(false)
    }

    /// Called by a `cleanup` that waits: has no connection begin any more that its programs decide about,
    /// and returns how many would break if it were removed now.
    fn wind_down(&self, _settings: &Settings) -> Result<u64, OpenError> {
        Ok(0)
    }

    /// An error that names the holder if an agent serves with this backend, whatever its pin
    /// directory.
    fn nobody_serves(&self) -> Result<(), OpenError> {
        Ok(())
    }

    /// Removes all that is Culvert's, for `cleanup`. Returns lines that say what it was.
    fn cleanup(&self, settings: &Settings) -> Result<String, OpenError>;

    /// The connections from outside that its programs translate, with or without a running agent. An
    /// error where there are none to look at, `None` if this backend never has any.
    fn connections(&self, _settings: &Settings) -> Option<Result<Box<dyn Connections>, OpenError>> {
        None
    }

    /// Called when another backend serves: logs what other software has in this one's place, which
    /// may decide before the backend that serves.
    fn tell_of_others(&self, _settings: &Settings) {}

    /// Whether its rules make the kernel translate: then nothing else is needed to keep connections
    /// that others began to translate.
    fn translates(&self) -> bool {
        false
    }

    /// What keeps the kernel translating when the rules of others are removed, if this backend has
    /// it.
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
    /// Why the backend cannot be used here; `None` if it can be.
    pub fn why_not(&self) -> Option<String> {
        let missing: Vec<&str> = self.missing().map(|one| one.name).collect();
        (!missing.is_empty()).then(|| format!("this host lacks: {}", missing.join(", ")))
    }

    /// The same, with what to do about each, or what was found where nobody knows.
    pub fn why_not_and_what_to_do(&self) -> Option<String> {
        let told = |one: &Requirement| {
            let text = one.remedy.as_ref().unwrap_or(&one.found);
            format!("; {}: {text}", one.name)
        };
        let all: String = self.missing().map(told).collect();
        Some(self.why_not()? + &all)
    }

    fn missing(&self) -> impl Iterator<Item = &Requirement> {
        let all = self.requirements.iter();
        all.filter(|one| one.required && !one.met)
    }
}

/// What backends are given at start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// A directory on the BPF file system, for one agent at a time. It identifies the agent, even
    /// if nothing is pinned.
    pub pin_dir: PathBuf,
    /// The bit of the packet mark that marks packets for masquerading, as a mask.
    pub masquerade_mark: u32,
    /// Packets of TCP that conntrack takes for none of a connection are let through.
    pub tcp_be_liberal: bool,
    /// For how long connections are remembered.
    pub timeouts: Timeouts,
    /// The flags of backends that were given.
    pub given: Given,
    /// For a packet backend: which connections a layer above it translates
    /// ([`Descriptor::translates`]).
    pub above: Translates,
    /// For a packet backend: a layer above it decides first.
    pub beneath: bool,
}

/// Which connections from outside a layer translates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Translates {
    /// None.
    #[default]
    Nothing,
    /// All that it can.
    All,
}

/// What became of what a backend left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retired {
    /// There was nothing.
    Nothing,
    /// It is removed: what it was.
    Removed(String),
    /// Connections that are open need it, and no new ones get it: to be asked again until none does.
    Needed(String),
}

/// Observers of what a backend does, besides its reports.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Observes flows that are removed from connection tracking.
    pub conntrack: ConntrackObserver,
}

/// A reference page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its file in `docs/reference`.
    pub file: &'static str,
    /// Its content.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_what_to_do_or_with_what_was_found() {
        let missing = |name, remedy: Option<&str>| Requirement {
            name,
            required: true,
            met: false,
            found: format!("{name} fails"),
            reason: "",
            remedy: remedy.map(str::to_owned),
        };
        let probe = Probe {
            requirements: vec![
                missing("rights", Some("run as root")),
                missing("programs", None),
            ],
            lacks: Vec::new(),
        };
        assert_eq!(
            probe.why_not_and_what_to_do().as_deref(),
            Some(
                "this host lacks: rights, programs; rights: run as root; programs: programs fails"
            )
        );
    }
}
