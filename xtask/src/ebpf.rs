//! Making the kernel objects: compile, name the byte arrays, put them where they are embedded from.
//!
//! Knows cargo and ELF; knows nothing of what the programs do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::paths;
use crate::toolchain::{BPF_TARGET, BpfToolchain};

pub mod btf;
pub mod elf;
pub mod strip;

/// The package of the kernel programs.
pub const PACKAGE: &str = "proxy-ebpf";
/// Its binary targets: one object for each kind of place that programs are attached to.
pub const OBJECTS: [&str; 2] = ["socket", "edge"];

/// The finished kernel objects.
#[derive(Debug)]
pub struct Built {
    /// The ELF files, ready to be embedded, in the order of [`OBJECTS`].
    pub objects: Vec<PathBuf>,
    /// What compiled it.
    pub toolchain: BpfToolchain,
    /// Wall-clock time of the whole build.
    pub took: Duration,
}

/// Builds the kernel objects for the machine architecture `arch` (as `CARGO_CFG_TARGET_ARCH` and
/// `std::env::consts::ARCH` spell it: it decides how programs read CPU registers).
///
/// Cargo's progress goes to standard error; standard output stays free, as a build script needs
/// it. Nothing is compiled when nothing changed. Fails with [`crate::toolchain::Missing`] when
/// there is no toolchain.
pub fn build(root: &Path, arch: &str) -> Result<Built> {
    let started = Instant::now();
    let toolchain = BpfToolchain::discover()?;
    let target_dir = paths::bpf_target_dir(root);
    let status = toolchain
        .cargo(root)
        .args(["build", "--locked", "--release", "--package", PACKAGE])
        .args(OBJECTS.iter().flat_map(|object| ["--bin", object]))
        .args(toolchain.target_args())
        .arg("--target-dir")
        .arg(&target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags(&toolchain, root, arch))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("starting the cargo of the {toolchain}"))?;
    if !status.success() {
        bail!("compiling {PACKAGE} for {BPF_TARGET} failed ({status}; {toolchain})");
    }
    let compiled = target_dir.join(BPF_TARGET).join("release");
    let finished = OBJECTS.iter().map(|name| {
        let object = target_dir.join(format!("{name}.o"));
        finish(&compiled.join(name), &object)?;
        Ok(object)
    });
    let objects = finished.collect::<Result<_>>()?;
    Ok(Built {
        objects,
        toolchain,
        took: started.elapsed(),
    })
}

/// The compiler flags of the kernel programs, in the form of `CARGO_ENCODED_RUSTFLAGS`, which
/// allows spaces in paths. They replace whatever flags the user set for the host.
pub fn rustflags(toolchain: &BpfToolchain, root: &Path, arch: &str) -> String {
    // The object holds source paths (BTF line information); where the checkout lies, and the sources
    // of crates, must not change it. The last that fits is taken.
    let home = paths::cargo_home().map(|home| remap(&home, "/cargo"));
    let flags = [
        // BTF is made from debug information.
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        format!("-Clinker={}", toolchain.linker.display()),
        format!("--cfg=bpf_target_arch=\"{arch}\""),
    ];
    let all = flags.into_iter().chain(home).chain([remap(root, ".")]);
    all.collect::<Vec<_>>().join("\u{1f}")
}

fn remap(from: &Path, to: &str) -> String {
    format!("--remap-path-prefix={}={to}", from.display())
}

/// Names byte arrays in the compiled object, takes its debug information out, and puts the result
/// in place at once, so that nobody who builds at the same time ever embeds half a file.
fn finish(compiled: &Path, object: &Path) -> Result<()> {
    let mut bytes =
        fs::read(compiled).with_context(|| format!("reading {}", compiled.display()))?;
    btf::name_byte_arrays(&mut bytes)
        .with_context(|| format!("naming byte arrays in the BTF of {}", compiled.display()))?;
    let bytes = strip::strip(&bytes)
        .with_context(|| format!("taking debug information out of {}", compiled.display()))?;
    if fs::read(object).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    let draft = object.with_extension(format!("o.{}", std::process::id()));
    fs::write(&draft, &bytes).with_context(|| format!("writing {}", draft.display()))?;
    fs::rename(&draft, object).with_context(|| format!("putting {} in place", object.display()))
}
