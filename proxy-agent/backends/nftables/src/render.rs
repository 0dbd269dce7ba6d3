//! What would be programmed, as text that `nft -f` takes: stable, and without privileges.

use std::fmt::Write as _;

use proxy_model::{IpFamily, NodeState};

use super::{NftablesOptions, TABLE, text::Words, wanted::Wanted};
use crate::sets::Set;

/// Renders the tables of both families for `state`.
pub fn render(state: &NodeState, options: NftablesOptions) -> String {
    let mut text = String::new();
    for family in [IpFamily::V4, IpFamily::V6] {
        table(&mut text, state, family, options).expect("writing to a string cannot fail");
    }
    text
}

fn table(
    text: &mut String,
    state: &NodeState,
    family: IpFamily,
    options: NftablesOptions,
) -> std::fmt::Result {
    let words = Words(family);
    let (wanted, elements) = Wanted::of(state, family, options);
    let mut elements: Vec<_> = elements.into_iter().collect();
    elements.sort_unstable_by_key(|((set, key), _)| (*set, key.in_order(set.key(), family)));
    writeln!(text, "table {} {TABLE} {{", words.ip())?;
    for set in Set::ALL {
        writeln!(text, "\t{} {} {{", Words::keyword(set), set.name())?;
        for line in words.set(set) {
            writeln!(text, "\t\t{line}")?;
        }
        let of_set = elements.iter().filter(|((of, _), _)| *of == set);
        let lines: Vec<_> = of_set
            .map(|((_, key), value)| words.element(set, key, value))
            .collect();
        braced(text, &lines)?;
        writeln!(text, "\t}}\n")?;
    }
    for (ranges, _) in wanted.ranges.values() {
        writeln!(text, "\tset {} {{", ranges.name)?;
        writeln!(text, "\t\t{}", words.ranges_type())?;
        writeln!(text, "\t\tflags interval")?;
        braced(text, &Words::ranges(ranges))?;
        writeln!(text, "\t}}\n")?;
    }
    let rules = wanted.rules();
    // Those that all have first: in the order in which packets enter them, then what they lead to.
    let (mut fixed, mut led_to): (Vec<_>, Vec<_>) = (wanted.fixed.iter())
        .map(|chain| (chain.name, chain.hook))
        .partition(|(_, hook)| hook.is_some());
    led_to.reverse();
    fixed.append(&mut led_to);
    let others = wanted.chains.keys().map(|name| (&**name, None));
    let mut separator = "";
    for (name, hook) in fixed.into_iter().chain(others) {
        writeln!(text, "{separator}\tchain {name} {{")?;
        if let Some(hook) = hook {
            writeln!(text, "\t\t{}", Words::hook(hook))?;
        }
        for rule in &rules[name] {
            writeln!(text, "\t\t{}", words.rule(rule))?;
        }
        writeln!(text, "\t}}")?;
        separator = "\n";
    }
    writeln!(text, "}}")
}

/// Elements, one a line.
fn braced(text: &mut String, lines: &[String]) -> std::fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "\t\telements = {{ {} }}",
        lines.join(",\n\t\t\t     ")
    )
}
