//! The log: text for people, JSON lines for machines, always on standard error. Whoever logs never
//! waits: lines queue up for a thread that writes them, and are lost where the queue is full.

pub mod level;
mod lists;
mod output;
mod panics;

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    os::fd::AsFd as _,
    time::Duration,
};

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{EnvFilter, fmt, util::SubscriberInitExt};

use crate::{bounded, log_format::LogFormat};

pub use self::{level::LogLevelError, lists::list};
use self::{lists::Lists, output::LogOutput};
pub use self::{output::lost, panics::said};

/// Lines that wait to be written: what the start of an agent in a cluster full of mistakes says at
/// once, and a few megabytes where nobody reads.
const WAITING: usize = 16_384;

/// How long the end of the process waits for them. The library gives up by itself, a little sooner.
const LAST_LINES: Duration = Duration::from_millis(1_500);

/// What the lines of the log are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogForm {
    /// Text for people.
    Text,
    /// A JSON object each.
    Json,
}

/// The log of this process. When it is dropped, what waits is written, as far as that takes no longer
/// than `LAST_LINES`.
pub struct Log {
    form: LogForm,
    writer: Option<WorkerGuard>,
}

impl Log {
    /// What its lines are.
    pub fn form(&self) -> LogForm {
        self.form
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let writer = self.writer.take();
        // Not here: if the queue is full to the last, the library has something to say on standard
        // output, where it may wait for a reader, too, or panic.
        let Some(()) = bounded::within(LAST_LINES, || drop(writer)) else {
            return;
        };
    }
}

/// Puts another filter in the place of the one in force.
type Change = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

/// Starts logging for the whole process; records of the `log` crate (aya's, and the kernel
/// programs') are included, and panics.
pub fn start(format: LogFormat, level: &str) -> Result<Log, LogLevelError> {
    let filter = level::filter(level)?;
    let is_terminal = io::stderr().is_terminal();
    let form = match format {
        LogFormat::Auto if is_terminal => LogForm::Text,
        LogFormat::Text => LogForm::Text,
        LogFormat::Auto | LogFormat::Json => LogForm::Json,
    };
    let mut log = Log { form, writer: None };
    // Not `Stderr`: a thread that waits for the reader would hold its lock.
    let stderr: Box<dyn Write + Send> = match io::stderr().as_fd().try_clone_to_owned() {
        Ok(stderr) => Box::new(File::from(stderr)),
        // There are no descriptors to be had.
        Err(_) => Box::new(io::stderr()),
    };
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(WAITING)
        .lossy(true)
        .thread_name("log")
        .finish(LogOutput::new(stderr));
    let no_room = writer.error_counter();
    let builder = fmt()
        .with_env_filter(filter)
        // It would print to standard error what keeps it from printing to standard error.
        .log_internal_errors(false)
        .with_writer(writer);
    // A callsite that is switched off costs what it did before: the filter is asked once, and again
    // after each change. Of the others each takes a lock that nobody holds.
    let (started, change): (_, Change) = match form {
        LogForm::Text => {
            let builder = builder.with_ansi(is_terminal).with_target(false);
            let builder = builder.with_filter_reloading();
            let handle = builder.reload_handle();
            let change = move |filter| handle.reload(filter).map_err(|error| error.to_string());
            (builder.finish().try_init(), Box::new(change))
        }
        LogForm::Json => {
            let builder = builder.json().map_event_format(Lists);
            let builder = builder.with_filter_reloading();
            let handle = builder.reload_handle();
            let change = move |filter| handle.reload(filter).map_err(|error| error.to_string());
            (builder.finish().try_init(), Box::new(change))
        }
    };
    match started {
        Ok(()) => {
            level::control(level, change);
            output::count(no_room);
            panics::to_the_log();
            log.writer = Some(guard);
        }
        // Fails only if a program that embeds this library has set up logging of its own.
        Err(error) => tracing::debug!(%error, "logging was already set up"),
    }
    Ok(log)
}
