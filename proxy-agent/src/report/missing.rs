//! What the backend lacks and Service ports need, for people: a section below the table.

use proxy_model::{Capability, NodeState, ServicePortKey};

use super::table;
use crate::backend::choice::Choice;

/// More Service ports than this are counted only.
const SHOWN: usize = 20;

/// Empty, or the section with an empty line before it.
pub(super) fn render(state: &NodeState, choice: &Choice) -> String {
    let all = state.services.iter();
    let mut concerned = all.filter_map(|(key, service)| {
        let missing: Vec<_> = service.missing(key, choice.lacks).collect();
        (!missing.is_empty()).then_some((key, missing))
    });
    let shown: Vec<_> = concerned.by_ref().take(SHOWN).collect();
    if shown.is_empty() {
        return String::new();
    }
    let more = concerned.count();
    let ports = table::of(&["SERVICE PORT", "MISSING"], shown.iter().map(row));
    let mut text = format!(
        "\nNot served in full, because the backend {} cannot yet:\n\n{ports}",
        choice.backend
    );
    if more > 0 {
        text += &["and ", &more.to_string(), " more\n"].concat();
    }
    let named = |capability: &&Capability| {
        let mut shown = shown.iter();
        shown.any(|(_, missing)| missing.contains(capability))
    };
    text.push('\n');
    for capability in choice.lacks.iter().filter(named) {
        text += &[capability.as_str(), ": ", capability.without(), "\n"].concat();
    }
    text
}

fn row((key, missing): &(&ServicePortKey, Vec<Capability>)) -> [String; 2] {
    [key.to_string(), table::list(missing)]
}
