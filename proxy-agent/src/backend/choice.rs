//! Which layers a node's dataplane has, and why. Pure: what the host supports was found out before.

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;

use proxy_backend::{BackendKind, Place};
use proxy_model::Capability;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use thiserror::Error;

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

/// The layers that an agent uses, and what else it may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    mode: Mode,
    /// The one that decides first first.
    layers: Vec<BackendKind>,
    /// Packet backends that this host supports, too, in order.
    spares: Vec<BackendKind>,
    refused: Vec<Refused>,
    cause: Cause,
}

/// The layers to begin with. `mode` names one, or none; the others are the first of `order` that
/// this host supports: one above, and a packet backend. `probe` says why a backend cannot be used
/// here, `None` if it can; the one that `mode` names is not asked about.
pub fn choose(
    mode: Mode,
    order: &[BackendKind],
    mut probe: impl FnMut(BackendKind) -> Option<String>,
) -> Result<Chosen, NoBackend> {
    let mut chosen = Chosen {
        mode,
        layers: mode.required().into_iter().collect(),
        spares: Vec::new(),
        refused: Vec::new(),
        cause: mode.required().map_or(Cause::First, |_| Cause::Named),
    };
    for &kind in order {
        if !chosen.wants(kind) {
            continue;
        }
        match probe(kind) {
            Some(reason) => chosen.note(kind, reason),
            None if kind.place() == Place::Above => chosen.layers.insert(0, kind),
            None => chosen.spares.push(kind),
        }
    }
    chosen.take_spare();
    if chosen.layers.is_empty() {
        return Err(NoBackend(chosen.refused));
    }
    Ok(chosen)
}

impl Chosen {
    /// The layers, the one that decides first first.
    pub fn layers(&self) -> &[BackendKind] {
        &self.layers
    }

    /// The same for whoever is told.
    pub fn choice(&self) -> Choice {
        let all = Capability::ALL.into_iter();
        let lacking = |one: &Capability| self.layers.iter().all(|kind| kind.lacks().contains(one));
        Choice {
            mode: self.mode.as_str(),
            layers: self.layers.iter().map(|kind| kind.name()).collect(),
            reason: self.reason(),
            cause: self.cause,
            lacks: all.filter(lacking).collect(),
            refused: self.refused.clone(),
        }
    }

    /// The layer `kind` cannot be used on this host, for `reason`. Returns the packet backend that
    /// takes its place, if one does. An error if the node cannot do without it; then nothing changed.
    pub fn instead(
        &mut self,
        kind: BackendKind,
        reason: String,
    ) -> Result<Option<BackendKind>, Missing> {
        if self.mode.required() == Some(kind) {
            return Err(Missing::Required);
        }
        let mut rest = self.clone();
        rest.layers.retain(|one| *one != kind);
        rest.note(kind, reason);
        rest.cause = Cause::Instead;
        let spare = if kind.place() == Place::Packets {
            rest.take_spare()
        } else {
            None
        };
        if rest.layers.is_empty() {
            return Err(Missing::All(NoBackend(rest.refused)));
        }
        *self = rest;
        Ok(spare)
    }

    /// Whether `kind` would be another layer.
    fn wants(&self, kind: BackendKind) -> bool {
        // Beneath a packet backend there is nothing to do, and above one that is named nobody asked.
        let is_taken = |place| self.layers.iter().any(|one| one.place() == place);
        let above = kind.place() == Place::Above;
        let has_its_place = above && is_taken(Place::Above);
        !(is_taken(Place::Packets) || has_its_place)
    }

    fn note(&mut self, kind: BackendKind, reason: String) {
        self.refused.push(Refused {
            backend: kind.name(),
            reason,
        });
    }

    /// Takes the next packet backend for the layer beneath the others.
    fn take_spare(&mut self) -> Option<BackendKind> {
        if self.spares.is_empty() {
            return None;
        }
        let spare = self.spares.remove(0);
        self.layers.push(spare);
        Some(spare)
    }

    fn reason(&self) -> String {
        let why = match self.mode {
            Mode::Only(kind) => format!("mode {} selects it: ", kind.name()),
            Mode::Other(name) => {
                format!("mode {name} has no backend in this version, so mode auto applies: ")
            }
            Mode::Unset => "no mode is set, so mode auto applies: ".to_owned(),
            Mode::Auto => String::new(),
        };
        let how = match *self.layers.as_slice() {
            [above, beneath] => format!(
                "{} takes what it can, {} every other packet",
                above.name(),
                beneath.name()
            ),
            [only] if only.place() == Place::Above => {
                format!(
                    "{} alone, because no packet backend can be used",
                    only.name()
                )
            }
            [only] if self.mode.required() == Some(only) => format!("{} alone", only.name()),
            [only] => format!(
                "{} alone, because no backend can be used above it",
                only.name()
            ),
            _ => "none".to_owned(),
        };
        why + &how
    }
}

/// Why a node cannot do without a layer.
#[derive(Debug)]
pub enum Missing {
    /// The mode requires it.
    Required,
    /// It was the last.
    All(NoBackend),
}

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
