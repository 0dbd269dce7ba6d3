//! The bare Debian that every root is a copy of, kept in the cache because making it takes minutes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};

use super::machine::Machine;
use crate::progress::{self, seconds};

/// What is in it besides what no Debian is without: what a person has who got this repository and
/// installed Rust.
const PACKAGES: &[&str] = &["ca-certificates", "gcc", "git", "libc6-dev"];

/// When it is made anew: its packages grow old, and set-up would first have to bring them up to
/// date.
const KEPT_FOR: Duration = Duration::from_hours(30 * 24);

/// The base, made if it is not there or old.
pub(super) fn ready(place: &Path, machine: &Machine) -> Result<PathBuf> {
    fs::create_dir_all(place).with_context(|| format!("making {}", place.display()))?;
    let base = place.join(name(machine.suite()));
    if age(&base).is_some_and(|age| age < KEPT_FOR) {
        eprintln!("the bare Debian is {}", base.display());
        return Ok(base);
    }
    let started = Instant::now();
    let making = tempfile::Builder::new()
        .prefix("making-")
        .tempdir_in(place)
        .with_context(|| format!("making a directory in {}", place.display()))?;
    let tree = making.path().join("tree");
    progress::run_quietly(
        &format!("making a bare Debian {}", machine.suite()),
        &mut debootstrap(machine, &tree),
    )?;
    if base.exists() {
        fs::remove_dir_all(&base)
            .with_context(|| format!("removing the old {}", base.display()))?;
    }
    fs::rename(&tree, &base).with_context(|| format!("putting {} in place", base.display()))?;
    eprintln!(
        "the bare Debian is {} (made in {})",
        base.display(),
        seconds(started.elapsed())
    );
    Ok(base)
}

/// Its name says what is in it, so that another choice of packages is another base.
fn name(suite: &str) -> String {
    format!("{suite}+{}", PACKAGES.join("+"))
}

/// Since when it has been as it is; none if it is not there.
fn age(base: &Path) -> Option<Duration> {
    let installed = fs::metadata(base.join("var/lib/dpkg/status")).ok()?;
    SystemTime::now()
        .duration_since(installed.modified().ok()?)
        .ok()
}

/// With this machine's mirror and keys.
fn debootstrap(machine: &Machine, tree: &Path) -> Command {
    let mut command = Command::new("debootstrap");
    command
        .arg("--variant=minbase")
        .arg(format!("--include={}", PACKAGES.join(",")))
        .arg(machine.suite())
        .arg(tree)
        .arg(machine.mirror());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_that_is_not_there_has_no_age() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(age(place.path()), None);
        let status = place.path().join("var/lib/dpkg/status");
        fs::create_dir_all(status.parent().unwrap()).unwrap();
        fs::write(&status, "").unwrap();
        assert!(age(place.path()).unwrap() < KEPT_FOR);
        let long_ago = SystemTime::now() - KEPT_FOR;
        fs::File::open(&status)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        assert!(age(place.path()).unwrap() >= KEPT_FOR);
    }

    #[test]
    fn the_name_says_what_is_in_it() {
        assert!(name("bookworm").starts_with("bookworm+ca-certificates+gcc+git"));
    }
}
