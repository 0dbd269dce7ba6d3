//! The reference page `docs/reference/backends.md`, made from what the backends say of themselves.

use std::fmt::Write as _;

use proxy_backend::{BackendKind, Place};
use proxy_model::Capability;

use crate::backends::ABSENT;

/// Every backend of `all`, and what each can do.
pub fn backends(all: &[BackendKind]) -> String {
    let mut page = String::from(
        "# Backends\n\n\
         <!-- Generated from the code by `cargo xtask docs`; do not edit. -->\n\n\
         A backend turns what Services need into objects of the kernel. A node's dataplane has one \
         or two layers, each with a backend: one *above*, which takes what it can where that is \
         cheapest and passes on the rest, and a *packet backend* beneath it, which is complete for \
         whatever is still a packet to a Service. Mode `auto` uses the first of each that this host \
         supports, in the order of this page or of `--backend-order`; a mode that names a packet \
         backend uses that alone; a mode that names one above requires it.\n\n\
         `proxy-agent check` shows which of them this host supports; `proxy-agent state` shows \
         the layers in use, why these, and which Services need what all of them lack. \
         [docs/semantics.md](../semantics.md) says what each does to a packet; `proxy-agent render \
         --backend NAME` prints what it would program.\n\n",
    );
    heads(&mut page, &["backend", "layer", "what it programs"]);
    for kind in all {
        let place = match kind.place() {
            Place::Above => "above",
            Place::Packets => "packet backend",
        };
        let name = format!("`{}`", kind.name());
        row(&mut page, &[&name, place, kind.programs()]);
    }
    for absent in ABSENT {
        row(&mut page, &[&format!("`{}`", absent.name), "", absent.why]);
    }
    page.push_str(
        "\n## What they can do\n\nA node lacks what all its layers lack. The last column says what \
         then does not work; the rest of each Service is served. On one host a backend may lack more, as \
         with a flag that switches a part of it off: `check` and `state` tell.\n\n",
    );
    let names = all.iter().map(|kind| format!("`{}`", kind.name()));
    let names: Vec<String> = names.collect();
    let names = names.iter().map(String::as_str);
    let columns: Vec<&str> = std::iter::once("capability")
        .chain(names)
        .chain(["without it"])
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
        let name = format!("`{capability}`");
        let cells: Vec<&str> = std::iter::once(name.as_str())
            .chain(all.iter().map(has))
            .chain([capability.without()])
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
            "| `toy` | packet backend | wooden bricks: they meet what falls on them |",
            "| capability | `toy` | without it |",
            "| `sctp` | no | SCTP ports are not served |",
        ] {
            assert!(page.lines().any(|one| one == line), "{page}");
        }
    }
}
