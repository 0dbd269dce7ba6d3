//! The reference page `docs/reference/backends.md`, made from what the backends say of themselves.

use std::fmt::Write as _;

use proxy_backend::BackendKind;
use proxy_model::Capability;

use crate::backends::ABSENT;

/// Every backend of `all`, and what each can do.
pub fn backends(all: &[BackendKind]) -> String {
    let mut page = String::from(
        "# Backends\n\n\
         <!-- Generated from the code by `cargo xtask docs`; do not edit. -->\n\n\
         A backend turns what Services need into objects of the kernel. `--proxy-mode` names the \
         one that serves, or leaves the choice to the agent: `auto` prefers them in the order of \
         this page, or of `--backend-order`, and switches to the next one when a Service needs \
         what the one in use lacks.\n\n\
         `proxy-agent check` shows which of them this host supports; `proxy-agent state` shows \
         which one serves, why, and which Services need what it lacks. \
         [docs/semantics.md](../semantics.md) says what each does to a packet; `proxy-agent render \
         --backend NAME` prints what it would program.\n\n",
    );
    heads(&mut page, &["backend", "what it programs"]);
    for kind in all {
        row(&mut page, &[&format!("`{}`", kind.name()), kind.programs()]);
    }
    for absent in ABSENT {
        row(&mut page, &[&format!("`{}`", absent.name), absent.why]);
    }
    page.push_str(
        "\n## What they can do\n\nIf a backend lacks a capability, the last column says what does \
         not work; the rest of each Service is served. A capability that does not decide (\"no\" \
         in that column) is only reported when it is missing. It is no reason to use another \
         backend, because no backend has it together with all the others.\n\n",
    );
    let names = all.iter().map(|kind| format!("`{}`", kind.name()));
    let names: Vec<String> = names.collect();
    let names = names.iter().map(String::as_str);
    let columns: Vec<&str> = std::iter::once("capability")
        .chain(names)
        .chain(["decides", "without it"])
        .collect();
    heads(&mut page, &columns);
    for capability in Capability::ALL {
        let has = |kind: &BackendKind| {
            if kind.lacks().contains(&capability) {
                "no"
            } else {
                "yes"
            }
        };
        let decides = if capability.decides() { "yes" } else { "no" };
        let name = format!("`{capability}`");
        let cells: Vec<&str> = std::iter::once(name.as_str())
            .chain(all.iter().map(has))
            .chain([decides, capability.without()])
            .collect();
        row(&mut page, &cells);
    }
    page
}

fn heads(page: &mut String, columns: &[&str]) {
    row(page, columns);
    row(page, &vec!["---"; columns.len()]);
}

fn row(page: &mut String, cells: &[&str]) {
    writeln!(page, "| {} |", cells.join(" | ")).expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::{super::toy::TOY, *};

    #[test]
    fn a_backend_of_the_list_is_on_the_page_with_what_it_can_do() {
        let page = backends(&[TOY]);
        for line in [
            "| `toy` | wooden bricks: they meet what falls on them |",
            "| capability | `toy` | decides | without it |",
            "| `sctp` | no | yes | SCTP ports are not served |",
        ] {
            assert!(page.lines().any(|one| one == line), "{page}");
        }
    }
}
