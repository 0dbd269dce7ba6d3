//! A whole backend in one call: flags, signals, a brain that comes and goes, retries, reports.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use proxy_api::{
//!     driver,
//!     model::{Backend, Capability, ChangeSet, NodeState, SyncError, SyncReport},
//! };
//!
//! struct Count;
//!
//! impl Backend for Count {
//!     fn name(&self) -> &'static str {
//!         "count"
//!     }
//!
//!     fn lacks(&self) -> &'static [Capability] {
//!         &Capability::ALL
//!     }
//!
//!     fn sync(&mut self, state: &NodeState, _: &ChangeSet) -> Result<SyncReport, SyncError> {
//!         println!("{} Service ports", state.services.len());
//!         Ok(SyncReport::default())
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     driver::main(Count)
//! }
//! ```

mod args;
mod run;
mod sink;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser;
use proxy_model::{Backend, Fatal, FatalCause};
use thiserror::Error;

pub use self::{
    args::DriverArgs,
    run::{DriverOptions, Stopped, run},
    sink::{BatchSink, Replicating},
};
use crate::client::ClientError;

/// Why a driver ended.
#[derive(Debug, Error)]
pub enum DriverError {
    /// The flags contradict each other.
    #[error("{0}")]
    Usage(String),
    /// The call to the brain failed; only with `--once`, otherwise it is retried.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The backend cannot go on.
    #[error(transparent)]
    Fatal(#[from] Fatal),
    /// The system refused a basic resource, such as a thread or a signal handler.
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
}

#[derive(Debug, Parser)]
#[command(
    disable_version_flag = true,
    after_help = "\
Exit codes:
  0  done, or stopped by SIGTERM or SIGINT (what is in force stays)
  1  failed while running
  2  bad usage
  3  cannot run on this host"
)]
struct Cli {
    #[command(flatten)]
    args: DriverArgs,
}

/// The `main` of a backend: parses the command line, keeps `backend` up to date until SIGTERM or
/// SIGINT, and turns the result into an exit code. Logs to standard error.
pub fn main(backend: impl Backend + 'static) -> ExitCode {
    main_of(Replicating::new(backend))
}

/// The same for an observer: it brings nothing into force, and reports nothing to the brain.
pub fn look_on(backend: impl Backend + 'static) -> ExitCode {
    main_of(Replicating::looking_on(backend))
}

/// The same for any [`BatchSink`], which takes operations as they come.
pub fn main_of(sink: impl BatchSink) -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_target(false)
        .init();
    let name = sink.name().to_owned();
    match start(sink, cli.args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody has to read it.
            writeln!(io::stderr(), "{name}: {error}").ok();
            ExitCode::from(match error {
                DriverError::Usage(_) => 2,
                DriverError::Fatal(Fatal {
                    cause: FatalCause::Host,
                    ..
                }) => 3,
                _ => 1,
            })
        }
    }
}

fn start(sink: impl BatchSink, args: DriverArgs) -> Result<(), DriverError> {
    let options = args.options(sink.name(), sink.lacks())?;
    let once = options.once;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| DriverError::System("starting the asynchronous runtime", error))?;
    let stopped = runtime.block_on(async {
        let signal =
            signal().map_err(|error| DriverError::System("listening to signals", error))?;
        run(sink, options, signal).await
    })?;
    if let (true, Some(token)) = (once, stopped.token) {
        let mut line = token.to_string();
        line.push('\n');
        // Not `println`, which panics when nobody reads; what is in force is, all the same.
        io::stdout()
            .write_all(line.as_bytes())
            .map_err(|error| DriverError::System("printing the state that is in force", error))?;
    }
    Ok(())
}

/// Waits for the signal to stop.
fn signal() -> io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        Ok(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        })
    }
    #[cfg(not(unix))]
    Ok(async {
        // Where it cannot be listened to, the process is ended as every other one.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    })
}
