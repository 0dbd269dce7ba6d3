//! Chooses the layers, and others where one turns out to be of no use. Pure: what the host supports was
//! found out before.

#[cfg(test)]
mod tests;

use proxy_backend::{BackendKind, Place};
use proxy_model::Capability;

use super::{Cause, Choice, Mode, NoBackend, Refused};

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
    /// Where the backends stand that could be chosen from.
    places: Vec<Place>,
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
        places: order.iter().map(|kind| kind.place()).collect(),
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
            [only] => format!("{} alone{}", only.name(), self.why_alone(only)),
            _ => "none".to_owned(),
        };
        why + &how
    }
}

impl Chosen {
    /// Why there is no other layer: empty if nobody asked for one.
    fn why_alone(&self, only: BackendKind) -> &'static str {
        let choice = |place| self.places.contains(&place);
        match only.place() {
            Place::Packets if self.mode.required() == Some(only) => "",
            Place::Packets if choice(Place::Above) => ", because no backend can be used above it",
            Place::Packets => ", because there is none above it to choose from",
            Place::Above if choice(Place::Packets) => ", because no packet backend can be used",
            Place::Above => ", because there is no packet backend to choose from",
        }
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
