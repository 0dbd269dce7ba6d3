//! Looks at what is there and plans what is missing. Changes nothing.

use std::path::Path;

use anyhow::Result;
use xtask::paths;
use xtask::toolchain::{BpfToolchain, Compiler, Places, Route};

use super::plan::{DEBIAN_LLVM, Plan, Step};
use super::{Needs, apt, provisions};
use crate::vm::{hypervisor, kernels};
use crate::windows::toolchain::WindowsToolchain;
use crate::windows::wine;

/// The compiler packages of the distribution route.
const COMPILER_PACKAGES: &[&str] = &["rustc-web", "cargo-web", "libstd-rust-web-dev-bpf"];

/// The distribution's clippy.
const CLIPPY_PACKAGE: &str = "rust-web-clippy";

/// The distribution's packages that compile for Windows, the linker last.
const WINDOWS_PACKAGES: &[&str] = &[
    "rustc-web",
    "cargo-web",
    "rust-web-src",
    WINDOWS_LINKER_PACKAGE,
];

/// What [`LINKER`](crate::windows::toolchain::LINKER) is in.
const WINDOWS_LINKER_PACKAGE: &str = "gcc-mingw-w64-x86-64";

/// What is missing for `needs`.
pub(crate) fn look(needs: Needs) -> Result<Plan> {
    let cache = paths::cache_dir()?;
    let mut steps = Vec::new();
    if needs.has(Needs::TOOLCHAIN) {
        plan_toolchain(&Places::of_this_machine(), &mut steps);
    }
    for (need, purpose) in provisions::PURPOSES {
        if needs.has(*need) {
            let mut packages = provisions::missing(*need);
            if *need == Needs::GUESTS {
                packages.extend(missing_for_guests());
            }
            plan_packages(packages, purpose, &mut steps);
        }
    }
    if needs.has(Needs::GUESTS) {
        plan_kernels(&cache, &mut steps);
    }
    if needs.has(Needs::WINDOWS) {
        plan_windows(&mut steps);
    }
    Ok(Plan { steps, cache })
}

fn plan_packages(names: Vec<String>, purpose: &'static str, steps: &mut Vec<Step>) {
    if !names.is_empty() {
        steps.push(Step::Packages { names, purpose });
    }
}

fn plan_toolchain(places: &Places, steps: &mut Vec<Step>) {
    const PURPOSE: &str = "compiling for the BPF target";
    let complete = BpfToolchain::discover_in(places).ok();
    let compiler = places
        .rustup_compiler()
        .or_else(|_| places.distribution_compiler())
        .ok();
    let mut packages = Vec::new();
    let mut linker = None;
    match (complete.map(|toolchain| toolchain.compiler), compiler) {
        (Some(compiler), _) => packages.extend(missing_clippy(&compiler)),
        (None, Some(compiler)) => {
            packages.extend(missing_clippy(&compiler));
            if !apt::has_llvm(compiler.llvm_major) && apt::is_debian() {
                packages.extend(apt::llvm_packages(compiler.llvm_major));
            }
            linker = Some(Step::Linker {
                llvm_major: Some(compiler.llvm_major),
            });
        }
        (None, None) if apt::is_debian() => {
            packages.extend(COMPILER_PACKAGES.iter().map(|name| (*name).to_owned()));
            packages.push(CLIPPY_PACKAGE.to_owned());
            packages.extend(apt::llvm_packages(DEBIAN_LLVM));
            packages.retain(|package| !apt::is_installed(package));
            linker = Some(Step::Linker { llvm_major: None });
        }
        (None, None) => {
            steps.push(Step::RustSource);
            linker = Some(Step::Linker { llvm_major: None });
        }
    }
    plan_packages(packages, PURPOSE, steps);
    steps.extend(linker);
}

/// The distribution's clippy, where that route is taken and lacks it. rustup's nightly gets its
/// clippy together with `rust-src`.
fn missing_clippy(compiler: &Compiler) -> Option<String> {
    let lacks = !paths::is_executable(&compiler.bin.join("cargo-clippy"));
    (compiler.route == Route::Distribution && lacks).then(|| CLIPPY_PACKAGE.to_owned())
}

/// What virtual machines take that is not known by a name on the PATH.
fn missing_for_guests() -> Vec<String> {
    let mut packages = Vec::new();
    if hypervisor::static_busybox().is_none() {
        packages.push("busybox-static".to_owned());
    }
    if hypervisor::virtiofsd().is_none() {
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
    packages
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
        if missing.compiler.is_none() {
            packages.push(WINDOWS_LINKER_PACKAGE.to_owned());
        } else if apt::is_debian() {
            packages.extend(WINDOWS_PACKAGES.iter().map(|name| (*name).to_owned()));
            packages.retain(|package| !apt::is_installed(package));
        } else {
            steps.push(Step::WindowsTarget);
            packages.extend(missing.linker.then(|| WINDOWS_LINKER_PACKAGE.to_owned()));
        }
    }
    // Elsewhere the comparison is skipped without it, and says so.
    if wine::program().is_none() && apt::is_debian() {
        packages.push("wine64".to_owned());
    }
    plan_packages(packages, "compiling for Windows", steps);
}
