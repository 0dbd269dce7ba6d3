//! `cargo xtask bench`: what a Service costs. What it does is in the library.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    proxy_bench::main(&proxy_bench::Options::parse())
}
