//! The programs that `--take-over` calls, with all that they load, out of Debian's packages: nothing
//! is installed, and of each package only what is used is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xtask::toolchain::output_of;

use super::root::{Entry, Root};
use super::toolchain::Architecture;
use crate::progress;
use crate::setup::apt;

/// The package of the programs.
const PACKAGE: &str = "iptables";

/// Where they are in it.
const PROGRAMS: &str = "usr/sbin";

/// A package of which something is in an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// For which processors.
    pub(crate) architecture: String,
    /// Where it was unpacked.
    dir: PathBuf,
}

/// What the agent calls (`proxy-agent/src/leftovers/iptables.rs`).
fn programs() -> Vec<String> {
    let mut names = Vec::new();
    for family in ["iptables", "ip6tables"] {
        for kind in ["nft", "legacy"] {
            for what in ["save", "restore"] {
                names.push(format!("{PROGRAMS}/{family}-{kind}-{what}"));
            }
        }
    }
    names
}

/// Collects them, working in `dir`. Debian has its packages for the machine that this is.
pub(crate) fn collect(architecture: Architecture, dir: &Path) -> Result<(Root, Vec<Package>)> {
    ensure!(
        apt::is_debian(),
        "the variant `tools` is made of Debian's packages, and this is not Debian"
    );
    let own = output_of(Command::new("dpkg").arg("--print-architecture"));
    let own = own.map_err(anyhow::Error::msg)?;
    ensure!(
        own.trim() == architecture.name(),
        "the variant `tools` for {} is made on such a machine: apt knows the packages of {} here",
        architecture.name(),
        own.trim()
    );
    let packages = unpacked(dir)?;
    let mut taken = Taken {
        packages: &packages,
        root: Root::default(),
        seen: BTreeSet::new(),
        used: BTreeSet::new(),
    };
    for program in programs() {
        taken.take(&program)?;
    }
    let plugins = taken.plugins()?;
    for plugin in plugins {
        taken.take(&plugin)?;
    }
    let Taken { mut root, used, .. } = taken;
    for package in &used {
        let path = format!("usr/share/doc/{}/copyright", package.name);
        let text = copyright(package, &packages)?;
        root.file(&path, text);
    }
    Ok((root, used.into_iter().cloned().collect()))
}

/// Fetches the package and those that it depends on, and unpacks each in a directory of its own.
fn unpacked(dir: &Path) -> Result<Vec<Package>> {
    let fetched = dir.join("packages");
    fs::create_dir_all(&fetched).with_context(|| format!("making {}", fetched.display()))?;
    let names = depended_on()?;
    let mut download = Command::new("apt-get");
    // Root would hand the download to a user who may not write here.
    download.args(["-q", "-o", "APT::Sandbox::User=root", "download"]);
    download.args(&names).current_dir(&fetched);
    if progress::run_quietly("fetching packages", &mut download).is_err() {
        // The lists may be older than what the mirror has.
        apt::refresh()?;
        progress::run_quietly("fetching packages", &mut download)?;
    }
    let archives = newest(&fetched, &names)?;
    let all = dir.join("unpacked");
    if all.exists() {
        fs::remove_dir_all(&all).with_context(|| format!("removing {}", all.display()))?;
    }
    let mut packages = Vec::new();
    for archive in archives {
        let mut ask = Command::new("dpkg-deb");
        ask.args([
            "--show",
            "--showformat=${Package}\t${Version}\t${Architecture}",
        ]);
        let said = output_of(ask.arg(&archive)).map_err(anyhow::Error::msg)?;
        let mut fields = said.split('\t').map(str::to_owned);
        let mut field = || fields.next().unwrap_or_default();
        let (name, version, architecture) = (field(), field(), field());
        let dir = all.join(&name);
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        progress::run(
            Command::new("dpkg-deb")
                .arg("--extract")
                .args([&archive, &dir]),
        )?;
        packages.push(Package {
            name,
            version,
            architecture,
            dir,
        });
    }
    Ok(packages)
}

/// The package and all that it cannot be without.
fn depended_on() -> Result<Vec<String>> {
    let mut ask = Command::new("apt-cache");
    ask.args(["depends", "--recurse"]);
    for left_out in [
        "recommends",
        "suggests",
        "conflicts",
        "breaks",
        "replaces",
        "enhances",
    ] {
        ask.arg(format!("--no-{left_out}"));
    }
    let said = output_of(ask.arg(PACKAGE)).map_err(anyhow::Error::msg)?;
    // What is indented, or in brackets, says why.
    let names = said
        .lines()
        .filter(|line| !line.starts_with([' ', '<', '|']));
    Ok(names.map(str::to_owned).collect())
}

/// The archive of each package: earlier ones may have stayed.
fn newest(dir: &Path, names: &[String]) -> Result<Vec<PathBuf>> {
    let mut newest: BTreeMap<String, (std::time::SystemTime, PathBuf)> = BTreeMap::new();
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    for entry in entries {
        let path = entry
            .with_context(|| format!("reading {}", dir.display()))?
            .path();
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let Some((name, _)) = file.split_once('_') else {
            continue;
        };
        let time = path.metadata().and_then(|meta| meta.modified());
        let time = time.with_context(|| format!("looking at {}", path.display()))?;
        let known = newest.entry(name.to_owned());
        let known = known.or_insert_with(|| (time, path.clone()));
        if known.0 <= time {
            *known = (time, path);
        }
    }
    let archive = |name: &String| {
        let found = newest.remove(name);
        found
            .map(|(_, path)| path)
            .with_context(|| format!("apt fetched no archive of {name}"))
    };
    names.iter().map(archive).collect()
}

/// What was taken so far.
struct Taken<'a> {
    packages: &'a [Package],
    root: Root,
    seen: BTreeSet<String>,
    used: BTreeSet<&'a Package>,
}

impl<'a> Taken<'a> {
    /// The package that has this path.
    fn owner(&self, path: &str) -> Option<&'a Package> {
        let mut packages = self.packages.iter();
        packages.find(|package| package.dir.join(path).symlink_metadata().is_ok())
    }

    /// Takes a file, what it links to, and what it is linked with.
    fn take(&mut self, path: &str) -> Result<()> {
        if !self.seen.insert(path.to_owned()) {
            return Ok(());
        }
        let owner = self.owner(path);
        let owner = owner.with_context(|| format!("no package of {PACKAGE} has {path}"))?;
        self.used.insert(owner);
        let file = owner.dir.join(path);
        if let Ok(target) = file.read_link() {
            let target = target.to_string_lossy().into_owned();
            let to = resolved(path, &target);
            self.root.add(path, Entry::Link(target));
            return self.take(&to);
        }
        let bytes = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
        self.root.program(path, bytes);
        for needed in needed_by(&file)? {
            let found = self.library(&needed);
            let found = found.with_context(|| format!("{path} needs {needed}"))?;
            self.take(&found)?;
        }
        Ok(())
    }

    /// The path of a library by its name; of the loader, which is named by its path.
    fn library(&self, name: &str) -> Result<String> {
        if let Some(path) = name.strip_prefix('/') {
            return Ok(path.to_owned());
        }
        let dirs = [
            "lib/x86_64-linux-gnu",
            "usr/lib/x86_64-linux-gnu",
            "lib/aarch64-linux-gnu",
        ];
        let mut paths = dirs
            .into_iter()
            .chain(["usr/lib/aarch64-linux-gnu"])
            .map(|dir| format!("{dir}/{name}"));
        paths
            .find(|path| self.owner(path).is_some())
            .context("no package that it depends on has that library")
    }

    /// The paths of what the programs load by themselves: an extension for each kind of match.
    fn plugins(&self) -> Result<Vec<String>> {
        let package = self.packages.iter().find(|package| package.name == PACKAGE);
        let package = package.context("there is no package of the programs")?;
        let mut found = Vec::new();
        for dir in [
            "usr/lib/x86_64-linux-gnu/xtables",
            "usr/lib/aarch64-linux-gnu/xtables",
        ] {
            for entry in fs::read_dir(package.dir.join(dir))
                .into_iter()
                .flatten()
                .flatten()
            {
                found.push(format!("{dir}/{}", entry.file_name().to_string_lossy()));
            }
        }
        ensure!(
            !found.is_empty(),
            "{PACKAGE} has no extensions where they were"
        );
        found.sort();
        Ok(found)
    }
}

/// Where a link at `path` leads to, in the same root.
fn resolved(path: &str, target: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    if !target.starts_with('/') {
        parts.extend(path.split('/'));
        parts.pop();
    }
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The libraries that a file is linked with, and the loader that it asks for.
fn needed_by(file: &Path) -> Result<Vec<String>> {
    let mut ask = Command::new("readelf");
    ask.args(["--dynamic", "--program-headers", "--wide"]);
    let said = output_of(ask.arg(file)).map_err(anyhow::Error::msg)?;
    Ok(said.lines().filter_map(needed_in).collect())
}

fn needed_in(line: &str) -> Option<String> {
    let after = ["(NEEDED)", "[Requesting program interpreter: "];
    let begin = after
        .iter()
        .find_map(|mark| Some(line.find(mark)? + mark.len()))?;
    let rest = line[begin..]
        .trim_start()
        .trim_start_matches("Shared library: [");
    Some(rest.trim_end().trim_end_matches(']').to_owned())
}

/// What a package says of its licences, perhaps by a link to another's.
fn copyright(package: &Package, all: &[Package]) -> Result<Vec<u8>> {
    let doc = format!("usr/share/doc/{}", package.name);
    let doc = match package.dir.join(&doc).read_link() {
        Ok(target) => resolved(&doc, &target.to_string_lossy()),
        Err(_) => doc,
    };
    let mut files = all.iter().map(|one| one.dir.join(&doc).join("copyright"));
    let file = files.find(|file| file.is_file());
    let file = file.with_context(|| format!("{} says nothing of its licence", package.name))?;
    fs::read(&file).with_context(|| format!("reading {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_needs_is_read() {
        let needed = " 0x0000000000000001 (NEEDED)             Shared library: [libmnl.so.0]";
        assert_eq!(needed_in(needed).as_deref(), Some("libmnl.so.0"));
        let loader = "      [Requesting program interpreter: /lib64/ld-linux-x86-64.so.2]";
        assert_eq!(
            needed_in(loader).as_deref(),
            Some("/lib64/ld-linux-x86-64.so.2")
        );
        assert_eq!(
            needed_in(" 0x000000000000000e (SONAME) Library soname: [x]"),
            None
        );
    }

    #[test]
    fn links_lead_within_the_root() {
        assert_eq!(resolved("usr/sbin/a", "b"), "usr/sbin/b");
        assert_eq!(resolved("lib64/ld.so", "../lib/x/ld.so"), "lib/x/ld.so");
        assert_eq!(resolved("usr/sbin/a", "/etc/b"), "etc/b");
    }
}
