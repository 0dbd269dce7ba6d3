//! `cargo xtask`: every command that a developer or CI runs.
//!
//! This file is the command line only; each command is a module of its own. What build scripts
//! need as well is in the library.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

// First: what it defines takes the place of the standard library's in all others.
#[macro_use]
mod said;

mod beside;
mod build_ebpf;
mod cargo;
mod choice;
mod ci;
mod docs;
mod emulated;
mod foreign;
mod fresh;
mod fuzz;
mod guest;
mod image;
mod matrix;
mod progress;
mod setup;
mod skips;
mod stop;
mod suites;
mod tally;
mod test;
mod test_programs;
mod tidy;
mod vm;
mod windows;
mod workload;

/// Developer and CI commands of Culvert.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Find or install what building and testing needs; does nothing when it is all there
    Setup(setup::Args),
    /// Build the kernel object, and list its programs
    BuildEbpf(build_ebpf::Args),
    /// Show Culvert at work on a throw-away node
    Demo(workload::Args),
    /// Run tests: all of them, the quick ones, or the kernel-dependent ones on another kernel
    Test(test::Args),
    /// Run the README's commands, set-up included, on a bare Debian made for the purpose
    Fresh(fresh::Args),
    /// Fuzz decoding, the model, and what becomes of packets, with arbitrary input
    Fuzz(fuzz::Args),
    /// Build the model and the agent for Windows, and compare what they print under wine
    Windows,
    /// Make the container image, without a container engine
    Image(image::Args),
    /// Run the benchmarks, everything side by side
    Bench(workload::Args),
    /// Run everything that must pass before a change is merged
    Ci(ci::Args),
    /// Check house rules that no compiler checks
    Tidy,
    /// Generate the reference pages from the code, and the node API's Rust messages from its proto
    Docs(docs::Args),
    /// Run a command on another kernel, in a virtual machine
    Vm(guest::Args),
}

use workload::Workload;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Setup(args) => setup::run(&args),
        Command::BuildEbpf(args) => build_ebpf::run(&args),
        Command::Demo(args) => workload::run(Workload::Demo, &args),
        Command::Test(args) => test::run(&args),
        Command::Bench(args) => workload::run(Workload::Bench, &args),
        Command::Fresh(args) => fresh::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Windows => windows::run(),
        Command::Image(args) => image::run(&args),
        Command::Ci(args) => Ok(ci::run(&args)),
        Command::Tidy => tidy::run(),
        Command::Docs(args) => docs::run(&args),
        Command::Vm(args) => guest::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        // Not returned from main, which would print a backtrace where one is asked for: these
        // are messages for people.
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use setup::provisions::packages;
    use setup::{Needs, needs};

    use super::*;

    /// What the command sees to before it does anything.
    fn needs_of(line: &str) -> Needs {
        let words = ["cargo xtask"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words).unwrap().command {
            Command::Setup(args) => args.needs(),
            Command::BuildEbpf(args) => args.needs(),
            Command::Demo(args) => Workload::Demo.needs(&args),
            Command::Bench(args) => Workload::Bench.needs(&args),
            Command::Test(args) => args.needs(),
            Command::Fresh(_) => fresh::NEEDS,
            Command::Fuzz(_) => fuzz::NEEDS,
            Command::Windows => windows::NEEDS,
            Command::Image(args) => args.needs(),
            Command::Ci(_) => ci::NEEDS,
            Command::Tidy | Command::Docs(_) => Needs::NONE,
            Command::Vm(_) => guest::NEEDS,
        }
    }

    const LOOKING: &[&str] = &["bpftool", "curl"];
    const RULES: &[&str] = &["ipset", "iptables", "nftables", "procps"];
    const PYTHON: &[&str] = &[
        "libprotobuf-dev",
        "protobuf-compiler",
        "protobuf-compiler-grpc",
        "python3-grpcio",
        "python3-minimal",
    ];
    const CHART: &[&str] = &["python3-pip"];
    const GUESTS: &[&str] = &[
        "ipvsadm",
        "kmod",
        "qemu-system-x86",
        "wireguard-tools",
        "xz-utils",
    ];

    #[test]
    fn each_command_sees_to_what_it_uses_and_to_no_more() {
        let node: &[&str] = &["iproute2"];
        let suites = [node, LOOKING, RULES].concat();
        let host = [&suites[..], PYTHON, CHART].concat();
        let emulated = [&suites[..], GUESTS].concat();
        let expected: &[(&str, &[&[&str]])] = &[
            ("demo", &[node]),
            ("demo --seconds 4", &[node]),
            ("demo --keep", &[node, LOOKING]),
            ("bench", &[node, &["nftables", "iptables"]]),
            ("build-ebpf", &[]),
            ("build-ebpf --dump", &[&["llvm"]]),
            ("test --quick", &[]),
            ("test", &[&host]),
            ("test restart", &[&suites]),
            ("test outside", &[PYTHON]),
            ("test chart", &[CHART]),
            ("test demo", &[node, LOOKING]),
            ("test --kernel 6.1", &[&emulated]),
            ("setup", &[&host]),
            ("setup --vm", &[&host, GUESTS]),
            ("fuzz", &[&["g++"]]),
            ("vm true", &[GUESTS]),
            ("windows", &[]),
            ("tidy", &[]),
            ("docs", &[]),
            ("image", &[]),
            ("fresh", &[&["debootstrap"]]),
            ("ci", &[&host, GUESTS, &["g++"]]),
        ];
        for (line, wanted) in expected {
            let wanted = wanted.concat().into_iter().collect();
            assert_eq!(packages(needs_of(line)), wanted, "cargo xtask {line}");
        }
    }

    #[test]
    fn compilers_are_for_those_that_compile_with_them() {
        for line in [
            "demo",
            "bench",
            "build-ebpf",
            "test",
            "test restart",
            "image",
            "ci",
        ] {
            assert!(needs_of(line).has(Needs::TOOLCHAIN), "{line}");
        }
        for line in ["test --quick", "tidy", "docs", "fuzz", "fresh", "vm true"] {
            assert!(!needs_of(line).has(Needs::TOOLCHAIN), "{line}");
        }
        for line in ["demo", "test", "setup"] {
            assert!(!needs_of(line).has(Needs::LINTER), "{line}");
        }
        assert!(needs_of("ci").has(Needs::LINTER.and(Needs::WINDOWS)));
        for line in ["image", "test", "test image", "setup", "ci"] {
            assert!(needs_of(line).has(Needs::IMAGE), "{line}");
        }
        // What that takes is not installed for a processor that is not this machine's.
        for line in ["demo", "test restart", "image --target arm64"] {
            assert!(!needs_of(line).has(Needs::IMAGE), "{line}");
        }
    }

    #[test]
    fn suites_with_needs_of_their_own_are_there() {
        let packages = suites::packages().unwrap();
        let programs = packages.iter().flat_map(|package| &package.programs);
        let names: Vec<_> = programs.flat_map(|program| &program.suites).collect();
        for suite in ["outside", "demo", "bench", "chart", "image"] {
            assert!(
                names.iter().any(|name| *name == suite),
                "{suite} is no suite"
            );
            assert_ne!(needs::of_suite(suite), needs::of_suite("any other"));
        }
    }
}
