//! Rules about where files are and what they are called.

use std::collections::BTreeSet;
use std::path::Path;

use super::{File, Finding};

/// Why an entry of the root directory was refused.
pub(super) const ROOT_RULE: &str = "the root directory has a fixed list of entries, so that it can be taken in at a glance; \
     find a folder for this, or extend the list in xtask/src/tidy/places.rs";

/// Every entry that the root directory may have.
const ROOT_ENTRIES: &[&str] = &[
    ".cargo",
    ".ci",
    ".gitattributes",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "LICENSES",
    "README.md",
    "SECURITY.md",
    "charts",
    "clippy.toml",
    "docs",
    "proxy-agent",
    "proxy-common",
    "proxy-ebpf",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "tests",
    "xtask",
];

/// Module names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &[
    "common", "helper", "helpers", "manager", "misc", "types", "util", "utils",
];

/// Entries of the root directory that are not on the list.
pub(super) fn unexpected_root_entries(paths: &BTreeSet<String>) -> BTreeSet<String> {
    let entries = paths
        .iter()
        .map(|path| path.split('/').next().unwrap_or(path));
    entries
        .filter(|entry| !ROOT_ENTRIES.contains(entry))
        .map(str::to_owned)
        .collect()
}

/// Checks names of Rust modules.
pub(super) fn check(file: &File) -> Vec<Finding> {
    if !file.has_extension("rs") {
        return Vec::new();
    }
    let path = Path::new(&file.path);
    let mut findings = Vec::new();
    if path.ends_with("mod.rs") {
        let text = "a module is `name.rs` beside `name/`, never `mod.rs`";
        findings.push(Finding::Error(text.to_owned()));
    }
    let parts = path.with_extension("");
    let names = parts.iter().filter_map(|part| part.to_str());
    for name in names.filter(|name| EMPTY_NAMES.contains(name)) {
        let text = format!("`{name}` says nothing about what is inside; name the idea");
        findings.push(Finding::Error(text));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(path: &str) -> usize {
        check(&File {
            path: path.to_owned(),
            text: String::new(),
        })
        .len()
    }

    #[test]
    fn new_root_entries_are_noticed() {
        let paths = ["README.md", "docs/a.md", "notes.txt", "scripts/b.sh"].map(str::to_owned);
        let found = unexpected_root_entries(&paths.into());
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            ["notes.txt", "scripts"]
        );
    }

    #[test]
    fn empty_names_are_refused_as_file_and_as_folder() {
        assert_eq!(errors("proxy-agent/src/utils.rs"), 1);
        assert_eq!(errors("proxy-agent/src/common/maps.rs"), 1);
        assert_eq!(errors("proxy-common/src/maps.rs"), 0);
    }

    #[test]
    fn the_old_module_layout_is_refused() {
        assert_eq!(errors("xtask/src/vm/mod.rs"), 1);
        assert_eq!(errors("xtask/src/vm.rs"), 0);
    }
}
