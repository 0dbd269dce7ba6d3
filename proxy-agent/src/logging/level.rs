//! Which lines are logged: what a user may write for it, and how it is changed while the agent runs.
//! Knows no line's meaning.

use std::sync::{Mutex, OnceLock, PoisonError};

use thiserror::Error;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    EnvFilter,
    filter::{Directive, ParseError},
};

/// What is logged unless flags or the configuration say otherwise.
pub const DEFAULT: &str = "info";

/// Libraries whose own debug lines help nobody who runs an agent. The kernel programs' lines come
/// from none of them. `notify` warns each time that a directory it watches is removed, as in every exchange
/// of a ConfigMap.
const QUIET: &str = "aya=warn,aya_obj=warn,hyper_util=warn,kube_client=warn,mio=warn,notify=error,rustls=warn,tower=warn";

/// Targets that look like any word. Those of Culvert have an underscore or colons in them.
const TARGETS: [&str; 9] = [
    "aya", "h2", "hyper", "kube", "mio", "notify", "rustls", "tonic", "tower",
];

/// A level that makes no sense.
#[derive(Debug, Error)]
#[error(
    "{level}: {reason}; use error, warn, info, debug or trace, or directives such as \
     proxy_agent=debug"
)]
pub struct LogLevelError {
    level: String,
    reason: String,
}

/// kube-proxy's verbosity (`--v`) as a level: what Kubernetes' components say at 4 and 5 helps to find
/// a defect, and above that come contents of requests.
const fn of_verbosity(verbosity: u32) -> &'static str {
    match verbosity {
        0..=3 => "info",
        4 | 5 => "debug",
        _ => "trace",
    }
}

/// A level, a number that is kube-proxy's verbosity, or directives.
pub(super) fn filter(level: &str) -> Result<EnvFilter, LogLevelError> {
    directives(level)
        .and_then(|all| build(&all).map_err(|error| error.to_string()))
        .map_err(|reason| LogLevelError {
            level: level.to_owned(),
            reason,
        })
}

/// One by one: given a text, the library takes each comma for the end of a directive.
fn build(directives: &str) -> Result<EnvFilter, ParseError> {
    let nothing = EnvFilter::builder().with_default_directive(LevelFilter::OFF.into());
    parts(directives).try_fold(nothing.parse("")?, |filter, part| {
        Ok(filter.add_directive(part.parse::<Directive>()?))
    })
}

/// Checks what a user wrote.
pub fn check(level: &str) -> Result<(), LogLevelError> {
    filter(level).map(drop)
}

/// What the library is to be given. A plain level is for Culvert's own lines; whoever writes
/// directives gets just those.
fn directives(level: &str) -> Result<String, String> {
    if let Ok(verbosity) = level.trim().parse() {
        return Ok(format!("{},{QUIET}", of_verbosity(verbosity)));
    }
    let parts: Vec<&str> = parts(level).filter(|part| !part.is_empty()).collect();
    // The library takes a single word for the name of a target: a level that is misspelt would leave
    // an agent without a log.
    if let Some(word) = parts.iter().find(|part| !is_directive(part)) {
        return Err(format!("{word:?} is no level"));
    }
    match parts[..] {
        [] => Err("names no level".to_owned()),
        [level] if level.parse::<LevelFilter>().is_ok() => Ok(format!("{level},{QUIET}")),
        _ => Ok(parts.join(",")),
    }
}

fn is_directive(part: &str) -> bool {
    part.contains(['=', '[', ':', '_'])
        || TARGETS.contains(&part)
        || part.parse::<LevelFilter>().is_ok()
}

/// What stands between commas, but for those between brackets: `[span{a,b}]` is one.
fn parts(level: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    level
        .split(move |character| {
            match character {
                '[' | '{' => depth += 1,
                ']' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            character == ',' && depth == 0
        })
        .map(str::trim)
}

/// The level of the log of this process, which can be changed.
struct Control {
    /// As it was written.
    level: Mutex<String>,
    change: Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>,
}

static CONTROL: OnceLock<Control> = OnceLock::new();

/// The log of this process has this level, and `change` changes it. Once for a process.
pub(super) fn control(
    level: &str,
    change: impl Fn(EnvFilter) -> Result<(), String> + Send + Sync + 'static,
) {
    let control = Control {
        level: Mutex::new(level.to_owned()),
        change: Box::new(change),
    };
    // A second log is of a program that embeds this library.
    drop(CONTROL.set(control));
}

/// The level in force, as it was written; `None` for a process whose log somebody else set up.
pub fn now() -> Option<String> {
    let level = CONTROL.get()?.level.lock();
    Some(level.unwrap_or_else(PoisonError::into_inner).clone())
}

/// Logs by this level from now on. It lasts as long as the process.
pub fn change(level: &str) -> Result<(), LogLevelError> {
    let failed = |reason: &str| LogLevelError {
        level: level.to_owned(),
        reason: reason.to_owned(),
    };
    let filter = filter(level)?;
    let not_ours = "the log of this process was set up by another program";
    let control = CONTROL.get().ok_or_else(|| failed(not_ours))?;
    let mut now = control.level.lock().unwrap_or_else(PoisonError::into_inner);
    (control.change)(filter).map_err(|reason| failed(&reason))?;
    let before = std::mem::replace(&mut *now, level.trim().to_owned());
    drop(now);
    // Lines of the `log` crate are cut off before they come to the filter.
    log::set_max_level(match LevelFilter::current() {
        LevelFilter::OFF => log::LevelFilter::Off,
        LevelFilter::ERROR => log::LevelFilter::Error,
        LevelFilter::WARN => log::LevelFilter::Warn,
        LevelFilter::INFO => log::LevelFilter::Info,
        LevelFilter::DEBUG => log::LevelFilter::Debug,
        LevelFilter::TRACE => log::LevelFilter::Trace,
    });
    tracing::info!(level = level.trim(), before, "log level changed");
    Ok(())
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
            "info,",
            "proxy_agent",
            "proxy_agent::pipeline",
            "hyper,info",
            "proxy_agent=debug",
            "info,kube_client=trace",
            "[sync]=debug",
            "[span{a,b}]",
            "info,[span{a=1,b}]=trace",
            "0",
            "9",
        ] {
            assert!(check(level).is_ok(), "{level}: {:?}", check(level));
        }
        for (level, word) in [("loud", "loud"), ("info,inof", "inof"), ("-1", "-1")] {
            let told = check(level).unwrap_err().to_string();
            let expected = format!("{level}: {word:?} is no level; ");
            assert!(told.starts_with(&expected), "{told}");
        }
        for level in ["info,foo=bar", "", ",", "info,[a{b"] {
            assert!(check(level).is_err(), "{level:?}");
        }
    }

    #[test]
    fn a_plain_level_leaves_libraries_quiet_however_it_is_written() {
        let quiet = |level: &str| directives(level).unwrap().ends_with(QUIET);
        assert!(["info", "info,", " debug", "4"].into_iter().all(quiet));
        assert!(
            !["info,hyper_util=debug", "proxy_agent"]
                .into_iter()
                .any(quiet)
        );
    }

    #[test]
    fn verbosity_is_a_level() {
        let level = |verbosity: &str| directives(verbosity).unwrap();
        for (verbosity, starts) in [
            ("0", "info"),
            ("2", "info"),
            ("4", "debug"),
            ("6", "trace"),
            ("10", "trace"),
        ] {
            assert!(level(verbosity).starts_with(starts), "{verbosity}");
        }
    }
}
