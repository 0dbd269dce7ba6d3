//! Backends are named in their own folders, in the agent's manifest and in its list of backends: who
//! adds one touches nothing else.

use std::collections::BTreeSet;

use super::{File, Finding};

/// Where backends have their folders.
const FOLDERS: &str = "proxy-agent/backends/";

/// What a backend's folder has, and that of what backends share has not.
const DESCRIPTION: &str = "/src/descriptor.rs";

/// Code that must not know them. Suites may: some are about one backend.
const WITHOUT: &[&str] = &[
    "proxy-agent/api/src/",
    "proxy-agent/backend/src/",
    "proxy-agent/backends/conntrack/src/",
    "proxy-agent/model/src/",
    "proxy-agent/src/",
    "tests/bench/src/",
    "tests/demo/src/",
    "tests/fuzz/src/",
    "tests/harness/src/",
];

/// Among it: the list, what is kube-proxy's own, which calls its modes the same, the backend that test
/// agents begin with and the rights that theirs take, what suites need of a kernel, and the bench that
/// compares certain ways.
const EXCEPT: &[&str] = &[
    "proxy-agent/src/backends.rs",
    "proxy-agent/src/config/cli/kube_proxy.rs",
    "proxy-agent/src/config/cli/others.rs",
    "proxy-agent/src/config/kube_proxy.rs",
    "proxy-agent/src/config/kube_proxy/",
    "proxy-agent/src/config/reference/kube_proxy.rs",
    "proxy-agent/src/leftovers.rs",
    "proxy-agent/src/leftovers/",
    "tests/bench/src/backends/restores.rs",
    "tests/bench/src/outside.rs",
    "tests/bench/src/outside/",
    "tests/harness/src/agent.rs",
    "tests/harness/src/agent/rights.rs",
    "tests/harness/src/executable.rs",
    "tests/harness/src/requires.rs",
];

/// The names of the backends, by the tracked files.
pub(super) fn names(paths: &BTreeSet<String>) -> Vec<&str> {
    let folders = paths.iter().filter_map(|path| path.strip_prefix(FOLDERS));
    folders
        .filter_map(|path| path.strip_suffix(DESCRIPTION))
        .collect()
}

/// Checks that the code of `file` names none of `names`.
pub(super) fn check(file: &File, names: &[&str]) -> Vec<Finding> {
    let is_in = |all: &[&str]| all.iter().any(|one| file.path.starts_with(one));
    let ends = ["/tests.rs", "/fixtures.rs"];
    let of_tests = file.path.contains("/tests/") || ends.iter().any(|end| file.path.ends_with(end));
    if !is_in(WITHOUT) || is_in(EXCEPT) || of_tests {
        return Vec::new();
    }
    let code = file.text.split("#[cfg(test)]\nmod tests {").next();
    let lines = (1..).zip(code.unwrap_or_default().lines());
    let code = lines.filter(|(_, line)| !line.trim_start().starts_with("//"));
    let found = code.flat_map(|(number, line)| {
        let words = words(line);
        let hits = names.iter().filter(move |name| is_named(name, &words));
        hits.map(move |name| (number, *name))
    });
    let error = |(number, name)| {
        Finding::Error(format!(
            "line {number}: names the backend {name}; ask the list in `backends.rs`, or let the \
             backend's description say it"
        ))
    };
    found.map(error).collect()
}

/// The words of a line in lower case, with what joins words: a flag of kube-proxy and a setting of the
/// kernel that have a backend's name in theirs name no backend.
fn words(line: &str) -> Vec<String> {
    let joins = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let words = line.split(|c| !joins(c));
    words.map(str::to_ascii_lowercase).collect()
}

/// Whether a word is the name, or that of its crate (`proxy_backend_NAME`), or a type's
/// (`NAMEBackend`).
fn is_named(name: &str, words: &[String]) -> bool {
    words.iter().any(|word| {
        let rest = word.replace('-', "_").replace(name, "");
        word.contains(name) && ["", "proxy_backend_", "backend", "options"].contains(&&*rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(path: &str, text: &str) -> usize {
        let file = File {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        check(&file, &["nftables", "toy"]).len()
    }

    #[test]
    fn what_has_a_description_is_a_backend() {
        let paths = [
            "proxy-agent/backends/conntrack/src/lib.rs",
            "proxy-agent/backends/toy/src/descriptor.rs",
            "proxy-agent/src/backend/toy.rs",
        ];
        let paths = paths.map(str::to_owned).into();
        assert_eq!(names(&paths), ["toy"]);
    }

    #[test]
    fn a_backend_is_named_in_its_own_folder_and_in_the_list() {
        let code = "use proxy_backend_nftables::Nftables;\n";
        for (path, expected) in [
            ("proxy-agent/src/run.rs", 1),
            ("proxy-agent/model/src/a.rs", 1),
            ("proxy-agent/src/backends.rs", 0),
            ("proxy-agent/src/leftovers/nftables.rs", 0),
            ("proxy-agent/src/report/tests.rs", 0),
            ("proxy-agent/src/backend/choice/fixtures.rs", 0),
            ("proxy-agent/backends/nftables/src/lib.rs", 0),
            ("tests/suites/nftables.rs", 0),
        ] {
            assert_eq!(said(path, code), expected, "{path}");
        }
        for (line, expected) in [
            ("let it = \"nftables\";", 1),
            ("NftablesBackend::open()", 1),
            ("proxy-backend-nftables", 1),
            ("\"nftables-sync-period\"", 0),
            ("bridge-nf-call-nftables", 0),
        ] {
            assert_eq!(said("proxy-agent/src/run.rs", line), expected, "{line}");
        }
        let text = "// As nftables does.\n#[cfg(test)]\nmod tests;\n\n#[cfg(test)]\nmod tests {\n    \"toy\"\n}\n";
        assert_eq!(said("proxy-agent/src/run.rs", text), 0);
        let text = format!("#[cfg(test)]\nmod tests;\n{code}");
        assert_eq!(said("proxy-agent/src/run.rs", &text), 1);
    }
}
