//! What this host can do: every requirement of every backend, and which backend would be used.
//! Knows what a requirement is, not what any backend needs.

mod text;

use proxy_model::Capability;
use serde::Serialize;

use super::{choice, ebpf};

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

/// Something that a backend needs of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// What is needed, in a few words.
    pub name: &'static str,
    /// Whether the backend cannot work without it; otherwise it is only worth knowing.
    pub required: bool,
    /// Whether it is there.
    pub met: bool,
    /// What was found.
    pub found: String,
    /// Why it is needed.
    pub reason: &'static str,
    /// What to do where it is missing.
    pub remedy: Option<String>,
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
}

/// What a backend cannot do, with what does not work without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Lacks(#[serde(serialize_with = "choice::capabilities")] pub &'static [Capability]);

/// Backends that are planned: said, so that nobody looks for what is not there.
const NOT_YET: [&str; 4] = ["nftables", "iptables", "ipvs", "windows"];

impl Check {
    /// Looks at this host. Changes nothing, and disturbs no agent that runs.
    pub fn run(options: &ebpf::Options) -> Self {
        Self::of(ebpf::probe(options))
    }

    fn of(requirements: Vec<Requirement>) -> Self {
        let missing: Vec<&str> = requirements
            .iter()
            .filter(|one| one.required && !one.met)
            .map(|one| one.name)
            .collect();
        let usable = missing.is_empty();
        let ebpf = Candidate {
            name: "ebpf",
            chosen: usable,
            why_not: (!usable).then(|| format!("this host lacks: {}", missing.join(", "))),
            lacks: Some(Lacks(ebpf::LACKS)),
        };
        let others = NOT_YET.map(|name| Candidate {
            name,
            chosen: false,
            why_not: Some("not part of this version".to_owned()),
            lacks: None,
        });
        Self {
            usable,
            requirements,
            backends: std::iter::once(ebpf).chain(others).collect(),
        }
    }

    /// Why each backend cannot be used; `None` for the one that can.
    pub fn why_not(self) -> Vec<(&'static str, Option<String>)> {
        let backends = self.backends.into_iter();
        backends.map(|one| (one.name, one.why_not)).collect()
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
        let check = Check::of(vec![
            requirement("kernel", true, true),
            requirement("BTF", false, false),
        ]);
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
    fn what_is_missing_is_said_with_its_reason_and_what_to_do() {
        let check = Check::of(vec![
            requirement("kernel", true, false),
            requirement("bpffs", true, true),
            requirement("BTF", false, false),
        ]);
        assert!(!check.is_usable());
        let lacks = ebpf::LACKS
            .iter()
            .map(|one| format!("  {one:16}  {}\n", one.without()));
        let expected = "\
NO    kernel  5.4.0
      why: older ones lack hooks
      do:  use a newer one
ok    bpffs   5.4.0
      why: older ones lack hooks
note  BTF     5.4.0
      why: older ones lack hooks
      do:  use a newer one

No backend can be used.
  ebpf      this host lacks: kernel
  nftables  not part of this version
  iptables  not part of this version
  ipvs      not part of this version
  windows   not part of this version

What the backend ebpf cannot do yet on any host, and what does not work without it:
"
        .to_owned()
            + &lacks.collect::<Vec<_>>().concat();
        assert_eq!(check.to_text(), expected);
        let json: serde_json::Value = serde_json::from_str(&check.to_json()).unwrap();
        assert_eq!(json["usable"], false);
        assert_eq!(json["requirements"][0]["remedy"], "use a newer one");
        assert_eq!(json["backends"][0]["whyNot"], "this host lacks: kernel");
        let lacks = json["backends"][0]["lacks"].as_array().unwrap();
        assert_eq!(lacks.len(), ebpf::LACKS.len());
        assert_eq!(json["backends"][1]["lacks"], serde_json::Value::Null);
    }
}
