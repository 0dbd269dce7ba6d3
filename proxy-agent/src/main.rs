//! Parses the command line, does what it says, and turns the result into an exit code.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use anyhow::{Context as _, Error};
use clap::Parser;
use proxy_agent::{
    LogLevelError,
    backend::ebpf::{self, OpenError},
    cluster::manifests::ManifestError,
    config::{
        self, ConfigError,
        cli::{Cli, Command, Output, RunArgs},
    },
    once, report,
    run::{self, RunError},
    start_logging,
};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => run(&cli.run),
        Some(Command::Run(args)) => run(&args),
        Some(Command::State(args)) => config::once(&args.node)
            .map_err(Error::from)
            .and_then(|(paths, node)| Ok(once::state(paths, node)?))
            .and_then(|state| {
                print(&match args.output {
                    Output::Text => report::to_text(&state),
                    Output::Json => report::to_json(&state),
                })
            }),
        Some(Command::Render(args)) => config::once(&args.node)
            .map_err(Error::from)
            .and_then(|(paths, node)| Ok(once::state(paths, node)?))
            .and_then(|state| print(&ebpf::render(&state))),
        Some(Command::Cleanup(args)) => {
            ebpf::cleanup(&args.pin_dir)
                .map_err(Error::from)
                .and_then(|found| {
                    let what = if found { "removed" } else { "nothing at" };
                    print(&format!("{what} {}\n", args.pin_dir.display()))
                })
        }
        Some(Command::Version) => print(&format!("proxy-agent {}\n", env!("CARGO_PKG_VERSION"))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("proxy-agent: {error:#}");
            exit_code(&error)
        }
    }
}

fn run(args: &RunArgs) -> Result<(), Error> {
    start_logging(args.log_format, &args.log_level)?;
    let config = config::run(args)?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the asynchronous runtime")?
        .block_on(run::run(config))?;
    Ok(())
}

/// Writes a result; a reader that went away (`| head`) is no error.
fn print(text: &str) -> Result<(), Error> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("writing to standard output")
        }
        _ => Ok(()),
    }
}

/// See `EXIT_CODES` in the command line's definition.
fn exit_code(error: &Error) -> ExitCode {
    let open = error
        .downcast_ref::<OpenError>()
        .or_else(|| match error.downcast_ref() {
            Some(RunError::Open(error)) => Some(error),
            _ => None,
        });
    let bad_input = error.is::<ConfigError>()
        || error.is::<LogLevelError>()
        || error.is::<ManifestError>()
        || matches!(error.downcast_ref(), Some(RunError::Manifests(_)));
    ExitCode::from(match open {
        _ if bad_input => 2,
        Some(OpenError::Host(_)) => 3,
        Some(OpenError::Locked(_)) => 4,
        _ => 1,
    })
}
