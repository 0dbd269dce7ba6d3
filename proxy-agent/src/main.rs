//! Parses the command line, does what it says, and turns the result into an exit code.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use anyhow::{Context as _, Error};
use clap::Parser;
use proxy_agent::{
    LogForm, LogLevelError,
    admin::{self, client, server::Asked},
    backend::{
        check::Check,
        ebpf::{self, OpenError},
    },
    cluster::manifests::ManifestError,
    config::{
        self, ConfigError,
        cli::{
            AskArgs, CheckArgs, Cli, Command, ExplainArgs, NodeArgs, Output, PinArgs, RunArgs,
            StateArgs,
        },
    },
    once,
    report::{
        self,
        explain::{self, QuestionError},
    },
    run::{self, RunError},
    start_logging,
};
use proxy_model::FatalCause;

/// Exit code where this host, or this user, cannot.
const HOST_CANNOT: u8 = 3;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => return run(&cli.run),
        Some(Command::Run(args)) => return run(&args),
        Some(Command::State(args)) => state(&args),
        Some(Command::Explain(args)) => explain_packet(&args),
        Some(Command::Check(args)) => return check(&args),
        Some(Command::Render(args)) => config::once(&args.node, None)
            .map_err(Error::from)
            .and_then(|once| Ok(once::state(once)?))
            .and_then(|state| print(&ebpf::render(&state))),
        Some(Command::Cleanup(args)) => cleanup(&args),
        Some(Command::Version) => print(&format!("proxy-agent {}\n", env!("CARGO_PKG_VERSION"))),
    };
    end(result, LogForm::Text)
}

fn state(args: &StateArgs) -> Result<(), Error> {
    if args.node.manifests.is_empty() {
        let path = if args.kernel { "/kernel" } else { "/state" };
        return ask(
            &args.ask,
            &args.node,
            path,
            Asked {
                output: args.output,
                ..Asked::default()
            },
        );
    }
    let state = once::state(config::once(&args.node, None)?)?;
    print(&match args.output {
        Output::Text => report::to_text(&state),
        Output::Json => report::to_json(&state),
    })
}

fn explain_packet(args: &ExplainArgs) -> Result<(), Error> {
    let packet = explain::packet(&args.from, &args.to, args.in_interface.as_deref())?;
    if args.node.manifests.is_empty() {
        return ask(
            &args.ask,
            &args.node,
            "/explain",
            Asked {
                output: args.output,
                from: Some(args.from.clone()),
                to: Some(args.to.clone()),
                interface: args.in_interface.clone(),
                path: args.path,
                ..Asked::default()
            },
        );
    }
    let once = config::once(&args.node, args.config.as_deref())?;
    for warning in &once.warnings {
        eprintln!("proxy-agent: {warning}");
    }
    let model = once::model(once)?;
    let explanation = explain::explain(&model, &packet, args.path.into());
    print(&match args.output {
        Output::Text => explanation.story,
        Output::Json => explanation.to_json(),
    })
}

/// Prints the running agent's answer.
fn ask(agent: &AskArgs, node: &NodeArgs, path: &str, mut asked: Asked) -> Result<(), Error> {
    let socket = config::admin_socket(agent)?;
    asked.node = config::wanted_node(node);
    let answer = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the asynchronous runtime")?
        .block_on(client::ask(&socket, path, &asked))?;
    print(&answer)
}

fn check(args: &CheckArgs) -> ExitCode {
    let options = match config::check(args) {
        Ok(options) => options,
        Err(error) => return end(Err(error.into()), LogForm::Text),
    };
    let check = Check::run(&options);
    let printed = print(&match args.output {
        Output::Text => check.to_text(),
        Output::Json => check.to_json(),
    });
    match printed {
        Ok(()) if check.is_usable() => ExitCode::SUCCESS,
        Ok(()) => HOST_CANNOT.into(),
        Err(error) => end(Err(error), LogForm::Text),
    }
}

fn cleanup(args: &PinArgs) -> Result<(), Error> {
    let pin_dir = config::pin_dir(args)?;
    let cleanup = ebpf::cleanup(&pin_dir)?;
    // Of an agent that was killed; a running one would have kept the pins locked.
    let socket = admin::socket_path(&pin_dir);
    admin::server::remove(&socket).with_context(|| format!("removing {}", socket.display()))?;
    print(&format!("{cleanup}\n"))
}

fn run(args: &RunArgs) -> ExitCode {
    match start_logging(args.log_format, &args.log_level) {
        Ok(form) => end(serve(args), form),
        Err(error) => end(Err(error.into()), LogForm::Text),
    }
}

fn serve(args: &RunArgs) -> Result<(), Error> {
    let config = config::run(args)?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the asynchronous runtime")?
        .block_on(run::run(config))?;
    Ok(())
}

/// Says what went wrong, in the form of the log: what reads JSON lines can rely on it to the last.
fn end(result: Result<(), Error>, form: LogForm) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    // Whoever has errors filtered out of the log must learn of this one all the same.
    if form == LogForm::Json && tracing::enabled!(tracing::Level::ERROR) {
        tracing::error!(error = format!("{error:#}"), "stopped");
    } else {
        eprintln!("proxy-agent: {error:#}");
    }
    exit_code(&error).into()
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
fn exit_code(error: &Error) -> u8 {
    if error.is::<ConfigError>()
        || error.is::<LogLevelError>()
        || error.is::<ManifestError>()
        || error.is::<QuestionError>()
    {
        return 2;
    }
    let open = match error.downcast_ref() {
        Some(RunError::Manifests(_) | RunError::Connect(_)) => return 2,
        Some(RunError::Sync(fatal)) if fatal.cause == FatalCause::Host => return HOST_CANNOT,
        Some(RunError::Open(error)) => Some(error),
        _ => error.downcast_ref::<OpenError>(),
    };
    match open {
        Some(OpenError::Host(_)) => HOST_CANNOT,
        Some(OpenError::Locked(_)) => 4,
        Some(OpenError::Other(_)) | None => 1,
    }
}

#[cfg(test)]
mod tests {
    use proxy_agent::{cluster::kube::ConnectError, run::Fatal};

    use super::*;

    #[test]
    fn the_exit_code_tells_a_host_that_cannot_from_a_failure() {
        let sync = |cause| {
            Error::from(RunError::Sync(Fatal {
                cause,
                reason: "attaching".to_owned(),
            }))
        };
        assert_eq!(exit_code(&sync(FatalCause::Host)), 3);
        assert_eq!(exit_code(&sync(FatalCause::Other)), 1);
        let host = || OpenError::Host("no BPF".to_owned());
        assert_eq!(exit_code(&RunError::Open(host()).into()), 3);
        assert_eq!(exit_code(&host().into()), 3);
        let locked = || OpenError::Locked("pins".into());
        assert_eq!(exit_code(&RunError::Open(locked()).into()), 4);
        assert_eq!(exit_code(&locked().into()), 4);
        let other = OpenError::Other("odd".to_owned());
        assert_eq!(exit_code(&RunError::Open(other).into()), 1);
        let mistakes = ConfigError { mistakes: vec![] };
        assert_eq!(exit_code(&mistakes.into()), 2);
        let nowhere = RunError::Connect(ConnectError::NoServer);
        assert_eq!(exit_code(&nowhere.into()), 2);
        assert_eq!(exit_code(&Error::msg("anything")), 1);
    }
}
