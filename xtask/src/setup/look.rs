//! Looks at what is there and plans what is missing. Changes nothing.

use std::path::Path;

use anyhow::Result;
use xtask::paths;
use xtask::toolchain::{BpfToolchain, Compiler, Places, Route, Unfit};

use super::plan::{Plan, Step};
use super::{Needs, apt, chart, guests, provisions};
use crate::foreign;
use crate::image::toolchain::{Architecture, ImageToolchain};
use crate::vm::{hypervisor, kernels};
use crate::windows::toolchain::{TARGET, WindowsToolchain};
use crate::windows::wine;

/// The compiler packages of the distribution route.
const COMPILER_PACKAGES: &[&str] = &["rustc-web", "cargo-web", "libstd-rust-web-dev-bpf"];

/// The distribution's clippy.
const CLIPPY_PACKAGE: &str = "rust-web-clippy";

/// What [`LINKER`](crate::windows::toolchain::LINKER) is in.
const WINDOWS_LINKER_PACKAGE: &str = "gcc-mingw-w64-x86-64";

/// What is missing for `needs`.
pub(crate) fn look(needs: Needs) -> Result<Plan> {
    let cache = paths::cache_dir()?;
    let mut steps = Vec::new();
    if needs.has(Needs::TOOLCHAIN) {
        let linter = needs.has(Needs::LINTER);
        plan_toolchain(&Places::of_this_machine(), linter, &mut steps);
    }
    for (need, purpose) in provisions::PURPOSES {
        if needs.has(*need) {
            let packages = provisions::missing(*need);
            if *need == Needs::GUESTS {
                plan_guests(packages, &cache, &mut steps);
            } else {
                plan_packages(packages, purpose, &mut steps);
            }
        }
    }
    if needs.has(Needs::GUESTS) {
        plan_kernels(&cache, &mut steps);
    }
    if needs.has(Needs::WINDOWS) {
        plan_windows(&mut steps);
    }
    if needs.has(Needs::CHART) {
        steps.extend(chart::missing().map(Step::Chart));
    }
    if needs.has(Needs::IMAGE) {
        plan_image(&mut steps);
    }
    Ok(Plan { steps, cache })
}

fn plan_packages(names: Vec<String>, purpose: &'static str, steps: &mut Vec<Step>) {
    if !names.is_empty() {
        steps.push(Step::Packages { names, purpose });
    }
}

fn plan_toolchain(places: &Places, linter: bool, steps: &mut Vec<Step>) {
    let complete = BpfToolchain::discover_in(places).ok();
    let ready = complete.is_some();
    let present = complete.map(|toolchain| toolchain.compiler);
    let present = present.map_or_else(|| places.compiler(), Ok);
    let mut packages = Vec::new();
    match present {
        Ok(compiler) if linter && lacks_clippy(&compiler) => match compiler.route {
            Route::Rustup => steps.push(Step::Nightly { clippy: true }),
            Route::Distribution => packages.push(CLIPPY_PACKAGE.to_owned()),
        },
        Ok(_) => {}
        // What Debian has is another compiler by now: no package helps.
        Err(Unfit::Missing(_)) if apt::is_debian() => {
            packages.extend(COMPILER_PACKAGES.iter().map(|name| (*name).to_owned()));
            packages.extend(linter.then(|| CLIPPY_PACKAGE.to_owned()));
            packages.retain(|package| !apt::is_installed(package));
        }
        Err(_) => steps.push(Step::Nightly { clippy: linter }),
    }
    plan_packages(packages, "compiling for the BPF target", steps);
    if !ready {
        steps.push(Step::Linker);
    }
}

fn lacks_clippy(compiler: &Compiler) -> bool {
    !paths::is_executable(&compiler.bin.join("cargo-clippy"))
}

/// What virtual machines take: of qemu, what is neither installed nor in the cache, and what is not
/// known by a name on the PATH.
fn plan_guests(mut packages: Vec<String>, cache: &Path, steps: &mut Vec<Step>) {
    if hypervisor::emulator(cache).is_some() {
        packages.retain(|package| !guests::OF_QEMU.contains(&package.as_str()));
    }
    if hypervisor::static_busybox().is_none() {
        packages.push("busybox-static".to_owned());
    }
    if hypervisor::virtiofsd(cache).is_none() {
        // Debian 12 has it in qemu's common files, later ones in a package of its own.
        let of_its_own = apt::has_candidate("virtiofsd");
        packages.push(
            if of_its_own {
                "virtiofsd"
            } else {
                "qemu-system-common"
            }
            .to_owned(),
        );
    }
    if !packages.is_empty() {
        steps.push(Step::Guests(packages));
    }
}

fn plan_kernels(cache: &Path, steps: &mut Vec<Step>) {
    let missing: Vec<_> = kernels::Line::ALL
        .into_iter()
        .filter(|line| kernels::find(cache, *line).is_none())
        .collect();
    if !missing.is_empty() {
        steps.push(Step::Kernels(missing));
    }
}

fn plan_windows(steps: &mut Vec<Step>) {
    let mut packages = Vec::new();
    if let Err(missing) = WindowsToolchain::discover() {
        let compiler = missing.compiler.is_some();
        packages = plan_foreign(TARGET, compiler, steps);
        packages.extend(missing.linker.then(|| WINDOWS_LINKER_PACKAGE.to_owned()));
    }
    // Elsewhere the comparison is skipped without it, and says so.
    if wine::program().is_none() && apt::is_debian() {
        packages.push("wine64".to_owned());
    }
    plan_packages(packages, "compiling for Windows", steps);
}

/// The C compiler for what images hold, and musl.
const MUSL_PACKAGE: &str = "musl-tools";

fn plan_image(steps: &mut Vec<Step>) {
    let architecture = Architecture::Amd64;
    if let Err(missing) = ImageToolchain::discover(architecture) {
        let compiler = missing.compiler.is_some();
        let mut packages = plan_foreign(architecture.target(), compiler, steps);
        packages.extend(missing.c.then(|| MUSL_PACKAGE.to_owned()));
        plan_packages(packages, "compiling what images hold", steps);
    }
}

/// A compiler for another target, if it is `missing`: the packages that are not there, or a step.
fn plan_foreign(target: &'static str, missing: bool, steps: &mut Vec<Step>) -> Vec<String> {
    let mut packages = Vec::new();
    if missing && apt::is_debian() {
        packages.extend(foreign::PACKAGES.iter().map(|name| (*name).to_owned()));
        packages.retain(|package| !apt::is_installed(package));
    } else if missing {
        steps.push(Step::Target(target));
    }
    packages
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A compiler and what is asked of it.
    fn compiler(bin: &Path, release: &str) {
        fs::create_dir_all(bin).unwrap();
        let says = format!(
            "echo 'release: {release}'; echo 'commit-date: 2026-05-19'; \
             echo 'LLVM version: 22.1.8'"
        );
        for name in ["rustc", "cargo"] {
            let file = bin.join(name);
            fs::write(&file, format!("#!/bin/sh\n{says}\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    fn planned(dir: &Path, linter: bool) -> Vec<Step> {
        let places = Places {
            rustup_home: Some(dir.join("rustup")),
            distribution_bin: dir.join("bin"),
            cache: Some(dir.join("cache")),
            linker_on_path: None,
        };
        let mut steps = Vec::new();
        plan_toolchain(&places, linter, &mut steps);
        steps
    }

    #[test]
    fn where_the_distribution_went_on_the_nightly_is_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        compiler(&dir.path().join("bin"), "1.98.1");
        let steps = planned(dir.path(), false);
        assert_eq!(steps, [Step::Nightly { clippy: false }, Step::Linker]);
    }

    #[test]
    fn a_nightly_that_is_there_gets_a_linker_and_its_clippy_where_that_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let nightly = dir.path().join("rustup/toolchains/nightly-x");
        compiler(&nightly.join("bin"), "1.97.0-nightly");
        let core = nightly.join("lib/rustlib/src/rust/library/core");
        fs::create_dir_all(&core).unwrap();
        fs::write(core.join("Cargo.toml"), "").unwrap();
        assert_eq!(planned(dir.path(), false), [Step::Linker]);
        let with_clippy = [Step::Nightly { clippy: true }, Step::Linker];
        assert_eq!(planned(dir.path(), true), with_clippy);
    }
}
