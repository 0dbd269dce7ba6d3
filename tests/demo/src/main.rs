//! `cargo xtask demo`: Culvert at work on a throw-away node. What it does is in the library.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    proxy_demo::main(&proxy_demo::Options::parse())
}
