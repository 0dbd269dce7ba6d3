//! `cargo xtask bench`: what a Service costs. See `proxy_tests::bench`.

use std::process::ExitCode;

use clap::Parser as _;
use proxy_tests::bench;

fn main() -> ExitCode {
    bench::main(&bench::Options::parse())
}
