//! The commands that need Linux: those that serve, and those that ask an agent which does.

mod cleaning;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Error};
use proxy_agent::{
    LogForm, LogLevelError,
    admin::{client, server::Asked},
    backend::check::Check,
    backends,
    bpffs::{self, MountError, Mounted},
    config::{
        self, ConfigError,
        cli::{
            AskArgs, BrainArgs, CheckArgs, ConntrackArgs, ConntrackCommand, ExplainArgs, LogArgs,
            LogLevelArgs, ModelArgs, MountBpffsArgs, PinArgs, RunArgs, StateArgs,
        },
    },
    host::settings::apply,
    log_level,
    report::{self, Form},
    run::{self, Anew, ConfigFile, Configuration, RunError, handed_over, hold_signals},
    start_logging,
};
use proxy_backend::{OpenError, connections::Connections};
use proxy_model::FatalCause;
use tokio::task::block_in_place;

use crate::{HOST_CANNOT, end, print};
pub use cleaning::{cleanup, cleanup_all};

/// Serves until stopped.
pub fn run(args: RunArgs) -> ExitCode {
    logging(&args.agent.log.clone(), || {
        run::serve(move |handle| async move {
            handle.heart.at(CONFIGURATION);
            let config = block_in_place(|| config::run(&args, handed_over().as_deref()))?;
            log_as_kube_proxy(config.agent.verbosity);
            let path = args.agent.model.config.clone();
            let read = move |text: &str| {
                let config = config::run(&args, Some(text));
                config.map(Box::new).map(Configuration::Run)
            };
            Ok(run::run(config, watched(path, read), handle).await?)
        })
    })
}

/// Computes the state for others until stopped.
pub fn brain(args: BrainArgs) -> ExitCode {
    logging(&args.agent.log.clone(), || {
        run::serve(move |handle| async move {
            handle.heart.at(CONFIGURATION);
            let config = block_in_place(|| config::brain(&args, handed_over().as_deref()))?;
            log_as_kube_proxy(config.verbosity);
            let path = args.agent.model.config.clone();
            let read = move |text: &str| {
                let config = config::brain(&args, Some(text));
                config.map(Box::new).map(Configuration::Brain)
            };
            Ok(run::brain(config, watched(path, read), handle).await?)
        })
    })
}

/// The configuration file, if there is one.
fn watched(
    path: Option<PathBuf>,
    read: impl Fn(&str) -> Result<Configuration, ConfigError> + Send + Sync + 'static,
) -> Option<ConfigFile> {
    path.map(|path| ConfigFile::new(path, read))
}

/// Logs as kube-proxy's verbosity says, which may stand in a file.
fn log_as_kube_proxy(verbosity: Option<i32>) {
    if let Some(verbosity) = verbosity {
        // Only a log of somebody else's cannot be changed.
        log_level::change(&verbosity.to_string()).ok();
    }
}

/// What reading files may hang in.
const CONFIGURATION: &str = "reading the configuration";

/// Starts the log, and says there why the agent ended. Where it is to begin anew, the process executes
/// itself.
fn logging(args: &LogArgs, live: impl FnOnce() -> Result<Option<Anew>, Error>) -> ExitCode {
    // Before the log has a thread.
    hold_signals();
    let level = args.log_level.as_deref().unwrap_or(log_level::DEFAULT);
    let log = match start_logging(args.log_format, level) {
        Ok(log) => log,
        Err(error) => return end(Err(Error::from(error).context("--log-level"))),
    };
    match live() {
        // What reads JSON lines can rely on it to the last. Whoever has errors filtered out of
        // the log must learn of this one all the same.
        Err(error) if log.form() == LogForm::Json && tracing::enabled!(tracing::Level::ERROR) => {
            tracing::error!(error = format!("{error:#}"), "stopped");
            crate::exit_code(&error).into()
        }
        result => {
            // What is said now comes behind all that was logged.
            drop(log);
            end(match result {
                Ok(None) => Ok(()),
                Ok(Some(anew)) => anew.execute().map_err(Error::from),
                Err(error) => Err(error),
            })
        }
    }
}

/// `state` of the running agent, or of the kernel that it programs.
pub fn ask_state(args: &StateArgs) -> Result<(), Error> {
    let path = if args.kernel { "/kernel" } else { "/state" };
    let asked = Asked {
        output: args.output,
        ..Asked::default()
    };
    ask(&args.ask, &args.model, path, asked)
}

/// `explain` by the running agent.
pub fn ask_explain(args: &ExplainArgs) -> Result<(), Error> {
    let asked = Asked {
        output: args.output,
        from: Some(args.from.clone()),
        to: Some(args.to.clone()),
        interface: args.in_interface.clone(),
        path: args.path,
        ..Asked::default()
    };
    ask(&args.ask, &args.model, "/explain", asked)
}

/// Prints the running agent's answer.
fn ask(agent: &AskArgs, model: &ModelArgs, path: &str, mut asked: Asked) -> Result<(), Error> {
    let socket = config::asked(agent, model)?;
    asked.node = config::wanted_node(&model.node);
    let answer = asynchronous()?.block_on(client::ask(&socket, path, &asked))?;
    print(&answer)
}

/// For one question.
fn asynchronous() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the asynchronous runtime")
}

/// The level of the running agent's log: what it is, or from now on.
pub fn log_level(args: &LogLevelArgs) -> Result<(), Error> {
    if let Some(level) = &args.level {
        log_level::check(level)?;
    }
    let socket = config::asked(&args.ask, &ModelArgs::default())?;
    let answer = asynchronous()?.block_on(client::log_level(&socket, args.level.as_deref()))?;
    print(&answer)
}

/// What this host supports.
pub fn check(args: &CheckArgs) -> ExitCode {
    let settings = match config::check(args) {
        Ok(settings) => settings,
        Err(error) => return end(Err(error.into())),
    };
    let check = Check::run(backends::ALL, &settings);
    let printed = print(&match args.output {
        Form::Text => check.to_text(),
        Form::Json => check.to_json(),
    });
    match printed {
        Ok(()) if check.is_usable() => ExitCode::SUCCESS,
        Ok(()) => HOST_CANNOT.into(),
        Err(error) => end(Err(error)),
    }
}

/// Lists, counts or ends connections from outside.
pub fn conntrack(args: &ConntrackArgs) -> Result<(), Error> {
    match &args.command {
        ConntrackCommand::List(list) => {
            let flows = connections(&list.pins)?.list(&list.which.which())?;
            let mut pieces = report::connections::list(&flows, list.output);
            pieces.try_for_each(|piece| print(&piece))
        }
        ConntrackCommand::Stats(stats) => {
            let census = connections(&stats.pins)?.census()?;
            print(&report::connections::census(&census, stats.output))
        }
        ConntrackCommand::Flush(flush) => {
            let ended = connections(&flush.pins)?.end(&flush.which.which())?;
            print(&report::connections::ended(&ended))?;
            if ended.came_back > 0 {
                return Err(Error::msg("not all of them could be ended"));
            }
            Ok(())
        }
    }
}

/// The connections that the backend which has any translates on this host.
fn connections(args: &PinArgs) -> Result<Box<dyn Connections>, Error> {
    let settings = config::cleanup(args)?;
    let mut hosts = backends::ALL.iter().filter_map(|kind| kind.host());
    let found = hosts.find_map(|host| host.connections(&settings));
    let found = found.context("this build has no backend with programs on devices")?;
    Ok(found?)
}

/// kube-proxy's `--init-only`: the settings of the host, which serving only writes where it may. A default that
/// this host does not take keeps nobody from serving.
pub fn init(args: &RunArgs) -> Result<(), Error> {
    let applied = apply::apply_here(&config::host_settings(args)?);
    for (file, value) in &applied.changed {
        print(&format!("set {} to {value}\n", file.display()))?;
    }
    for file in &applied.missing {
        let file = file.display();
        print(&format!(
            "{file} is not there: the kernel has no such setting\n"
        ))?;
    }
    let (asked, defaults): (Vec<_>, Vec<_>) = applied
        .failed
        .iter()
        .partition(|failed| failed.is_asked_for);
    for failed in defaults {
        print(&format!("{failed}; the host keeps its own value\n"))?;
    }
    if asked.is_empty() {
        return print("the host is prepared\n");
    }
    let asked = asked.iter().map(ToString::to_string);
    Err(Error::msg(asked.collect::<Vec<_>>().join("\n")))
}

/// Mounts the BPF file system.
pub fn mount_bpffs(args: &MountBpffsArgs) -> Result<(), Error> {
    let at = args.at.display();
    print(&match bpffs::ensure(&args.at)? {
        Mounted::Now => format!("mounted the BPF file system at {at}\n"),
        Mounted::Before => format!("the BPF file system is mounted at {at} already\n"),
    })
}

/// The exit code of an error that only these commands have.
pub fn exit_code(error: &Error) -> Option<u8> {
    if error.is::<LogLevelError>() {
        return Some(2);
    }
    if let Some(error) = error.downcast_ref() {
        return match error {
            MountError::Place { .. } => Some(2),
            MountError::Kernel | MountError::WouldGo { .. } | MountError::Rights { .. } => {
                Some(HOST_CANNOT)
            }
            MountError::Io { .. } => None,
        };
    }
    let open = match error.downcast_ref() {
        Some(RunError::Manifests(_) | RunError::Connect(_) | RunError::Listen(_)) => {
            return Some(2);
        }
        Some(RunError::Sync(fatal)) if fatal.cause == FatalCause::Host => {
            return Some(HOST_CANNOT);
        }
        Some(RunError::NoBackend(_)) => return Some(HOST_CANNOT),
        Some(RunError::Served(_)) => return Some(4),
        Some(RunError::Open(error)) => Some(error),
        _ => error.downcast_ref::<OpenError>(),
    };
    match open {
        Some(OpenError::Host(_)) => Some(HOST_CANNOT),
        Some(OpenError::Locked(_) | OpenError::Held { .. }) => Some(4),
        Some(OpenError::Later(_) | OpenError::Other(_)) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use proxy_agent::{
        backend::choice::NoBackend, cluster::kube::ConnectError, config::ConfigError, run::Fatal,
    };

    use super::*;
    use crate::exit_code;

    #[test]
    fn the_exit_code_tells_a_host_that_cannot_from_a_failure() {
        let sync = |cause| {
            Error::from(RunError::Sync(Fatal {
                cause,
                reason: "attaching".to_owned(),
            }))
        };
        assert_eq!(exit_code(&sync(FatalCause::Host)), 3);
        assert_eq!(exit_code(&RunError::NoBackend(NoBackend(vec![])).into()), 3);
        assert_eq!(exit_code(&sync(FatalCause::Other)), 1);
        let host = || OpenError::Host("no BPF".to_owned());
        assert_eq!(exit_code(&RunError::Open(host()).into()), 3);
        assert_eq!(exit_code(&host().into()), 3);
        let locked = || OpenError::Locked("pins".into());
        assert_eq!(exit_code(&RunError::Open(locked()).into()), 4);
        assert_eq!(exit_code(&locked().into()), 4);
        let held = OpenError::Held {
            holder: "process 7 of node-a".to_owned(),
            does: "programs rules",
            shown_by: "table ip culvert-lock",
        };
        assert_eq!(exit_code(&RunError::Open(held).into()), 4);
        let other = OpenError::Other("odd".to_owned());
        assert_eq!(exit_code(&RunError::Open(other).into()), 1);
        let mistakes = ConfigError { mistakes: vec![] };
        assert_eq!(exit_code(&mistakes.into()), 2);
        let nowhere = RunError::Connect(ConnectError::NoServer);
        assert_eq!(exit_code(&nowhere.into()), 2);
        assert_eq!(exit_code(&Error::msg("anything")), 1);
    }
}
