//! `culvert-pod`: what runs inside the pods of a test world. See `proxy_harness::pod`.

use anyhow::Result;
use clap::{Parser, Subcommand};
use proxy_harness::pod::{Listen, probe, serve};

/// Serves and probes from inside a pod of a test world.
#[derive(Debug, Parser)]
#[command(name = "culvert-pod")]
struct Arguments {
    #[command(subcommand)]
    command: Mode,
}

#[derive(Debug, Subcommand)]
enum Mode {
    /// Answers every request with the address it was reached at, until killed
    Serve {
        /// Where to listen, as tcp:IP:PORT or udp:IP:PORT; TCP ports speak HTTP too
        #[arg(value_name = "PROTOCOL:IP:PORT")]
        listen: Vec<Listen>,
    },
    /// Reads requests from stdin and answers on stdout, one JSON value per line
    Probe,
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Mode::Serve { listen } => serve::run(&listen),
        Mode::Probe => probe::run(),
    }
}
