//! Rules about dependencies: each crate's manifest proves what the crate cannot do.

use super::{File, Finding};

/// What a manifest may name.
enum Rule {
    /// Nothing but these.
    Only(&'static [&'static str]),
    /// None of these, nor anything that starts with one and a dash, or with one that ends in a dash.
    Never(&'static [&'static str]),
}

/// Rules by manifest, or by the folder of several, with the reason. Development dependencies are free.
const RULES: &[(&str, Rule, &str)] = &[
    (
        "proxy-agent/model/Cargo.toml",
        Rule::Never(&[
            "async",
            "aya",
            "chrono",
            "futures",
            "kube",
            "libc",
            "nix",
            "notify",
            "proxy-agent",
            "reqwest",
            "time",
            "tokio",
            "tonic",
            "tracing",
        ]),
        "the model is pure: no I/O, no clock, no runtime, no kernel",
    ),
    (
        "proxy-agent/api/Cargo.toml",
        Rule::Never(&[
            "aya",
            "hyper",
            "k8s-openapi",
            "kube",
            "libc",
            "nix",
            "prost-build",
            "protox",
            "proxy-agent",
            "tonic-build",
            "tonic-prost-build",
        ]),
        "authors of backends get what the API needs, nothing of the agent, and what protoc would do \
         is done",
    ),
    (
        "proxy-agent/backend/Cargo.toml",
        Rule::Only(&["proxy-model", "serde", "thiserror"]),
        "what every backend depends on depends on as good as nothing",
    ),
    (
        "proxy-agent/backends/",
        Rule::Never(&[
            "axum",
            "clap",
            "hyper",
            "k8s-openapi",
            "kube",
            "proxy-agent",
            "proxy-api",
            "proxy-backend-",
            "tonic",
        ]),
        "a backend knows the state, and neither the agent, where the state comes from, nor another \
         backend",
    ),
    (
        "proxy-agent/netlink/Cargo.toml",
        Rule::Never(&["proxy", "tokio"]),
        "netlink knows neither rules nor the model, and waits by itself",
    ),
    (
        "proxy-common/Cargo.toml",
        Rule::Only(&["bytemuck"]),
        "this crate is compiled for the kernel",
    ),
    (
        "proxy-ebpf/Cargo.toml",
        Rule::Only(&["aya-ebpf", "aya-log-ebpf", "proxy-common"]),
        "kernel programs are thin; decisions belong in proxy-common",
    ),
];

/// Checks a manifest that has a rule.
pub(super) fn check(file: &File) -> Vec<Finding> {
    let is_of = |path: &str| {
        let inside = path.ends_with('/') && file.path.ends_with("/Cargo.toml");
        file.path == path || inside && file.path.starts_with(path)
    };
    let rules = RULES.iter().filter(|(path, ..)| is_of(path));
    let mut findings: Vec<_> = rules
        .flat_map(|(_, rule, reason)| breaches(&file.text, rule, reason))
        .collect();
    findings.extend(asks_for_memory(file));
    findings
}

/// What of `proxy-common` is for tests must not come into what runs.
fn asks_for_memory(file: &File) -> Option<Finding> {
    const FEATURE: &str = "\"in-memory\"";
    let asks = file.path.ends_with("Cargo.toml") && !file.path.starts_with("tests/");
    let text = "must not ask for in-memory: only tests use it";
    (asks && file.text.contains(FEATURE)).then(|| Finding::Error(text.to_owned()))
}

fn breaches(manifest: &str, rule: &Rule, reason: &str) -> Vec<Finding> {
    let begins = |name: &str, with: &str| {
        let ends = |rest: &str| rest.is_empty() || rest.starts_with('-');
        let rest = name.strip_prefix(with);
        rest.is_some_and(|rest| with.ends_with('-') || ends(rest))
    };
    let refused = |name: &&str| match rule {
        Rule::Only(allowed) => !allowed.contains(name),
        Rule::Never(forbidden) => forbidden.iter().any(|forbidden| begins(name, forbidden)),
    };
    let names = dependencies(manifest).into_iter().filter(refused);
    names
        .map(|name| Finding::Error(format!("must not depend on {name}: {reason}")))
        .collect()
}

/// Names in `[dependencies]` and `[build-dependencies]`, of any target, in both spellings. Optional
/// ones are left out: they are compiled where a feature asks for them, and not otherwise.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end_matches(']');
            inside = table.ends_with("dependencies") && !table.ends_with("dev-dependencies");
            let own_table = table.rsplit_once("dependencies.");
            names.extend(
                own_table
                    .filter(|(before, _)| !before.ends_with("dev-"))
                    .map(|(_, n)| n),
            );
        } else if inside && !line.starts_with('#') && !line.contains("optional = true") {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            names.extend(Some(name).filter(|name| !name.is_empty()));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[package]\nname = \"x\"\n\n[dependencies]\nimbl.workspace = true\n\
        # a reason\ntokio = \"1\"\nserde = { version = \"1\", optional = true }\n\n[dev-dependencies]\nproptest = \"1\"\n\n\
        [target.'cfg(unix)'.dependencies]\naya-obj = \"0\"\n\n[dependencies.kube]\nversion = \"1\"\n";

    #[test]
    fn dependencies_are_read_without_those_of_tests() {
        assert_eq!(dependencies(MANIFEST), ["imbl", "tokio", "aya-obj", "kube"]);
    }

    #[test]
    fn the_model_stays_pure() {
        let file = File {
            path: RULES[0].0.to_owned(),
            text: MANIFEST.to_owned(),
        };
        let found: Vec<_> = check(&file).into_iter().map(|f| format!("{f:?}")).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found[0].contains("must not depend on tokio: the model is pure"),
            "{found:?}"
        );
    }

    #[test]
    fn what_is_for_tests_comes_into_tests_alone() {
        let text = "[dependencies]\nproxy-common = { features = [\"in-memory\"] }\n";
        let found = |path: &str| {
            let (path, text) = (path.to_owned(), text.to_owned());
            check(&File { path, text }).len()
        };
        assert_eq!(found("proxy-agent/Cargo.toml"), 1);
        assert_eq!(found("tests/fuzz/Cargo.toml"), 0);
    }

    #[test]
    fn backends_know_neither_the_agent_nor_each_other() {
        let check_at = |path: &str| {
            check(&File {
                path: path.to_owned(),
                text: "[dependencies]\nproxy-backend.workspace = true\n\
                       proxy-backend-toy.workspace = true\nproxy-agent.workspace = true\n"
                    .to_owned(),
            })
        };
        assert_eq!(check_at("proxy-agent/backends/toy/Cargo.toml").len(), 2);
        assert_eq!(check_at("tests/Cargo.toml").len(), 0);
    }

    #[test]
    fn kernel_crates_depend_on_listed_crates_only() {
        let text = "[dependencies]\nbytemuck.workspace = true\nserde.workspace = true\n";
        let file = File {
            path: "proxy-common/Cargo.toml".to_owned(),
            text: text.to_owned(),
        };
        assert_eq!(check(&file).len(), 1);
    }
}
