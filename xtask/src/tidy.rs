//! `cargo xtask tidy`: house rules that no compiler checks.
//!
//! This file lists and reads the tracked files; each rule is a pure function of a path and a
//! text, in the modules below.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use xtask::paths;

mod backends;
mod links;
mod locked;
mod manifests;
mod places;
mod programs;
mod semantics;
mod sources;

/// What a rule has to say about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Must be put right.
    Error(String),
    /// Needs a reason.
    Warning(String),
}

/// A tracked file.
struct File {
    path: String,
    text: String,
}

impl File {
    fn has_extension(&self, wanted: &str) -> bool {
        Path::new(&self.path)
            .extension()
            .is_some_and(|extension| extension == wanted)
    }
}

/// Runs the command.
pub(crate) fn run() -> Result<ExitCode> {
    Ok(if check()? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Applies every rule to every tracked file and prints what they say. `Ok(true)` if there is no
/// error.
pub(crate) fn check() -> Result<bool> {
    let root = paths::workspace_root();
    let paths = tracked_files(root)?;
    let mut findings = Vec::new();
    for entry in places::unexpected_root_entries(&paths) {
        findings.push((entry, Finding::Error(places::ROOT_RULE.to_owned())));
    }
    let home = std::env::var("HOME").unwrap_or_default();
    let installed = programs::installed();
    let backends = backends::names(&paths);
    for path in &paths {
        // A link, or a file removed but not yet committed.
        let full = root.join(path);
        let Ok(bytes) = fs::read(&full) else { continue };
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        let file = File {
            path: path.clone(),
            text,
        };
        let mut said = places::check(&file);
        said.extend(sources::check(&file));
        said.extend(sources::references(&file));
        said.extend(backends::check(&file, &backends));
        said.extend(sources::machine_paths(
            &file,
            &root.to_string_lossy(),
            &home,
        ));
        said.extend(manifests::check(&file));
        said.extend(locked::check(&file));
        said.extend(programs::check(&file, &installed));
        if path == semantics::PAGE {
            said.extend(semantics::check(&file, &paths));
        }
        said.extend(links::check(&file, |target| root.join(target).exists()));
        findings.extend(said.into_iter().map(|finding| (path.clone(), finding)));
    }
    let mut errors = 0;
    for (path, finding) in &findings {
        match finding {
            Finding::Error(text) => {
                errors += 1;
                println!("error: {path}: {text}");
            }
            Finding::Warning(text) => println!("warning: {path}: {text}"),
        }
    }
    println!(
        "{} files, {errors} errors, {} warnings",
        paths.len(),
        findings.len() - errors
    );
    Ok(errors == 0)
}

/// Files that git tracks, or would with the next `git add`.
fn tracked_files(root: &Path) -> Result<BTreeSet<String>> {
    let mut git = Command::new("git");
    git.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ])
    .current_dir(root);
    let output = git
        .output()
        .context("starting git to list the tracked files")?;
    if !output.status.success() {
        bail!(
            "listing tracked files: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let names = output
        .stdout
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    Ok(names
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect())
}
