//! The log: text for people, JSON lines for machines, always on standard error.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use thiserror::Error;
use tracing_subscriber::{EnvFilter, fmt, util::SubscriberInitExt};

use crate::config::cli::LogFormat;

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

/// A duration as the log shows it: milliseconds with three decimals.
pub fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// What the lines of the log are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogForm {
    /// Text for people.
    Text,
    /// A JSON object each.
    Json,
}

/// Starts logging for the whole process; records of the `log` crate (aya's, and the kernel
/// programs') are included. Returns what the log's lines now are.
pub fn start(format: LogFormat, level: &str) -> Result<LogForm, LogLevelError> {
    let filter = EnvFilter::try_new(directives(level)).map_err(|error| LogLevelError {
        level: level.to_owned(),
        reason: error.to_string(),
    })?;
    let builder = fmt().with_env_filter(filter).with_writer(io::stderr);
    let form = match format {
        LogFormat::Auto if io::stderr().is_terminal() => LogForm::Text,
        LogFormat::Text => LogForm::Text,
        LogFormat::Auto | LogFormat::Json => LogForm::Json,
    };
    let started = match form {
        LogForm::Text => builder
            .with_ansi(io::stderr().is_terminal())
            .with_target(false)
            .finish()
            .try_init(),
        LogForm::Json => builder.json().finish().try_init(),
    };
    // Fails only if a program that embeds this library has set up logging of its own.
    if let Err(error) = started {
        tracing::debug!(%error, "logging was already set up");
    }
    Ok(form)
}
