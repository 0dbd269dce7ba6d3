//! Looks at what is there and plans what is missing. Changes nothing.

use std::path::Path;

use anyhow::Result;
use xtask::paths;
use xtask::toolchain::{BpfToolchain, Compiler, Places, Route};

use super::plan::{DEBIAN_LLVM, Plan, Step};
use super::{Needs, apt};
use crate::vm::{hypervisor, kernels};
use crate::windows::toolchain::WindowsToolchain;
use crate::windows::wine;

/// Programs that tests and the demo run, and the Debian packages they are in.
const TRAFFIC_TOOLS: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("iptables-nft-save", "iptables"),
    ("ipset", "ipset"),
    ("bpftool", "bpftool"),
    ("ps", "procps"),
    ("nsenter", "util-linux"),
];

/// Programs that make a client of the node API for Python.
const GRPC_TOOLS: &[(&str, &str)] = &[
    ("protoc", "protobuf-compiler"),
    ("grpc_python_plugin", "protobuf-compiler-grpc"),
];

/// What such a client imports.
const GRPC_PACKAGE: &str = "python3-grpcio";

/// Programs that virtual machines take, beside the file system daemon.
const VM_TOOLS: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("depmod", "kmod"),
    ("xz", "xz-utils"),
    ("setpriv", "util-linux"),
    ("ipvsadm", "ipvsadm"),
];

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
    if needs.host {
        plan_toolchain(&Places::of_this_machine(), &mut steps);
        plan_packages(
            missing_tools(TRAFFIC_TOOLS),
            "running with real traffic",
            &mut steps,
        );
        let mut packages = missing_tools(GRPC_TOOLS);
        packages.extend(missing_python_packages());
        plan_packages(packages, "clients of the node API in Python", &mut steps);
    }
    if needs.vm {
        plan_vm(&cache, &mut steps);
    }
    if needs.windows {
        plan_windows(&mut steps);
    }
    Ok(Plan { steps, cache })
}

fn plan_packages(names: Vec<String>, purpose: &'static str, steps: &mut Vec<Step>) {
    if !names.is_empty() {
        steps.push(Step::Packages { names, purpose });
    }
}

fn missing_tools(tools: &[(&str, &str)]) -> Vec<String> {
    let missing = tools
        .iter()
        .filter(|(tool, _)| paths::find_on_path(tool).is_none());
    missing.map(|(_, package)| (*package).to_owned()).collect()
}

/// Elsewhere than on Debian the test that needs it says so.
fn missing_python_packages() -> Option<String> {
    let missing = apt::is_debian() && !apt::is_installed(GRPC_PACKAGE);
    missing.then(|| GRPC_PACKAGE.to_owned())
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

fn plan_vm(cache: &Path, steps: &mut Vec<Step>) {
    let mut packages = missing_tools(VM_TOOLS);
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
    plan_packages(packages, "virtual machines", steps);
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
