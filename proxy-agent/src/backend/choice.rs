//! Which backend serves, and why. Pure: what the host supports was found out before.

#[cfg(test)]
pub(crate) mod fixtures;

use proxy_backend::BackendKind;
use proxy_model::Capability;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use thiserror::Error;

/// What `mode` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Nothing: as [`Mode::Auto`].
    #[default]
    Unset,
    /// This backend, for what it can do.
    Only(BackendKind),
    /// A backend that this host supports and that does all that Services need.
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
    pub const fn only(self) -> Option<BackendKind> {
        match self {
            Self::Only(kind) => Some(kind),
            Self::Unset | Self::Auto | Self::Other(_) => None,
        }
    }
}

/// What led to a choice, for programs: for people there is the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The mode names it.
    Named,
    /// It is the first in order that this host supports.
    First,
    /// Services need what the one before lacks.
    Needed,
    /// The one before turned out to be of no use on this host.
    Instead,
    /// Nothing is programmed here.
    Nothing,
}

impl Cause {
    /// Those of a backend.
    pub const ALL: [Self; 4] = [Self::Named, Self::First, Self::Needed, Self::Instead];

    /// The name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Named => "named",
            Self::First => "first",
            Self::Needed => "needed",
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

/// The backend in use, and why. Part of the JSON of `state`: `docs/state-json.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// As configured; `auto` if nothing was.
    pub mode: &'static str,
    /// Its name.
    pub backend: &'static str,
    /// Why this one.
    pub reason: String,
    /// The same for metrics.
    #[serde(skip)]
    pub cause: Cause,
    /// What it cannot do.
    #[serde(serialize_with = "capabilities")]
    pub lacks: Vec<Capability>,
    /// The others, where they were looked at and cannot be used.
    pub refused: Vec<Refused>,
}

impl Choice {
    /// The choice of `kind`.
    pub fn of(
        mode: Mode,
        kind: BackendKind,
        (cause, reason): (Cause, String),
        refused: Vec<Refused>,
    ) -> Self {
        Self {
            mode: mode.as_str(),
            backend: kind.name(),
            reason,
            cause,
            lacks: kind.lacks().to_vec(),
            refused,
        }
    }
}

/// No backend can be used.
#[derive(Debug, Error)]
#[error(
    "mode auto: no backend can be used on this host: {}; run `proxy-agent check` to see what to do",
    .0.iter().map(|one| format!("{}: {}", one.backend, one.reason)).collect::<Vec<_>>().join("; ")
)]
pub struct NoBackend(pub Vec<Refused>);

/// What an agent begins with.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// The backend.
    pub kind: BackendKind,
    /// The same for whoever is told.
    pub choice: Choice,
    /// What this host supports as far as it was looked at, in order, the chosen one included.
    pub usable: Vec<BackendKind>,
}

/// The backend to begin with: what `mode` names, otherwise the first of `order` that this host
/// supports. `probe` says why a backend cannot be used here, `None` if it can; it is asked only
/// where there is something to choose.
pub fn choose(
    mode: Mode,
    order: &[BackendKind],
    mut probe: impl FnMut(BackendKind) -> Option<String>,
) -> Result<Chosen, NoBackend> {
    if let Some(kind) = mode.only() {
        let reason = format!("mode {kind} selects it", kind = kind.name());
        let choice = Choice::of(mode, kind, (Cause::Named, reason), Vec::new());
        return Ok(Chosen {
            kind,
            choice,
            usable: vec![kind],
        });
    }
    let (mut usable, mut refused) = (Vec::new(), Vec::new());
    for &kind in order {
        match probe(kind) {
            None => usable.push(kind),
            Some(reason) => refused.push(Refused {
                backend: kind.name(),
                reason,
            }),
        }
    }
    let Some(&first) = usable.first() else {
        return Err(NoBackend(refused));
    };
    let why = match mode {
        Mode::Other(name) => {
            format!("mode {name} has no backend in this version, so mode auto applies: ")
        }
        Mode::Unset => "no mode is set, so mode auto applies: ".to_owned(),
        Mode::Auto | Mode::Only(_) => String::new(),
    };
    let reason = format!("{why}the first that this host supports, until Services need another");
    Ok(Chosen {
        kind: first,
        choice: Choice::of(mode, first, (Cause::First, reason), refused),
        usable,
    })
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

#[cfg(test)]
mod tests {
    use super::{
        super::toy::{BROKEN, TOY},
        *,
    };

    const BOTH: [BackendKind; 2] = [TOY, BROKEN];

    #[test]
    fn a_mode_that_names_a_backend_looks_at_no_host() {
        for kind in BOTH {
            let mode = Mode::Only(kind);
            let chosen = choose(mode, &BOTH, |_| panic!("{kind:?} needs no probe")).unwrap();
            let choice = chosen.choice;
            assert_eq!((choice.mode, choice.backend), (kind.name(), kind.name()));
            assert!(choice.reason.contains(kind.name()), "{}", choice.reason);
            assert_eq!((choice.refused, chosen.usable), (vec![], vec![kind]));
            assert_eq!(chosen.kind, kind);
        }
    }

    #[test]
    fn the_first_in_order_that_this_host_supports() {
        let probe = |kind| (kind == TOY).then(|| "this host lacks: bricks".to_owned());
        for (order, none, expected) in [
            ([TOY, BROKEN], true, "toy"),
            ([BROKEN, TOY], true, "broken"),
            ([TOY, BROKEN], false, "broken"),
        ] {
            let probe = |kind| if none { None } else { probe(kind) };
            let chosen = choose(Mode::Auto, &order, probe).unwrap();
            assert_eq!(chosen.choice.backend, expected);
            assert_eq!(chosen.kind.name(), expected);
            assert_eq!(chosen.usable.len(), if none { 2 } else { 1 });
        }
    }

    #[test]
    fn what_this_host_cannot_is_refused_with_its_reason() {
        let probe = |kind| (kind == BROKEN).then(|| "this host lacks: a floor".to_owned());
        let choice = choose(Mode::Unset, &[BROKEN, TOY], probe).unwrap().choice;
        let json = serde_json::to_value(&choice).unwrap();
        let lack = |capability: Capability| {
            serde_json::json!({
                "capability": capability.as_str(),
                "without": capability.without(),
            })
        };
        let expected = serde_json::json!({
            "mode": "auto", "backend": "toy",
            "reason": "no mode is set, so mode auto applies: the first that this host supports, \
                       until Services need another",
            "lacks": [lack(Capability::Sctp), lack(Capability::Affinity)],
            // Not what this version has for no host: that is no news at any start.
            "refused": [{"backend": "broken", "reason": "this host lacks: a floor"}],
        });
        assert_eq!(json, expected);
        let error = choose(Mode::Auto, &BOTH, |_| Some("too old".to_owned()));
        let error = error.unwrap_err().to_string();
        for part in ["toy: too old", "broken: too old", "check"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
