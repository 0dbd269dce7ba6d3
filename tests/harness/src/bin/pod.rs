//! `culvert-pod`: what runs inside the pods of a test world, and what starts agents as a pod's
//! container. See `proxy_harness::pod` and `proxy_harness::container`.

use std::ffi::OsString;

use anyhow::Result;
use clap::{Parser, Subcommand};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use proxy_harness::{
    container::Container,
    pod::{Listen, probe, serve},
};

/// Serves and probes from inside a pod of a test world, and contains other programs.
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
    /// Executes a program with no more rights than a container gives it
    Contain {
        /// The container, as JSON
        #[arg(value_parser = container)]
        container: Container,
        /// The program and its arguments
        #[arg(required = true, last = true)]
        command: Vec<OsString>,
    },
}

fn container(json: &str) -> Result<Container, String> {
    serde_json::from_str(json).map_err(|error| format!("not a container: {error}"))
}

/// Open files of a process: tests hold thousands of connections.
const OPEN_FILES: u64 = 1 << 16;

fn main() -> Result<()> {
    match Arguments::parse().command {
        Mode::Serve { listen } => {
            raise_open_files();
            serve::run(&listen)
        }
        Mode::Probe => {
            raise_open_files();
            probe::run()
        }
        // With the limits of its caller.
        Mode::Contain { container, command } => match container.execute(&command)? {},
    }
}

/// As far as it goes: root may exceed the hard limit, which some hosts have at 4,096, but not everywhere.
/// Whoever needs more is told so by the socket that it cannot have.
fn raise_open_files() {
    let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    let wanted = hard.max(OPEN_FILES);
    let raised = [wanted, hard]
        .into_iter()
        .any(|limit| setrlimit(Resource::RLIMIT_NOFILE, limit, limit).is_ok());
    if !raised {
        eprintln!("the limit of open files stays as it is");
    }
}
