//! The log: text for people, JSON lines for machines, always on standard error.

use std::io::{self, IsTerminal};

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

/// Starts logging for the whole process; records of the `log` crate (aya's, and the kernel
/// programs') are included.
pub fn start(format: LogFormat, level: &str) -> Result<(), LogLevelError> {
    let filter = EnvFilter::try_new(level).map_err(|error| LogLevelError {
        level: level.to_owned(),
        reason: error.to_string(),
    })?;
    let builder = fmt().with_env_filter(filter).with_writer(io::stderr);
    let text = match format {
        LogFormat::Auto => io::stderr().is_terminal(),
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let started = if text {
        builder
            .with_ansi(io::stderr().is_terminal())
            .with_target(false)
            .finish()
            .try_init()
    } else {
        builder.json().finish().try_init()
    };
    // Fails only if a program that embeds this library has set up logging of its own.
    if let Err(error) = started {
        tracing::debug!(%error, "logging was already set up");
    }
    Ok(())
}
