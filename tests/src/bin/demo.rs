//! `cargo xtask demo`: Culvert at work on a throw-away node. See `proxy_tests::demo`.

use std::process::ExitCode;

use clap::Parser as _;
use proxy_tests::demo;

fn main() -> ExitCode {
    demo::main(&demo::Options::parse())
}
