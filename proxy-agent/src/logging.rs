//! The log: text for people, JSON lines for machines, always on standard error. Whoever logs never
//! waits: lines queue up for a thread that writes them, and are lost where the queue is full.

mod lists;
mod output;
mod panics;

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    os::fd::AsFd as _,
    time::Duration,
};

use thiserror::Error;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{EnvFilter, filter::LevelFilter, fmt, util::SubscriberInitExt};

use crate::{bounded, log_format::LogFormat};

pub use self::lists::list;
use self::{lists::Lists, output::LogOutput};
pub use self::{output::lost, panics::said};

/// Lines that wait to be written: what the start of an agent in a cluster full of mistakes says at
/// once, and a few megabytes where nobody reads.
const WAITING: usize = 16_384;

/// How long the end of the process waits for them. The library gives up by itself, a little sooner.
const LAST_LINES: Duration = Duration::from_millis(1_500);

/// A `--log-level` that makes no sense.
#[derive(Debug, Error)]
#[error(
    "--log-level {level}: {reason}; use error, warn, info, debug or trace, or directives such as \
     proxy_agent=debug"
)]
pub struct LogLevelError {
    level: String,
    reason: String,
}

/// Libraries whose own debug lines help nobody who runs an agent. The kernel programs' lines come
/// from none of them.
const QUIET: &str = "aya=warn,aya_obj=warn,hyper_util=warn,kube_client=warn,mio=warn,notify=warn,rustls=warn,tower=warn";

/// A plain level is for Culvert's own lines; whoever writes directives gets just those.
fn directives(level: &str) -> String {
    if level.contains(['=', ',']) {
        level.to_owned()
    } else {
        format!("{level},{QUIET}")
    }
}

/// The error is why not.
fn filter(level: &str) -> Result<EnvFilter, String> {
    // The library takes a single word for the name of a target: a level that is misspelt would leave
    // an agent without a log.
    let is_level = |word: &str| word.contains(['=', '[']) || word.parse::<LevelFilter>().is_ok();
    if let Some(word) = level.split(',').find(|word| !is_level(word)) {
        return Err(format!("{word:?} is no level"));
    }
    EnvFilter::try_new(directives(level)).map_err(|error| error.to_string())
}

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

/// Starts logging for the whole process; records of the `log` crate (aya's, and the kernel
/// programs') are included, and panics.
pub fn start(format: LogFormat, level: &str) -> Result<Log, LogLevelError> {
    let filter = filter(level).map_err(|reason| LogLevelError {
        level: level.to_owned(),
        reason,
    })?;
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
    let started = match form {
        LogForm::Text => builder
            .with_ansi(is_terminal)
            .with_target(false)
            .finish()
            .try_init(),
        LogForm::Json => builder.json().map_event_format(Lists).finish().try_init(),
    };
    match started {
        Ok(()) => {
            output::count(no_room);
            panics::to_the_log();
            log.writer = Some(guard);
        }
        // Fails only if a program that embeds this library has set up logging of its own.
        Err(error) => tracing::debug!(%error, "logging was already set up"),
    }
    Ok(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_is_misspelt_is_refused_instead_of_muting_the_agent() {
        for level in [
            "info",
            "DEBUG",
            "off",
            "proxy_agent=debug",
            "info,kube_client=trace",
            "[sync]=debug",
        ] {
            assert!(filter(level).is_ok(), "{level}");
        }
        for (level, word) in [("loud", "loud"), ("info,inof", "inof")] {
            let reason = filter(level).unwrap_err();
            assert_eq!(reason, format!("{word:?} is no level"));
        }
        assert!(filter("info,foo=bar").is_err());
    }
}
