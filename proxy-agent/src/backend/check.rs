//! What this host can do: every requirement of every backend, and which backend would be used.
//! Knows what a requirement is, not what any backend needs.

mod text;

use proxy_backend::{BackendKind, Host, Probe, Requirement, Settings};
use proxy_model::Capability;
use serde::Serialize;

use super::choice::{self, Mode};
use crate::backends::ABSENT;

/// What `check` found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// Whether a backend can be used.
    pub usable: bool,
    /// The names of the layers that mode auto would use, the one that decides first first.
    pub layers: Vec<&'static str>,
    /// What these cannot do together.
    pub lacks: Lacks,
    /// What the first of them needs, and what else is worth knowing about this host.
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
    /// Whether mode auto would use it.
    pub chosen: bool,
    /// Why not.
    pub why_not: Option<String>,
    /// What it cannot do; `None` for one that is not part of this version.
    pub lacks: Option<Lacks>,
    /// What it needs of this host.
    pub requirements: Vec<Requirement>,
}

/// What `kind` needs of this host, and what it cannot do here. Changes nothing.
fn probe(kind: BackendKind, settings: &Settings) -> Probe {
    let here = |host: &dyn Host| host.probe(settings);
    kind.host().map_or_else(elsewhere, here)
}

/// Of a backend that programs another system than this one.
fn elsewhere() -> Probe {
    Probe {
        requirements: vec![Requirement {
            name: "another system",
            required: true,
            met: false,
            found: std::env::consts::OS.to_owned(),
            reason: "it programs the kernel of another operating system",
            remedy: None,
        }],
        lacks: Vec::new(),
    }
}

/// Why the backend cannot be used on this host, and what to do; `None` if it can. Changes nothing.
pub fn why_not(kind: BackendKind, settings: &Settings) -> Option<String> {
    probe(kind, settings).why_not_and_what_to_do()
}

/// What a backend cannot do, with what does not work without it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Lacks(#[serde(serialize_with = "choice::capabilities")] pub Vec<Capability>);

impl Check {
    /// Looks at this host for each of `all`. Changes nothing, and disturbs no agent that runs.
    pub fn run(all: &[BackendKind], settings: &Settings) -> Self {
        let each = all.iter().copied();
        Self::of(
            &each
                .map(|kind| (kind, probe(kind, settings)))
                .collect::<Vec<_>>(),
        )
    }

    fn of(probed: &[(BackendKind, Probe)]) -> Self {
        let of = |wanted: BackendKind| {
            let mut all = probed.iter();
            all.find_map(|(kind, probe)| (*kind == wanted).then_some(probe))
        };
        let order: Vec<_> = probed.iter().map(|(kind, _)| *kind).collect();
        let chosen = choice::choose(Mode::Auto, &order, |kind| of(kind)?.why_not());
        let layers = chosen.map_or_else(|_| Vec::new(), |chosen| chosen.layers().to_vec());
        let lacks = |kind: &BackendKind, one: &Capability| {
            of(*kind).is_some_and(|probe| probe.lacks.contains(one))
        };
        let all_lack = |one: &Capability| layers.iter().all(|kind| lacks(kind, one));
        let lacking = Capability::ALL.into_iter().filter(all_lack);
        let lacking = Lacks(lacking.filter(|_| !layers.is_empty()).collect());
        let requirements = layers.first().or(order.first());
        let requirements = requirements.and_then(|kind| Some(of(*kind)?.requirements.clone()));
        let mut backends: Vec<Candidate> = Vec::new();
        for (kind, probe) in probed {
            backends.push(Candidate {
                name: kind.name(),
                chosen: layers.contains(kind),
                why_not: probe.why_not(),
                lacks: Some(Lacks(probe.lacks.clone())),
                requirements: probe.requirements.clone(),
            });
        }
        backends.extend(ABSENT.iter().map(|absent| Candidate {
            name: absent.name,
            chosen: false,
            why_not: Some(absent.why.to_owned()),
            lacks: None,
            requirements: Vec::new(),
        }));
        Self {
            usable: !layers.is_empty(),
            layers: layers.iter().map(|kind| kind.name()).collect(),
            lacks: lacking,
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
    use super::{
        super::toy::{BROKEN, KITE, LACKS, TOY},
        *,
    };

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

    fn probe(requirements: Vec<Requirement>) -> Probe {
        Probe {
            requirements,
            lacks: LACKS.to_vec(),
        }
    }

    #[test]
    fn what_is_only_worth_knowing_makes_no_host_unusable() {
        let requirements = vec![
            requirement("kernel", true, true),
            requirement("BTF", false, false),
        ];
        let check = Check::of(&[(TOY, probe(requirements))]);
        assert!(check.is_usable());
        let chosen = check.backends.iter().filter(|one| one.chosen);
        assert_eq!(chosen.map(|one| one.name).collect::<Vec<_>>(), ["toy"]);
        assert!(
            check
                .backends
                .iter()
                .all(|one| one.chosen == one.why_not.is_none())
        );
    }

    #[test]
    fn the_layers_that_can_be_used_are_chosen_and_what_they_lack_together_is_said() {
        let one = |met| vec![requirement("kernel", true, met)];
        let lacking = |lacks: &[Capability]| Probe {
            requirements: one(true),
            lacks: lacks.to_vec(),
        };
        let all = |broken, lacks: &[Capability]| {
            Check::of(&[
                (KITE, lacking(&[Capability::Sctp])),
                (BROKEN, probe(one(broken))),
                (TOY, lacking(lacks)),
            ])
        };
        let check = all(false, &[Capability::Affinity]);
        assert_eq!(check.layers, ["kite", "toy"]);
        assert_eq!(check.requirements, one(true));
        let text = check.to_text();
        let expected = "Mode auto would use kite over toy.\n\
                        Together they can do all that Services need.\n\
                        Not used:\n  broken  ";
        assert!(text.contains(expected), "{text}");
        let check = all(true, &[]);
        assert_eq!(check.layers, ["kite", "broken"]);
        let text = check.to_text();
        let expected = format!(
            "What these layers cannot do together, and what therefore does not work:\n  sctp  {}\n",
            Capability::Sctp.without()
        );
        assert!(text.contains(&expected), "{text}");
        let json: serde_json::Value = serde_json::from_str(&check.to_json()).unwrap();
        assert_eq!(json["layers"], serde_json::json!(["kite", "broken"]));
        assert_eq!(json["lacks"][0]["capability"], "sctp");
        assert_eq!(json["backends"][2]["chosen"], false);
    }

    #[test]
    fn every_backend_of_the_list_is_looked_at() {
        let check = Check::run(&[BROKEN, TOY], &Settings::default());
        let found = check.backends.iter().map(|one| (one.name, one.chosen));
        let expected = [("broken", false), ("toy", true)];
        assert_eq!(found.take(2).collect::<Vec<_>>(), expected);
        let why_not = check.backends[0].why_not.as_deref();
        assert_eq!(why_not, Some("this host lacks: floor"));
        assert_eq!(check.backends[1].requirements[0].found, "wood");
    }

    #[test]
    fn what_is_missing_is_said_with_its_reason_and_what_to_do() {
        let broken = vec![
            requirement("kernel", true, false),
            requirement("bpffs", true, true),
            requirement("BTF", false, false),
        ];
        let toy = vec![requirement("rules", true, false)];
        let check = Check::of(&[(BROKEN, probe(broken)), (TOY, probe(toy))]);
        assert!(!check.is_usable());
        let names = ABSENT.iter().map(|absent| absent.name.len());
        let width = names.chain(["broken".len()]).max().unwrap();
        let not_used = |name: &str, why: &str| format!("  {name:width$}  {why}");
        let absent = ABSENT.iter();
        let absent = absent.map(|absent| not_used(absent.name, absent.why));
        let absent = absent.collect::<Vec<_>>().join("\n");
        let lacks = |name| {
            let line = |one: &Capability| format!("  {one:8}  {}", one.without());
            let lines: Vec<_> = LACKS.iter().map(line).collect();
            format!(
                "\nWhat the backend {name} cannot do if it is alone:\n{}\n",
                lines.join("\n")
            )
        };
        let expected = "\
The backend broken needs:

NO    kernel  5.4.0
      why: older ones lack hooks
      do:  use a newer one
ok    bpffs   5.4.0
      why: older ones lack hooks
note  BTF     5.4.0
      why: older ones lack hooks
      do:  use a newer one

The backend toy needs:

NO    rules  5.4.0
      why: older ones lack hooks
      do:  use a newer one

No backend can be used.
Not used:
"
        .to_owned()
            + &not_used("broken", "this host lacks: kernel")
            + "\n"
            + &not_used("toy", "this host lacks: rules")
            + "\n"
            + &absent
            + "\n"
            + &lacks("broken")
            + &lacks("toy");
        assert_eq!(check.to_text(), expected);
        let json: serde_json::Value = serde_json::from_str(&check.to_json()).unwrap();
        assert_eq!(json["usable"], false);
        assert_eq!(json["requirements"][0]["remedy"], "use a newer one");
        assert_eq!(json["backends"][0]["whyNot"], "this host lacks: kernel");
        let lacks = json["backends"][0]["lacks"].as_array().unwrap();
        assert_eq!(lacks.len(), LACKS.len());
        assert_eq!(json["backends"][1]["requirements"][0]["name"], "rules");
        assert_eq!(json["backends"][2]["lacks"], serde_json::Value::Null);
    }
}
