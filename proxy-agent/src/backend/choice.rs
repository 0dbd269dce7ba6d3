//! Which backend serves, and why. Pure: what the host supports was found out before.

use proxy_backend_ebpf as ebpf;
use proxy_backend_nftables as nftables;
use proxy_model::Capability;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use thiserror::Error;

/// A backend that this version has, in the order in which mode auto prefers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendKind {
    /// eBPF programs on socket hooks.
    Ebpf,
    /// Rules of nftables.
    Nftables,
}

impl BackendKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Ebpf, Self::Nftables];

    /// Its name, in output and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ebpf => "ebpf",
            Self::Nftables => "nftables",
        }
    }

    /// What it cannot do, whatever the host.
    pub const fn lacks(self) -> &'static [Capability] {
        match self {
            Self::Ebpf => ebpf::LACKS,
            Self::Nftables => nftables::LACKS,
        }
    }
}

/// Backends that are planned: said, so that nobody looks for what is not there.
pub const NOT_YET: [&str; 3] = ["iptables", "ipvs", "windows"];

/// Why those are not used.
pub const NOT_PART: &str = "not part of this version";

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
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Only(kind) => kind.as_str(),
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
    pub lacks: &'static [Capability],
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
            backend: kind.as_str(),
            reason,
            cause,
            lacks: kind.lacks(),
            refused,
        }
    }
}

/// No backend can be used.
#[derive(Debug, Error)]
#[error(
    "mode auto: no backend can be used on this host: {}; `proxy-agent check` says what to do",
    .0.iter().map(|one| format!("{}: {}", one.backend, one.reason)).collect::<Vec<_>>().join("; ")
)]
pub struct NoBackend(pub Vec<Refused>);

/// The backend to begin with: what `mode` names, otherwise the first of `order` that this host
/// supports. `probe` says why a backend cannot be used here, `None` if it can; it is asked only
/// where there is something to choose. Also returns which others can be used, in order.
pub fn choose(
    mode: Mode,
    order: &[BackendKind],
    mut probe: impl FnMut(BackendKind) -> Option<String>,
) -> Result<(Choice, Vec<BackendKind>), NoBackend> {
    if let Some(kind) = mode.only() {
        let reason = format!("mode {kind} names it", kind = kind.as_str());
        let choice = Choice::of(mode, kind, (Cause::Named, reason), Vec::new());
        return Ok((choice, vec![kind]));
    }
    let (mut usable, mut refused) = (Vec::new(), Vec::new());
    for &kind in order {
        match probe(kind) {
            None => usable.push(kind),
            Some(reason) => refused.push(Refused {
                backend: kind.as_str(),
                reason,
            }),
        }
    }
    let Some(&first) = usable.first() else {
        return Err(NoBackend(refused));
    };
    let why = match mode {
        Mode::Other(name) => {
            format!("mode {name} has no backend in this version, so as in mode auto: ")
        }
        Mode::Unset => "no mode is set, so as in mode auto: ".to_owned(),
        Mode::Auto | Mode::Only(_) => String::new(),
    };
    let reason = format!("{why}the first that this host supports; what Services need decides");
    let choice = Choice::of(mode, first, (Cause::First, reason), refused);
    Ok((choice, usable))
}

/// What a backend cannot do, for programs.
pub(crate) fn capabilities<S: Serializer>(
    lacks: &&'static [Capability],
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

/// eBPF by its mode, as if it lacked `lacks`.
#[cfg(test)]
pub(crate) fn lacking(lacks: &'static [Capability]) -> Choice {
    let kind = BackendKind::Ebpf;
    Choice {
        lacks,
        ..Choice::of(
            Mode::Only(kind),
            kind,
            (Cause::Named, "mode ebpf names it".to_owned()),
            vec![],
        )
    }
}

/// The same by mode auto, which refused another one.
#[cfg(test)]
pub(crate) fn lacking_alone(lacks: &'static [Capability], refusal: &str) -> Choice {
    Choice {
        mode: "auto",
        reason: "the only one".to_owned(),
        cause: Cause::First,
        refused: vec![Refused {
            backend: "nftables",
            reason: refusal.to_owned(),
        }],
        ..lacking(lacks)
    }
}

#[cfg(test)]
mod tests {
    use BackendKind::{Ebpf, Nftables};

    use super::*;

    #[test]
    fn a_mode_that_names_a_backend_looks_at_no_host() {
        for kind in BackendKind::ALL {
            let mode = Mode::Only(kind);
            let (choice, usable) = choose(mode, &BackendKind::ALL, |_| {
                panic!("{kind:?} needs no probe")
            })
            .unwrap();
            assert_eq!(
                (choice.mode, choice.backend),
                (kind.as_str(), kind.as_str())
            );
            assert!(choice.reason.contains(kind.as_str()), "{}", choice.reason);
            assert_eq!((choice.refused, usable), (vec![], vec![kind]));
        }
    }

    #[test]
    fn the_first_in_order_that_this_host_supports() {
        let probe = |kind| (kind == Ebpf).then(|| "this host lacks: BPF".to_owned());
        for (order, none, expected) in [
            ([Ebpf, Nftables], true, "ebpf"),
            ([Nftables, Ebpf], true, "nftables"),
            ([Ebpf, Nftables], false, "nftables"),
        ] {
            let (choice, usable) =
                choose(
                    Mode::Auto,
                    &order,
                    |kind| {
                        if none { None } else { probe(kind) }
                    },
                )
                .unwrap();
            assert_eq!(choice.backend, expected);
            assert_eq!(usable.len(), if none { 2 } else { 1 });
        }
    }

    #[test]
    fn what_this_host_cannot_is_refused_with_its_reason() {
        let probe = |kind| (kind == Ebpf).then(|| "this host lacks: BPF".to_owned());
        let (choice, _) = choose(Mode::Unset, &BackendKind::ALL, probe).unwrap();
        let json = serde_json::to_value(&choice).unwrap();
        let expected = serde_json::json!({
            "mode": "auto", "backend": "nftables",
            "reason": "no mode is set, so as in mode auto: the first that this host supports; \
                       what Services need decides",
            "lacks": [{
                "capability": "loopback-node-ports",
                "without": Capability::LoopbackNodePorts.without(),
            }],
            // Not what this version has for no host: that is no news at any start.
            "refused": [{"backend": "ebpf", "reason": "this host lacks: BPF"}],
        });
        assert_eq!(json, expected);
        let error = choose(Mode::Auto, &BackendKind::ALL, |_| {
            Some("too old".to_owned())
        });
        let error = error.unwrap_err().to_string();
        for part in ["ebpf: too old", "nftables: too old", "check"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
