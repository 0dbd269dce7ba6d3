//! What this host can do: every requirement of every backend, and which backend would be used.
//! Knows what a requirement is, not what any backend needs.

mod text;

use proxy_backend::Requirement;
use proxy_backend_ebpf as ebpf;
use proxy_backend_nftables as nftables;
use proxy_model::Capability;
use serde::Serialize;

use super::choice::{self, BackendKind, NOT_PART, NOT_YET};

/// What `check` found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// Whether a backend can be used.
    pub usable: bool,
    /// What the chosen backend needs, and what else is worth knowing about this host.
    pub requirements: Vec<Requirement>,
    /// Every backend, in the order of preference.
    pub backends: Vec<Candidate>,
}

/// A backend, and whether it would be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// The name that `--backend` takes.
    pub name: &'static str,
    /// Whether it is the one.
    pub chosen: bool,
    /// Why not.
    pub why_not: Option<String>,
    /// What it cannot do; `None` for one that is not part of this version.
    pub lacks: Option<Lacks>,
    /// What it needs of this host.
    pub requirements: Vec<Requirement>,
}

impl Candidate {
    /// Whether it can be used, too.
    fn is_spare(&self) -> bool {
        !self.chosen && self.why_not.is_none()
    }
}

fn probe(kind: BackendKind, options: &ebpf::Options) -> Vec<Requirement> {
    match kind {
        BackendKind::Ebpf => ebpf::probe(options),
        BackendKind::Nftables => nftables::probe(),
    }
}

/// Why the backend cannot be used on this host; `None` if it can. Changes nothing.
pub fn why_not(kind: BackendKind, options: &ebpf::Options) -> Option<String> {
    lacking(&probe(kind, options))
}

fn lacking(requirements: &[Requirement]) -> Option<String> {
    let missing = requirements.iter().filter(|one| one.required && !one.met);
    let missing: Vec<&str> = missing.map(|one| one.name).collect();
    (!missing.is_empty()).then(|| format!("this host lacks: {}", missing.join(", ")))
}

/// What a backend cannot do, with what does not work without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Lacks(#[serde(serialize_with = "choice::capabilities")] pub &'static [Capability]);

impl Check {
    /// Looks at this host. Changes nothing, and disturbs no agent that runs.
    pub fn run(options: &ebpf::Options) -> Self {
        Self::of(
            BackendKind::ALL
                .map(|kind| (kind, probe(kind, options)))
                .into(),
        )
    }

    fn of(probed: Vec<(BackendKind, Vec<Requirement>)>) -> Self {
        let mut backends: Vec<Candidate> = Vec::new();
        for (kind, requirements) in probed {
            let why_not = lacking(&requirements);
            let chosen = why_not.is_none() && !backends.iter().any(|one| one.chosen);
            backends.push(Candidate {
                name: kind.as_str(),
                chosen,
                why_not,
                lacks: Some(Lacks(kind.lacks())),
                requirements,
            });
        }
        let chosen = backends.iter().find(|one| one.chosen);
        let usable = chosen.is_some();
        let requirements = chosen.or(backends.first());
        let requirements = requirements.map(|one| one.requirements.clone());
        backends.extend(NOT_YET.map(|name| Candidate {
            name,
            chosen: false,
            why_not: Some(NOT_PART.to_owned()),
            lacks: None,
            requirements: Vec::new(),
        }));
        Self {
            usable,
            requirements: requirements.unwrap_or_default(),
            backends,
        }
    }

    /// Whether a backend can be used.
    pub fn is_usable(&self) -> bool {
        self.usable
    }

    /// The JSON form.
    pub fn to_json(&self) -> String {
        let mut json = serde_json::to_string_pretty(self)
            .expect("names and strings have a JSON form without exception");
        json.push('\n');
        json
    }

    /// The form for people.
    pub fn to_text(&self) -> String {
        text::render(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(name: &'static str, required: bool, met: bool) -> Requirement {
        Requirement {
            name,
            required,
            met,
            found: "5.4.0".to_owned(),
            reason: "older ones lack hooks",
            remedy: (!met).then(|| "use a newer one".to_owned()),
        }
    }

    #[test]
    fn what_is_only_worth_knowing_makes_no_host_unusable() {
        let check = Check::of(vec![(
            BackendKind::Ebpf,
            vec![
                requirement("kernel", true, true),
                requirement("BTF", false, false),
            ],
        )]);
        assert!(check.is_usable());
        let chosen = check.backends.iter().filter(|one| one.chosen);
        assert_eq!(chosen.map(|one| one.name).collect::<Vec<_>>(), ["ebpf"]);
        assert!(
            check
                .backends
                .iter()
                .all(|one| one.chosen == one.why_not.is_none())
        );
    }

    #[test]
    fn the_first_that_can_be_used_is_chosen() {
        let one = |met| vec![requirement("kernel", true, met)];
        let both = [
            (BackendKind::Ebpf, one(false)),
            (BackendKind::Nftables, one(true)),
        ];
        let check = Check::of(both.into());
        assert!(check.is_usable());
        assert_eq!(check.requirements, one(true));
        let text = check.to_text();
        assert!(
            text.contains("The backend nftables would be used"),
            "{text}"
        );
        let both = [
            (BackendKind::Ebpf, one(true)),
            (BackendKind::Nftables, one(true)),
        ];
        let text = Check::of(both.into()).to_text();
        let expected = "The backend ebpf would be used, until a Service needs what it lacks: then \
                        nftables.";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn what_is_missing_is_said_with_its_reason_and_what_to_do() {
        let ebpf = vec![
            requirement("kernel", true, false),
            requirement("bpffs", true, true),
            requirement("BTF", false, false),
        ];
        let nftables = vec![requirement("rules", true, false)];
        let both = [(BackendKind::Ebpf, ebpf), (BackendKind::Nftables, nftables)];
        let check = Check::of(both.into());
        assert!(!check.is_usable());
        let lacks = |all: &[Capability], width| {
            let line = |one: &Capability| format!("  {one:width$}  {}\n", one.without());
            all.iter().map(line).collect::<String>()
        };
        let of_nftables = "
What the backend nftables cannot do yet on any host, and what does not work without it:
";
        let expected = "\
The backend ebpf needs:

NO    kernel  5.4.0
      why: older ones lack hooks
      do:  use a newer one
ok    bpffs   5.4.0
      why: older ones lack hooks
note  BTF     5.4.0
      why: older ones lack hooks
      do:  use a newer one

The backend nftables needs:

NO    rules  5.4.0
      why: older ones lack hooks
      do:  use a newer one

No backend can be used.
  ebpf      this host lacks: kernel
  nftables  this host lacks: rules
  iptables  not part of this version
  ipvs      not part of this version
  windows   not part of this version

What the backend ebpf cannot do yet on any host, and what does not work without it:
"
        .to_owned()
            + &lacks(ebpf::LACKS, 16)
            + of_nftables
            + &lacks(nftables::LACKS, 0);
        assert_eq!(check.to_text(), expected);
        let json: serde_json::Value = serde_json::from_str(&check.to_json()).unwrap();
        assert_eq!(json["usable"], false);
        assert_eq!(json["requirements"][0]["remedy"], "use a newer one");
        assert_eq!(json["backends"][0]["whyNot"], "this host lacks: kernel");
        let lacks = json["backends"][0]["lacks"].as_array().unwrap();
        assert_eq!(lacks.len(), ebpf::LACKS.len());
        assert_eq!(json["backends"][1]["requirements"][0]["name"], "rules");
        assert_eq!(json["backends"][2]["lacks"], serde_json::Value::Null);
    }
}
