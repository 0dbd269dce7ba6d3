//! Which layers a node's dataplane has, and why: as it is asked for, and as it is told. How they are
//! chosen: `chosen`.

mod chosen;
#[cfg(test)]
pub(crate) mod fixtures;

use proxy_backend::{BackendKind, Place};
use proxy_model::Capability;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use thiserror::Error;

pub use self::chosen::{Chosen, Missing, choose};
use crate::backends;

/// What `mode` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Nothing: as [`Mode::Auto`].
    #[default]
    Unset,
    /// This backend is required: alone if it is a packet backend, otherwise above one.
    Only(BackendKind),
    /// What this host supports: a backend above, and a packet backend beneath it.
    Auto,
    /// A mode of kube-proxy that has no backend here: as [`Mode::Auto`].
    Other(&'static str),
}

impl Mode {
    /// As `mode` is written; `auto` if nothing was.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Only(kind) => kind.name(),
            Self::Unset | Self::Auto => "auto",
            Self::Other(name) => name,
        }
    }

    /// The backend that it names, if it names one.
    pub const fn required(self) -> Option<BackendKind> {
        match self {
            Self::Only(kind) => Some(kind),
            Self::Unset | Self::Auto | Self::Other(_) => None,
        }
    }
}

/// What led to a choice, for programs: for people there is the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The mode names a backend.
    Named,
    /// These are the first in order that this host supports.
    First,
    /// Another one turned out to be of no use on this host.
    Instead,
    /// Nothing is programmed here.
    Nothing,
}

impl Cause {
    /// Those of a backend.
    pub const ALL: [Self; 3] = [Self::Named, Self::First, Self::Instead];

    /// The name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Named => "named",
            Self::First => "first",
            Self::Instead => "instead",
            Self::Nothing => "nothing",
        }
    }
}

/// A backend, and why it is not used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Its name.
    pub backend: &'static str,
    /// Why not.
    pub reason: String,
}

/// The layers in use, and why. Part of the JSON of `state`: `docs/state-json.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// As configured; `auto` if nothing was.
    pub mode: &'static str,
    /// The names of their backends, the one that decides first first.
    #[serde(rename = "backend", serialize_with = "as_text")]
    pub layers: Vec<&'static str>,
    /// Why these.
    pub reason: String,
    /// The same for metrics.
    #[serde(skip)]
    pub cause: Cause,
    /// What none of them can do.
    #[serde(serialize_with = "capabilities")]
    pub lacks: Vec<Capability>,
    /// The others, where they were looked at and cannot be used.
    pub refused: Vec<Refused>,
}

impl Choice {
    /// The layers for people: `ebpf over nftables`.
    pub fn name(&self) -> String {
        name(&self.layers)
    }

    /// The backend that meets calls, or packets, before a packet backend does.
    pub fn above(&self) -> Option<&'static str> {
        self.at(Place::Above)
    }

    /// The packet backend.
    pub fn beneath(&self) -> Option<&'static str> {
        self.at(Place::Packets)
    }

    fn at(&self, place: Place) -> Option<&'static str> {
        let kind = |name: &&str| BackendKind::named(name, backends::ALL);
        let mut layers = self.layers.iter().copied();
        layers.find(|name| kind(name).is_some_and(|kind| kind.place() == place))
    }
}

/// Layers for people, the one that decides first first: `ebpf over nftables`.
pub fn name(layers: &[&str]) -> String {
    layers.join(" over ")
}

fn as_text<S: Serializer>(layers: &[&str], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&name(layers))
}

/// No backend can be used.
#[derive(Debug, Error)]
#[error(
    "mode auto: no backend can be used on this host: {}; run `proxy-agent check` to see what to do",
    .0.iter().map(|one| format!("{}: {}", one.backend, one.reason)).collect::<Vec<_>>().join("; ")
)]
pub struct NoBackend(pub Vec<Refused>);

/// What a backend cannot do, for programs.
pub(crate) fn capabilities<S: Serializer>(
    lacks: &[Capability],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(lacks.iter().map(|&capability| Lack(capability)))
}

/// A capability, with what does not work without it.
struct Lack(Capability);

impl Serialize for Lack {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut lack = serializer.serialize_struct("Lack", 2)?;
        lack.serialize_field("capability", self.0.as_str())?;
        lack.serialize_field("without", self.0.without())?;
        lack.end()
    }
}
