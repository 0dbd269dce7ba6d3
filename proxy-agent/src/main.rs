//! Parses the command line, does what it says, and turns the result into an exit code.

use std::{
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Error};
use proxy_agent::{
    backend::layers,
    backends, bounded,
    called::Called,
    cluster::manifests::ManifestError,
    config::{
        self, ConfigError, Once,
        cli::{
            Cli, Command, ConfigCommand, ExplainArgs, Instead, ModelArgs, RenderArgs, RunArgs,
            StateArgs,
        },
    },
    file::write_text,
    once,
    own_node::{self, Nodes},
    report::{
        self, Form,
        explain::{self, QuestionError},
    },
};
use proxy_backend::BackendKind;
use proxy_model::Model;

/// Commands that serve, or ask an agent that does.
#[cfg(target_os = "linux")]
#[path = "main/linux.rs"]
mod system;
#[cfg(not(target_os = "linux"))]
#[path = "main/elsewhere.rs"]
mod system;

/// Exit code where this host, or this user, cannot.
const HOST_CANNOT: u8 = 3;
/// How long whoever reads standard error may keep this process.
const LAST_WORDS: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let called = Called::of(std::env::args_os());
    let mut cli = Cli::read(called.arguments);
    let shows_version = cli.version.as_deref().is_some_and(|form| form != "false");
    cli.run.take_over |= called.as_kube_proxy;
    let result = match cli.command {
        None if shows_version => version(),
        None => match cli.instead.wanted() {
            Some(Instead::WriteConfig(file)) => write_config(&cli.run, &file),
            Some(Instead::Cleanup) => system::cleanup_all(&cli.run.pins),
            Some(Instead::Init) => system::init(&cli.run),
            None => return system::run(cli.run),
        },
        Some(Command::Run(mut args)) => {
            args.take_over |= called.as_kube_proxy;
            return system::run(*args);
        }
        Some(Command::Brain(args)) => return system::brain(*args),
        Some(Command::State(args)) => state(&args),
        Some(Command::Explain(args)) => explain_packet(&args),
        Some(Command::Conntrack(args)) => system::conntrack(&args),
        Some(Command::Config(args)) => config_files(&args.command),
        Some(Command::Check(args)) => return system::check(&args),
        Some(Command::Render(args)) => render(&args),
        Some(Command::Cleanup(args)) => system::cleanup(&args),
        Some(Command::LogLevel(args)) => system::log_level(&args),
        Some(Command::MountBpffs(args)) => system::mount_bpffs(&args),
        Some(Command::Version) => version(),
    };
    end(result)
}

fn version() -> Result<(), Error> {
    print(concat!("proxy-agent ", env!("CARGO_PKG_VERSION"), "\n"))
}

/// As kube-proxy's `--write-config-to`: everything that can be configured, as file and flags make it.
fn write_config(args: &RunArgs, file: &Path) -> Result<(), Error> {
    let (text, lost) = config::written(args)?;
    for lost in lost {
        tell(&lost);
    }
    write_text(file, &text)
        .with_context(|| format!("writing the configuration to {}", file.display()))
}

fn config_files(command: &ConfigCommand) -> Result<(), Error> {
    let answer = config::files::answer(command)?;
    for aside in answer.asides {
        tell(&aside);
    }
    print(&answer.text)
}

fn state(args: &StateArgs) -> Result<(), Error> {
    if args.model.node.manifests.is_empty() {
        return system::ask_state(args);
    }
    let model = load(settle(&args.model)?)?;
    let state = model.state();
    print(&match args.output {
        Form::Text => report::to_text(state),
        Form::Json => report::to_json(state),
    })
}

fn render(args: &RenderArgs) -> Result<(), Error> {
    let once = settle(&args.model)?;
    let (settings, mode, order) = (once.backends.clone(), once.mode, once.order.clone());
    let model = load(once)?;
    let named = args.backend.as_deref();
    print(
        &match named.and_then(|name| BackendKind::named(name, backends::ALL)) {
            Some(kind) => kind.render(model.state(), &settings, false),
            None => layers::render(mode, &order, model.state(), &settings)?,
        },
    )
}

fn explain_packet(args: &ExplainArgs) -> Result<(), Error> {
    let packet = explain::packet(&args.from, &args.to, args.in_interface.as_deref())?;
    if args.model.node.manifests.is_empty() {
        return system::ask_explain(args);
    }
    let model = load(settle(&args.model)?)?;
    let explanation = explain::explain(&model, &packet, args.path.into());
    print(&match args.output {
        Form::Text => explanation.story,
        Form::Json => explanation.to_json(),
    })
}

/// What a command needs that computes from manifests. Says what is odd about the configuration.
fn settle(args: &ModelArgs) -> Result<Once, Error> {
    let once = config::once(args)?;
    for warning in &once.warnings {
        tell(warning);
    }
    Ok(once)
}

/// The cluster of the manifests. Says so where it has no such node.
fn load(once: Once) -> Result<Model, Error> {
    let model = once::model(once)?;
    if let Some(missing) = own_node::missing(&model, Nodes::Given) {
        tell(&missing.text);
    }
    Ok(model)
}

/// What a terminal only shows: much of it is what others wrote.
fn harmless(text: &str) -> String {
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    text.replace(steers, "\u{fffd}")
}

/// Writes a result; a reader that went away (`| head`) is no error.
fn print(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout();
    match stdout
        .write_all(harmless(text).as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("writing to standard output")
        }
        _ => Ok(()),
    }
}

/// Says something on standard error. Nobody has to read it, and what cannot be written is no error:
/// there would be nowhere to say so.
fn tell(text: &str) {
    let line = format!("proxy-agent: {}\n", harmless(text));
    let written = bounded::within(LAST_WORDS, move || io::stderr().write_all(line.as_bytes()));
    drop(written);
}

/// Says what went wrong.
fn end(result: Result<(), Error>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    tell(&format!("{error:#}"));
    exit_code(&error).into()
}

/// See `EXIT_CODES` in the command line's definition.
fn exit_code(error: &Error) -> u8 {
    if error.is::<ConfigError>() || error.is::<ManifestError>() || error.is::<QuestionError>() {
        return 2;
    }
    system::exit_code(error).unwrap_or(1)
}
