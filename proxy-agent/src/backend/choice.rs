//! Which backend serves, and why. Pure: what the host supports was found out before.

use proxy_model::Capability;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use thiserror::Error;

/// What `mode` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Nothing: the default.
    #[default]
    Unset,
    /// The eBPF backend, for what it can do.
    Ebpf,
    /// The nftables backend.
    Nftables,
    /// A backend that this host supports and that does all that Services need.
    Auto,
    /// A mode of kube-proxy that has no backend here: eBPF serves in its place.
    Other(&'static str),
}

impl Mode {
    /// As `mode` is written; `ebpf` if nothing was.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unset | Self::Ebpf => "ebpf",
            Self::Nftables => "nftables",
            Self::Auto => "auto",
            Self::Other(name) => name,
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
    /// As configured; `ebpf` if nothing was.
    pub mode: &'static str,
    /// Its name.
    pub backend: &'static str,
    /// Why this one.
    pub reason: String,
    /// What it cannot do.
    #[serde(serialize_with = "capabilities")]
    pub lacks: &'static [Capability],
    /// The others, where they were looked at.
    pub refused: Vec<Refused>,
}

/// No backend can be used.
#[derive(Debug, Error)]
#[error(
    "mode auto: no backend can be used on this host: {}; `proxy-agent check` says what to do",
    .0.iter().map(|one| format!("{}: {}", one.backend, one.reason)).collect::<Vec<_>>().join("; ")
)]
pub struct NoBackend(pub Vec<Refused>);

/// The backend that serves for `mode`. `probe` says, for [`Mode::Auto`] only, of each backend why
/// it cannot be used here; `None` if it can. It is asked in the order of preference.
pub fn choose(
    mode: Mode,
    ebpf_lacks: &'static [Capability],
    probe: impl FnOnce() -> Vec<(&'static str, Option<String>)>,
) -> Result<Choice, NoBackend> {
    let mut refused = Vec::new();
    let reason = match mode {
        Mode::Unset => "no mode is set, and ebpf is the default".to_owned(),
        Mode::Ebpf => "mode ebpf names it".to_owned(),
        Mode::Nftables => {
            return Ok(Choice {
                mode: mode.as_str(),
                backend: "nftables",
                reason: "mode nftables names it".to_owned(),
                lacks: super::nftables::LACKS,
                refused,
            });
        }
        Mode::Other(name) => {
            format!("mode {name} has no backend in this version: ebpf serves in its place")
        }
        Mode::Auto => {
            let mut supported = false;
            for (backend, why_not) in probe() {
                match why_not {
                    Some(reason) => refused.push(Refused { backend, reason }),
                    None => supported = true,
                }
            }
            if !supported {
                return Err(NoBackend(refused));
            }
            "this host supports it; what Services need is looked at before anything is programmed"
                .to_owned()
        }
    };
    Ok(Choice {
        mode: mode.as_str(),
        backend: "ebpf",
        reason,
        lacks: ebpf_lacks,
        refused,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    const LACKS: &[Capability] = &[Capability::Sctp];

    #[test]
    fn only_auto_looks_at_the_host() {
        for (mode, name) in [
            (Mode::Unset, "ebpf"),
            (Mode::Ebpf, "ebpf"),
            (Mode::Other("ipvs"), "ipvs"),
        ] {
            let choice = choose(mode, LACKS, || panic!("{mode:?} needs no probe")).unwrap();
            assert_eq!((choice.mode, choice.backend), (name, "ebpf"));
            assert!(choice.reason.contains(name), "{}", choice.reason);
            assert_eq!(choice.refused, []);
        }
    }

    #[test]
    fn auto_refuses_what_this_host_cannot_and_says_why() {
        let probe = |ebpf: Option<&str>| {
            let ebpf = ("ebpf", ebpf.map(str::to_owned));
            let nftables = ("nftables", Some("not part of this version".to_owned()));
            choose(Mode::Auto, LACKS, || vec![ebpf, nftables])
        };
        let choice = probe(None).unwrap();
        let json = serde_json::to_value(&choice).unwrap();
        let expected = serde_json::json!({
            "mode": "auto", "backend": "ebpf",
            "reason": "this host supports it; what Services need is looked at before anything is programmed",
            "lacks": [{"capability": "sctp", "without": "SCTP ports are not served"}],
            "refused": [{"backend": "nftables", "reason": "not part of this version"}],
        });
        assert_eq!(json, expected);
        let error = probe(Some("this host lacks: BPF")).unwrap_err().to_string();
        for part in ["ebpf: this host lacks: BPF", "nftables: not part", "check"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
