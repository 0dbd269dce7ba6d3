//! `cargo xtask image`: the container image, made without a container engine.
//!
//! An archive in the layout of the Open Container Initiative, which holds a static program on an
//! empty base; beside it the bill of materials, and what turns the addresses of a crash into lines.
//! The same commit, compilers and packages give the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;
use std::{env, fmt};

use anyhow::{Context, Result, ensure};
use xtask::paths;
use xtask::toolchain::output_of;

use self::layout::{Description, Layout};
use self::root::{Entry, Root};
use self::sbom::Contents;
use self::toolchain::{Architecture, ImageToolchain};
use crate::progress::seconds;
use crate::setup::{self, Needs};

mod layout;
mod libraries;
mod licences;
mod parts;
mod program;
mod root;
mod sbom;
pub(crate) mod toolchain;
mod tools;

/// What the image is called.
const NAME: &str = "culvert";

/// Its version.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// More than this is not sent to each node of a cluster: bytes of the variant `plain`, compressed.
const LIMIT: usize = 25_000_000;

/// Where the program is.
const PROGRAM: &str = "usr/local/bin/proxy-agent";

/// Where its licences are.
const DOC: &str = "usr/share/doc/culvert";

/// What something may be mounted on. Runtimes make what is missing, but not in a root that is
/// read-only from the start.
const MOUNT_POINTS: &[&str] = &[
    "dev",
    "etc/culvert",
    "host/cgroup",
    "lib/modules",
    "proc",
    "run/culvert",
    "sys",
    // The account of a pod, where pods have it.
    "var/run/secrets/kubernetes.io/serviceaccount",
    "var/lib/kube-proxy",
];

/// What is in an image besides the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Variant {
    /// Nothing
    Plain,
    /// The programs of iptables, which `--take-over` calls
    Tools,
}

/// Options of `image`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What is in it besides the agent
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Variant::Plain)]
    variant: Variant,
    /// The processor that it is for; this machine's if none is named
    #[arg(long, value_name = "NAME", value_enum)]
    target: Option<Architecture>,
    /// Also write it to this directory, in the layout of the Open Container Initiative
    #[arg(long, value_name = "DIR")]
    push_to: Option<PathBuf>,
}

impl Args {
    /// What this command needs. Of a processor that is not this machine's, nothing is installed.
    pub(crate) fn needs(&self) -> Needs {
        Needs::TOOLCHAIN.and_if(self.target() == Architecture::Amd64, Needs::IMAGE)
    }

    fn target(&self) -> Architecture {
        let own = match env::consts::ARCH {
            "aarch64" => Architecture::Arm64,
            _ => Architecture::Amd64,
        };
        self.target.unwrap_or(own)
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    setup::ensure(args.needs())?;
    let image = build(args.variant, args.target())?;
    println!("{image}");
    if let Some(dir) = &args.push_to {
        image.layout.write_directory(dir)?;
        println!("{} (as a directory)", dir.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Both variants for this machine, which suites look into.
pub(crate) fn for_suites() -> Result<PathBuf> {
    for variant in [Variant::Plain, Variant::Tools] {
        println!("{}", build(variant, Architecture::Amd64)?);
    }
    Ok(dir())
}

/// Where all of it is made.
pub(crate) fn dir() -> PathBuf {
    paths::workspace_root().join("target/image")
}

/// What was made.
struct Image {
    layout: Layout,
    archive: PathBuf,
    started: Instant,
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = self.layout.size / 10_000;
        write!(
            f,
            "{} ({}.{:02} MB compressed) in {}\n{}",
            self.archive.display(),
            megabytes / 100,
            megabytes % 100,
            seconds(self.started.elapsed()),
            self.layout.digest,
        )
    }
}

fn build(variant: Variant, architecture: Architecture) -> Result<Image> {
    let started = Instant::now();
    let toolchain = ImageToolchain::discover(architecture)?;
    println!("{toolchain}");
    let made = dir();
    let program = program::build(&toolchain, &made)?;
    let created = created()?;
    let parts = parts::of_program(architecture)?;
    let libraries = libraries::linked(&toolchain)?;
    let mut contents = Contents {
        image: (NAME, VERSION),
        parts: &parts,
        libraries: &libraries,
        packages: &[],
    };
    let licences = licences::page(&parts, &libraries, &paths::workspace_root().join("LICENSE"))?;
    let mut bill = sbom::bill(&contents, created)?;
    let base = base(&program.stripped, licences, &bill)?;
    let (mut layers, mut tag, mut path) = (vec![&base], VERSION.to_owned(), "/usr/local/bin");
    let (mut above, packages);
    if variant == Variant::Tools {
        (above, packages) = tools::collect(architecture, &made.join("debian"))?;
        contents.packages = &packages;
        bill = sbom::bill(&contents, created)?;
        above.file(&format!("{DOC}/sbom.cdx.json"), &bill[..]);
        layers.push(&above);
        tag.push_str("-tools");
        path = "/usr/local/bin:/usr/sbin";
    }
    let description = Description {
        architecture: architecture.name(),
        created,
        tag: tag.clone(),
        entrypoint: "/usr/local/bin/proxy-agent",
        path,
        annotations: annotations(variant)?,
    };
    let layout = Layout::of(&description, &layers)?;
    ensure!(
        variant != Variant::Plain || layout.size < LIMIT,
        "the image has {} bytes, compressed: no more than {LIMIT} are sent to each node of a \
         cluster",
        layout.size
    );
    let beside = |end: &str| made.join(format!("{NAME}-{tag}-{}.{end}", architecture.name()));
    let archive = beside("tar");
    layout.write_archive(&archive, created)?;
    layout::replace(&beside("cdx.json"), &bill)?;
    let debug = &program.debug;
    fs::copy(debug, beside("debug")).with_context(|| format!("copying {}", debug.display()))?;
    Ok(Image {
        layout,
        archive,
        started,
    })
}

/// The program and what goes with it, on nothing.
fn base(program: &Path, licences: String, bill: &[u8]) -> Result<Root> {
    let workspace = paths::workspace_root();
    let read = |file: &Path| fs::read(file).with_context(|| format!("reading {}", file.display()));
    let mut root = Root::default();
    root.program(PROGRAM, read(program)?);
    root.add(
        "usr/local/bin/kube-proxy",
        Entry::Link("proxy-agent".to_owned()),
    );
    for dir in MOUNT_POINTS {
        root.directory(dir);
    }
    root.add("tmp", Entry::Directory { mode: 0o1777 });
    for name in [
        "LICENSE",
        "proxy-ebpf/LICENSE-GPL-2.0",
        "proxy-ebpf/LICENSE-BSD-2-Clause",
    ] {
        let in_image = name.rsplit('/').next().unwrap_or(name);
        root.file(&format!("{DOC}/{in_image}"), read(&workspace.join(name))?);
    }
    root.file(&format!("{DOC}/third-party-licences.txt"), licences);
    root.file(&format!("{DOC}/sbom.cdx.json"), bill);
    Ok(root)
}

fn annotations(variant: Variant) -> Result<BTreeMap<&'static str, String>> {
    let title = match variant {
        Variant::Plain => NAME.to_owned(),
        Variant::Tools => format!("{NAME} with the programs of iptables"),
    };
    let described = "A Kubernetes service proxy: the agent of one node, in place of kube-proxy";
    let licences = match variant {
        Variant::Plain => "Apache-2.0",
        Variant::Tools => "Apache-2.0 AND GPL-2.0-or-later AND LGPL-2.1-or-later",
    };
    Ok(BTreeMap::from([
        ("org.opencontainers.image.title", title),
        ("org.opencontainers.image.description", described.to_owned()),
        ("org.opencontainers.image.version", VERSION.to_owned()),
        ("org.opencontainers.image.revision", revision()?),
        ("org.opencontainers.image.licenses", licences.to_owned()),
    ]))
}

/// The commit, and whether something differs from it.
fn revision() -> Result<String> {
    let Ok(commit) = git(&["rev-parse", "HEAD"]) else {
        // An archive of the source.
        return Ok("unknown".to_owned());
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    let mark = if changed.is_empty() { "" } else { "-changed" };
    Ok(format!("{commit}{mark}"))
}

/// When the image was made, as it says itself: at the time of the commit, so that it can be made
/// again.
fn created() -> Result<u64> {
    if let Some(set) = env::var_os("SOURCE_DATE_EPOCH") {
        let set = set.to_string_lossy();
        return set.parse().with_context(|| {
            format!("SOURCE_DATE_EPOCH is {set:?}, which is no number of seconds since 1970")
        });
    }
    let committed = git(&["log", "-1", "--format=%ct"]);
    Ok(committed.map_or(Ok(0), |time| time.parse())?)
}

fn git(arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(paths::workspace_root());
    let said = output_of(&mut command).map_err(anyhow::Error::msg)?;
    Ok(said.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn the_base_holds_the_program_under_both_names_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::write(&program, "x").unwrap();
        let base = base(&program, String::new(), b"").unwrap();
        let below = |dir: &str| -> Vec<String> {
            let paths = base.paths().filter_map(|path| path.strip_prefix(dir));
            paths.map(str::to_owned).collect()
        };
        assert_eq!(below("usr/local/bin/"), ["kube-proxy", "proxy-agent"]);
        assert!(below("usr/bin").is_empty() && below("bin/").is_empty());
        assert!(below(DOC).contains(&"/LICENSE-GPL-2.0".to_owned()));
    }

    #[test]
    fn variants_are_named_as_the_command_line_names_them() {
        let named = Variant::Tools.to_possible_value().unwrap();
        assert_eq!(named.get_name(), "tools");
        let no_url = annotations(Variant::Plain).unwrap();
        assert!(!no_url.contains_key("org.opencontainers.image.source"));
    }
}
