//! How the kernel differs from the state, layer by layer: as JSON and for people.

use std::fmt::Write as _;

use proxy_model::{CompareError, Difference, ServicePortKey};
use serde::Serialize;

use super::{
    agent::{AgentFacts, line, summary},
    json,
};

/// A layer by its name, and how the kernel differs from what it should hold, or why that cannot be
/// told.
pub type Compared = (&'static str, Result<Vec<Difference>, CompareError>);

#[derive(Serialize)]
struct Kernel<'a> {
    agent: &'a AgentFacts,
    differences: Vec<Different<'a>>,
    unknown: Vec<Unknown>,
}

#[derive(Serialize)]
struct Different<'a> {
    layer: &'static str,
    object: &'a str,
    difference: &'static str,
    service: Option<String>,
    wanted: Option<&'a str>,
    found: Option<&'a str>,
}

#[derive(Serialize)]
struct Unknown {
    layer: &'static str,
    reason: String,
}

/// The layers of which it is known how they differ, with each difference.
fn differences(compared: &[Compared]) -> impl Iterator<Item = (&'static str, &Difference)> {
    let known = compared
        .iter()
        .filter_map(|(layer, result)| Some((*layer, result.as_ref().ok()?)));
    known.flat_map(|(layer, all)| all.iter().map(move |one| (layer, one)))
}

/// The layers of which it is not known, with the reason.
fn unknown(compared: &[Compared]) -> impl Iterator<Item = (&'static str, &CompareError)> {
    let unknown = compared.iter();
    unknown.filter_map(|(layer, result)| Some((*layer, result.as_ref().err()?)))
}

/// Why nothing can be told of any layer; `None` if something can.
pub fn nothing_known(compared: &[Compared]) -> Option<String> {
    let mut reasons: Vec<_> = unknown(compared)
        .map(|(_, error)| error.to_string())
        .collect();
    if reasons.len() < compared.len() {
        return None;
    }
    reasons.dedup();
    Some(reasons.join("; "))
}

/// How the kernel differs from the state, as JSON.
pub fn kernel_to_json(agent: &AgentFacts, compared: &[Compared]) -> String {
    let differences = differences(compared).map(|(layer, one)| Different {
        layer,
        object: &one.object,
        difference: one.kind.as_str(),
        service: one.service.as_ref().map(ServicePortKey::to_string),
        wanted: one.wanted.as_deref(),
        found: one.found.as_deref(),
    });
    let unknown = unknown(compared).map(|(layer, error)| Unknown {
        layer,
        reason: error.to_string(),
    });
    json::pretty(&Kernel {
        agent,
        differences: differences.collect(),
        unknown: unknown.collect(),
    })
}

/// How the kernel differs from the state, for people.
pub fn kernel_to_text(agent: &AgentFacts, compared: &[Compared]) -> String {
    let mut text = String::new();
    let several = compared.len() > 1;
    for (layer, one) in differences(compared) {
        let mut about = String::new();
        if several {
            write!(about, "{layer}: ").expect("writing to a string cannot fail");
        }
        write!(about, "{} {}", one.kind.as_str(), one.object)
            .expect("writing to a string cannot fail");
        if let Some(service) = &one.service {
            write!(about, " of {service}").expect("writing to a string cannot fail");
        }
        line(&mut text, &about);
        for (name, value) in [("wanted", &one.wanted), ("found", &one.found)] {
            if let Some(value) = value {
                line(&mut text, &format!("  {name}: {value}"));
            }
        }
    }
    for (layer, error) in unknown(compared) {
        line(&mut text, &format!("{layer}: not known: {error}"));
    }
    let count = match differences(compared).count() {
        0 if unknown(compared).next().is_some() => {
            "otherwise the kernel matches the state".to_owned()
        }
        0 => "the kernel matches the state".to_owned(),
        1 => {
            "1 difference; it is repaired with the next comparison, or at once on SIGHUP, unless it \
             is refused"
                .to_owned()
        }
        many => format!(
            "{many} differences; they are repaired with the next comparison, or at once on SIGHUP, \
             unless they are refused"
        ),
    };
    line(&mut text, &count);
    line(&mut text, &summary(agent));
    text
}
