//! Compiles the kernel programs and puts the objects where `include_bytes!` finds it.
//!
//! With [`xtask::SKIP_EBPF_ENV`] the objects are empty: enough to build, lint and test everything
//! that loads no program, on a machine without a BPF toolchain.

use std::env;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use xtask::{SKIP_EBPF_ENV, ebpf, paths, toolchain};

/// What the kernel object is made from, relative to the workspace root.
const INPUTS: &[&str] = &[
    "Cargo.lock",
    "Cargo.toml",
    "proxy-common/Cargo.toml",
    "proxy-common/src",
    "proxy-ebpf/Cargo.toml",
    "proxy-ebpf/src",
];

fn main() -> ExitCode {
    match embed() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cargo::error={}", error.to_string().replace('\n', " "));
            // Cargo stops because of the line above. Success keeps it from printing the whole
            // output of this script, which is of use only when a compilation failed.
            if error.is::<toolchain::Missing>() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn embed() -> Result<(), Box<dyn Error>> {
    if env::var("CARGO_CFG_TARGET_OS")? != "linux" {
        // Only Linux loads kernel programs: nothing embeds them elsewhere.
        println!("cargo::rerun-if-changed=build.rs");
        return Ok(());
    }
    let root = paths::workspace_root();
    for input in INPUTS {
        println!("cargo::rerun-if-changed={}", root.join(input).display());
    }
    println!("cargo::rerun-if-env-changed={SKIP_EBPF_ENV}");
    println!("cargo::rerun-if-env-changed={}", paths::CACHE_ENV);
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let embedded = ebpf::OBJECTS.map(|name| out.join(format!("{name}.o")));
    if xtask::skips_ebpf() {
        for object in &embedded {
            fs::write(object, [])?;
        }
        return Ok(());
    }
    let arch = env::var("CARGO_CFG_TARGET_ARCH")?;
    let built = ebpf::build(root, &arch).map_err(|error| match error.downcast() {
        Ok(missing) => Box::<toolchain::Missing>::new(missing) as Box<dyn Error>,
        Err(other) => format!("{other:#}").into(),
    })?;
    for (object, embedded) in built.objects.iter().zip(&embedded) {
        fs::copy(object, embedded)?;
    }
    Ok(())
}
