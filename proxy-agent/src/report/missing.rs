//! What the backend lacks and Service ports need, for people: a section below the table.

use std::collections::BTreeSet;

use proxy_model::{Capability, NodeState, ServicePortKey};

use super::{LayerFacts, layers, table};
use crate::backend::choice::Choice;

/// More Service ports than this are counted only.
const SHOWN: usize = 20;

/// Empty, or the section with an empty line before it.
pub(super) fn render(state: &NodeState, choice: &Choice, in_use: &[LayerFacts]) -> String {
    let (mut shown, mut more, mut named) = (Vec::new(), 0_usize, BTreeSet::new());
    for (key, service) in &state.services {
        let missing: Vec<_> = state.missing(key, service, &choice.lacks).collect();
        named.extend(missing.iter().copied());
        if missing.is_empty() {
            continue;
        }
        if shown.len() < SHOWN {
            shown.push((key, missing));
        } else {
            more += 1;
        }
    }
    if shown.is_empty() {
        return String::new();
    }
    let ports = table::of(&["SERVICE PORT", "MISSING"], shown.iter().map(row));
    let mut text = format!(
        "\nNot served in full, because of what {} cannot do:\n\n{ports}",
        layers::in_force(in_use)
    );
    if more > 0 {
        text += &["and ", &more.to_string(), " more\n"].concat();
    }
    text.push('\n');
    for capability in named {
        text += &[capability.as_str(), ": ", capability.without(), "\n"].concat();
    }
    text
}

fn row((key, missing): &(&ServicePortKey, Vec<Capability>)) -> [String; 2] {
    [key.to_string(), table::list(missing)]
}
