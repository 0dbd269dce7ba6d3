//! The crates that a program is made of, and what their manifests say. Asks cargo; reads no source.
//!
//! A program holds its own crates and, as bytes, the kernel programs with theirs. Macros are not
//! linked; what they wrote is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use toml_edit::DocumentMut;
use xtask::ebpf;
use xtask::paths;
use xtask::toolchain::BPF_TARGET;

use super::program;
use super::toolchain::Architecture;
use crate::cargo::{Object, cargo};
use crate::progress::shell_line;

/// A crate's name and version.
pub(crate) type Key = (String, String);

/// A crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Its name and version.
    pub(crate) key: Key,
    /// Under which licences, as SPDX writes it.
    pub(crate) licence: String,
    /// In one line.
    pub(crate) description: Option<String>,
    /// Where its source is kept.
    pub(crate) repository: Option<String>,
    /// What cargo unpacked.
    pub(crate) dir: PathBuf,
    /// SHA-256 of what the registry has; none for ours.
    pub(crate) checksum: Option<String>,
    /// Whether its code is in the program; otherwise it wrote some of it.
    pub(crate) linked: bool,
    /// Which of the others it uses.
    pub(crate) uses: BTreeSet<Key>,
}

/// The crates of the program for this processor, by name and version.
pub(crate) fn of_program(architecture: Architecture) -> Result<BTreeMap<Key, Part>> {
    let target = architecture.target();
    let trees = [(program::PACKAGE, target), (ebpf::PACKAGE, BPF_TARGET)];
    let (mut linked, mut all) = (BTreeSet::new(), BTreeSet::new());
    for (package, target) in trees {
        linked.extend(tree(package, target, "normal,no-proc-macro")?);
        all.extend(tree(package, target, "normal")?);
    }
    // Of others there is no need to fetch anything.
    let platform = |target: &'static str| ["--filter-platform", target];
    // Macros run here.
    let platforms = [target, BPF_TARGET, "host-tuple"].map(platform).concat();
    let metadata = ask(&[&["metadata", "--format-version", "1"], &platforms[..]].concat())?;
    let metadata: Value = serde_json::from_str(&metadata).context("reading cargo's metadata")?;
    let checksums = checksums()?;
    let mut parts = BTreeMap::new();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let by_id: BTreeMap<&str, Key> = packages
        .clone()
        .filter_map(|package| Some((package["id"].as_str()?, key_of(package)?)))
        .collect();
    for package in packages {
        let Some(key) = key_of(package).filter(|key| all.contains(key)) else {
            continue;
        };
        let part = part(package, key.clone(), &checksums)
            .with_context(|| format!("reading what cargo says of {} {}", key.0, key.1))?;
        let linked = linked.contains(&key);
        parts.insert(key, Part { linked, ..part });
    }
    for node in metadata["resolve"]["nodes"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let key = node["id"].as_str().and_then(|id| by_id.get(id));
        let Some(part) = key.and_then(|key| parts.get_mut(key)) else {
            continue;
        };
        let used = node["deps"].as_array().into_iter().flatten();
        let used = used.filter(|used| {
            let mut kinds = used["dep_kinds"].as_array().into_iter().flatten();
            kinds.any(|kind| kind["kind"].is_null())
        });
        let used = used.filter_map(|used| by_id.get(used["pkg"].as_str()?));
        part.uses = used.filter(|key| all.contains(*key)).cloned().collect();
    }
    let unknown: Vec<_> = all.iter().filter(|key| !parts.contains_key(*key)).collect();
    ensure!(unknown.is_empty(), "cargo's metadata lacks {unknown:?}");
    Ok(parts)
}

fn key_of(package: &Value) -> Option<Key> {
    let text = |name: &str| package[name].as_str().map(str::to_owned);
    Some((text("name")?, text("version")?))
}

fn part(package: &Value, key: Key, checksums: &BTreeMap<Key, String>) -> Option<Part> {
    let text = |name: &str| package[name].as_str().map(str::to_owned);
    let manifest = PathBuf::from(text("manifest_path")?);
    Some(Part {
        // The slash is what crates wrote for it before SPDX expressions.
        licence: text("license")?.replace(" / ", " OR ").replace('/', " OR "),
        description: text("description").map(|text| text.trim().to_owned()),
        repository: text("repository"),
        dir: manifest.parent()?.to_owned(),
        checksum: checksums.get(&key).cloned(),
        linked: false,
        uses: BTreeSet::new(),
        key,
    })
}

/// What `cargo tree` lists.
fn tree(package: &str, target: &str, edges: &str) -> Result<BTreeSet<Key>> {
    let printed = ask(&[
        "tree",
        "--package",
        package,
        "--target",
        target,
        "--edges",
        edges,
        "--prefix",
        "none",
    ])?;
    Ok(printed.lines().filter_map(crate_in).collect())
}

/// `name v1.2.3 (…)`.
fn crate_in(line: &str) -> Option<Key> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let version = words.next()?.strip_prefix('v')?;
    Some((name.to_owned(), version.to_owned()))
}

/// What cargo prints.
fn ask(arguments: &[&str]) -> Result<String> {
    let mut command = cargo(arguments[0], Object::Embedded);
    command.args(&arguments[1..]).stderr(Stdio::inherit());
    let line = shell_line(&command);
    let output = command.output();
    let output = output.with_context(|| format!("starting `{line}`"))?;
    ensure!(output.status.success(), "`{line}` failed");
    String::from_utf8(output.stdout).with_context(|| format!("reading what `{line}` printed"))
}

/// What the lock file says that the registry has.
fn checksums() -> Result<BTreeMap<Key, String>> {
    let file = paths::workspace_root().join("Cargo.lock");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let lock: DocumentMut = text.parse().context("reading Cargo.lock")?;
    let packages = lock["package"].as_array_of_tables().into_iter().flatten();
    let entry = |package: &toml_edit::Table| {
        let text = |name: &str| Some(package.get(name)?.as_str()?.to_owned());
        Some(((text("name")?, text("version")?), text("checksum")?))
    };
    Ok(packages.filter_map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_read_from_a_tree() {
        let key = |name: &str, version: &str| Some((name.to_owned(), version.to_owned()));
        assert_eq!(crate_in("syn v2.0.119 (*)"), key("syn", "2.0.119"));
        let macros = "thiserror-impl v2.0.21 (proc-macro)";
        assert_eq!(crate_in(macros), key("thiserror-impl", "2.0.21"));
        assert_eq!(crate_in(""), None);
    }

    #[test]
    fn a_program_holds_what_it_links_and_the_kernel_programs() {
        let parts = of_program(Architecture::Amd64).unwrap();
        let one = |name: &str| parts.values().find(|part| part.key.0 == name);
        for (name, linked) in [
            ("proxy-agent", true),
            ("aya-ebpf", true),
            ("serde_derive", false),
        ] {
            assert_eq!(one(name).map(|part| part.linked), Some(linked), "{name}");
        }
        assert_eq!(one("proptest"), None);
        assert_eq!(
            one("clap_builder")
                .unwrap()
                .checksum
                .as_ref()
                .unwrap()
                .len(),
            64
        );
        let uses = &one("proxy-agent").unwrap().uses;
        assert!(uses.iter().any(|(name, _)| name == "kube"), "{uses:?}");
    }
}
