//! What would be programmed, as text that `iptables-restore` and `ip6tables-restore` take: stable, and without
//! privileges.

use std::{collections::BTreeSet, fmt::Write as _};

use proxy_model::{IpFamily, NodeState};

use crate::{
    compare::compare,
    facts::{Facts, IptablesOptions},
    saved::Saved,
    wanted::Wanted,
};

/// The input for `iptables-restore` and `ip6tables-restore` that a change comes to, which leads from `before` to
/// `now` and touches no fact of the node; empty where nothing is written.
#[cfg(target_os = "linux")]
pub fn change(before: &NodeState, now: &NodeState, options: IptablesOptions) -> [String; 2] {
    let change = before.changes_to(now);
    [IpFamily::V4, IpFamily::V6].map(|family| {
        let facts = Facts::of(before, family, options);
        crate::plan::follow(&facts, &BTreeSet::new(), before, now, &change).text()
    })
}

/// Renders the tables of both families for `state`.
pub fn render(state: &NodeState, options: IptablesOptions) -> String {
    let mut text = String::new();
    for (family, program) in [
        (IpFamily::V4, "iptables-restore"),
        (IpFamily::V6, "ip6tables-restore"),
    ] {
        let facts = Facts::of(state, family, options);
        let wanted = Wanted::of(&facts, state, &BTreeSet::new());
        let whole = compare(&wanted, &Saved::default()).restore;
        writeln!(text, "# {program} --noflush").expect("writing to a string cannot fail");
        text.push_str(&whole.text());
    }
    text
}
