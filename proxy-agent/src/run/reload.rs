//! What a changed configuration asks for. Pure: knows neither files nor how anything is applied.

use std::time::Duration;

use serde_json::Value;

use crate::config::{Agent, Run};

/// All that an agent is configured with.
#[derive(Debug, Clone, PartialEq)]
pub enum Configuration {
    /// With a dataplane.
    Run(Box<Run>),
    /// Without one.
    Brain(Box<Agent>),
}

impl Configuration {
    /// What every agent has.
    pub const fn agent(&self) -> &Agent {
        match self {
            Self::Run(run) => &run.agent,
            Self::Brain(agent) => agent,
        }
    }

    const fn agent_mut(&mut self) -> &mut Agent {
        match self {
            Self::Run(run) => &mut run.agent,
            Self::Brain(agent) => agent,
        }
    }
}

/// How a configuration comes into force.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// It is in force.
    Nothing,
    /// While the agent serves.
    Live(Live),
    /// The process has to execute itself anew.
    Anew,
}

/// What changes while the agent serves, besides what is shown of the configuration.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// kube-proxy's verbosity; 0 where nothing asks for any.
    pub verbosity: Option<i32>,
    /// How often the kernel is compared with the state.
    pub sync_period: Option<Duration>,
}

/// What it takes to bring `wanted` into force in an agent that has `now`.
pub fn change(now: &Configuration, wanted: &Configuration) -> Change {
    if now == wanted {
        return Change::Nothing;
    }
    let (old, new) = (now.agent(), wanted.agent());
    // With what changes live as it is, nothing else may differ.
    let mut rest = wanted.clone();
    let agent = rest.agent_mut();
    agent.verbosity = old.verbosity;
    agent.sync_period = old.sync_period;
    // These only tell of it.
    agent.warnings.clone_from(&old.warnings);
    agent.notes.clone_from(&old.notes);
    let shown = &old.serving.configuration;
    agent.serving.configuration.clone_from(shown);
    if rest != *now {
        return Change::Anew;
    }
    Change::Live(Live {
        verbosity: (old.verbosity != new.verbosity).then_some(new.verbosity.unwrap_or(0)),
        sync_period: (old.sync_period != new.sync_period).then_some(new.sync_period),
    })
}

/// Paths of the fields that differ, as they are in effect.
pub fn differences(now: &Configuration, wanted: &Configuration) -> Vec<String> {
    let shown = |of: &Configuration| of.agent().serving.configuration.clone();
    let mut paths = Vec::new();
    compare("", &shown(now), &shown(wanted), &mut paths);
    paths
}

fn compare(path: &str, old: &Value, new: &Value, paths: &mut Vec<String>) {
    let (Value::Object(olds), Value::Object(news)) = (old, new) else {
        if old != new {
            paths.push(path.to_owned());
        }
        return;
    };
    let gone = olds.keys().filter(|name| !news.contains_key(*name));
    for name in news.keys().chain(gone) {
        let path = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        let of = |all: &serde_json::Map<String, Value>| all.get(name).cloned().unwrap_or_default();
        compare(&path, &of(olds), &of(news), paths);
    }
}

#[cfg(test)]
mod tests;
