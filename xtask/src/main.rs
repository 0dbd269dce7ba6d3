//! `cargo xtask`: every command that a developer or CI runs.
//!
//! This file is the command line only; each command is a module of its own. What build scripts
//! need as well is in the library.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod beside;
mod build_ebpf;
mod cargo;
mod choice;
mod ci;
mod docs;
mod emulated;
mod fresh;
mod fuzz;
mod guest;
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
    /// Build the kernel object and say what is in it
    BuildEbpf(build_ebpf::Args),
    /// Show Culvert at work on a throw-away node
    Demo(workload::Args),
    /// Run tests: all of them, the quick ones, or those that depend on the kernel on another one
    Test(test::Args),
    /// Run the README's commands on a bare Debian made for it, set-up included
    Fresh(fresh::Args),
    /// Feed arbitrary objects and events to decoding and the model, for a while
    Fuzz(fuzz::Args),
    /// Build the model and the agent for Windows, and compare what they print under wine
    Windows,
    /// Measure, everything side by side
    Bench(workload::Args),
    /// Everything that has to hold before a change lands
    Ci(ci::Args),
    /// Check house rules that no compiler checks
    Tidy,
    /// Generate the reference pages from the code, and the messages of the node API from its proto
    Docs(docs::Args),
    /// Run a command on another kernel, in a virtual machine
    Vm(guest::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Setup(args) => setup::run(&args),
        Command::BuildEbpf(args) => build_ebpf::run(&args),
        Command::Demo(args) => workload::run("demo", &args),
        Command::Test(args) => test::run(&args),
        Command::Bench(args) => workload::run("bench", &args),
        Command::Fresh(args) => fresh::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Windows => windows::run(),
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
