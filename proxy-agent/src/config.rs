//! What the user asked for, in two steps: as typed (`cli`, and a file that `kube_proxy` knows),
//! then what it means, checked as a whole so that every mistake is reported at once.

#[cfg(target_os = "linux")]
mod asking;
pub mod cli;
pub mod files;
pub mod kube_proxy;
pub mod reference;
#[cfg(target_os = "linux")]
mod running;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use proxy_backend::{BackendKind, Settings as BackendSettings};
use thiserror::Error;

use crate::{backend::choice::Mode, file::read_text, host::settings::HostSettings};

#[cfg(target_os = "linux")]
pub use self::{
    asking::{asked, check, wanted_node},
    running::{Agent, Brain, Listen, Run, SourceOptions, brain, run},
};
use self::{
    cli::{ModelArgs, NodeArgs, PinArgs, RunArgs},
    kube_proxy::{Extent, Given, Mistake, Settings, version::Version},
};

/// Bytes of a configuration file.
const LARGEST_CONFIG: u64 = 1 << 20;

/// Commands that compute the state once read files only.
const NO_MANIFESTS: &str =
    "--manifests: no source of cluster objects was given: give a file or directory of manifests";

/// Every mistake in what was typed.
#[derive(Debug, Error)]
#[error("{}", .mistakes.join("\n"))]
pub struct ConfigError {
    /// One text each, naming the flag.
    pub mistakes: Vec<String>,
}

/// What the file and the flags mean together; defaults if they are wrong, so that mistakes
/// elsewhere are found too.
fn settings(file: Option<&Path>, given: &[Given], mistakes: &mut Vec<String>) -> Settings {
    let text = file.and_then(|path| read_config(path, &as_flag(path), mistakes));
    settings_of(file, text.as_deref(), given, mistakes)
}

/// The same of a file that holds this text.
fn settings_of(
    file: Option<&Path>,
    text: Option<&str>,
    given: &[Given],
    mistakes: &mut Vec<String>,
) -> Settings {
    kube_proxy::settle(text, given).unwrap_or_else(|wrong| {
        let named = file.map(as_flag);
        mistakes.extend(told(wrong, named.as_deref()));
        kube_proxy::settle(None, &[]).expect("defaults hold no mistakes")
    })
}

/// How a file is called that was given with a flag.
fn as_flag(path: &Path) -> String {
    format!("--config {}", path.display())
}

/// The text of a configuration file, which messages call `named`.
fn read_config(path: &Path, named: &str, mistakes: &mut Vec<String>) -> Option<String> {
    let text = read_text(path, LARGEST_CONFIG);
    let text = text.map_err(|error| {
        mistakes.push(format!(
            "{named}: reading the file: {error}; give a file that holds a KubeProxyConfiguration"
        ));
    });
    text.ok()
}

/// Mistakes, with the file that they are in.
fn told(wrong: Vec<Mistake>, named: Option<&str>) -> impl Iterator<Item = String> {
    wrong
        .into_iter()
        .map(move |mistake| match (mistake.flag, named) {
            (None, Some(named)) => format!("{named}: {mistake}"),
            _ => mistake.to_string(),
        })
}

/// What a command needs that computes the state once.
#[derive(Debug)]
pub struct Once {
    /// Manifest files and directories, at least one.
    pub manifests: Vec<PathBuf>,
    /// The node, and what decides where its traffic goes.
    pub model: proxy_model::Settings,
    /// What the user should know about the configuration.
    pub warnings: Vec<String>,
    /// Which layers are asked for.
    pub mode: Mode,
    /// In which order backends are preferred.
    pub order: Vec<BackendKind>,
    /// What backends are told.
    pub backends: BackendSettings,
}

/// Checks the arguments of a command that computes the state once.
pub fn once(args: &ModelArgs) -> Result<Once, ConfigError> {
    let mut mistakes = Vec::new();
    let settings = settings(args.config.as_deref(), &args.given(), &mut mistakes);
    if args.node.manifests.is_empty() {
        mistakes.push(NO_MANIFESTS.to_owned());
    }
    let node = node_name(&args.node, settings.node_name.clone(), &mut mistakes);
    if mistakes.is_empty() {
        Ok(Once {
            mode: settings.mode,
            order: settings.order.clone(),
            manifests: args.node.manifests.clone(),
            backends: BackendSettings {
                masquerade_mark: settings.masquerade_mark,
                tcp_be_liberal: settings.host.tcp_be_liberal,
                timeouts: settings.timeouts,
                given: settings.backends.clone(),
                ..BackendSettings::default()
            },
            model: settings.model(node),
            warnings: settings.notices.iter().map(ToString::to_string).collect(),
        })
    } else {
        Err(ConfigError { mistakes })
    }
}

/// The configuration that the file and the flags of `run` make, as a file of the newest version. With what it
/// cannot say.
pub fn written(args: &RunArgs) -> Result<(String, Vec<String>), ConfigError> {
    let mut mistakes = Vec::new();
    let path = args.agent.model.config.as_deref();
    let named = path.map(as_flag);
    let text = path.and_then(|path| read_config(path, &as_flag(path), &mut mistakes));
    let converted =
        kube_proxy::convert(text.as_deref(), &args.given(), Version::NEWEST, Extent::All);
    let converted = converted.map_err(|wrong| mistakes.extend(told(wrong, named.as_deref())));
    let (Ok(converted), true) = (converted, mistakes.is_empty()) else {
        return Err(ConfigError { mistakes });
    };
    let lost = converted.lost.iter().map(ToString::to_string);
    Ok((converted.file, lost.collect()))
}

/// What `--init-only` prepares; checks the arguments of `run`.
pub fn host_settings(args: &RunArgs) -> Result<HostSettings, ConfigError> {
    let mut mistakes = Vec::new();
    let config = args.agent.model.config.as_deref();
    let settings = settings(config, &args.given(), &mut mistakes);
    if mistakes.is_empty() {
        Ok(settings.host)
    } else {
        Err(ConfigError { mistakes })
    }
}

/// Checks the arguments of `cleanup`, and of `conntrack`.
pub fn cleanup(args: &PinArgs) -> Result<BackendSettings, ConfigError> {
    let mut mistakes = Vec::new();
    let pin_dir = absolute_pin_dir(args, &mut mistakes);
    if mistakes.is_empty() {
        Ok(BackendSettings {
            pin_dir,
            ..BackendSettings::default()
        })
    } else {
        Err(ConfigError { mistakes })
    }
}

/// What a relative path means depends on where the agent is started: too much for a directory
/// that the next agent must find, or that is removed.
fn absolute_pin_dir(args: &PinArgs, mistakes: &mut Vec<String>) -> PathBuf {
    if !args.pin_dir.is_absolute() {
        mistakes.push(format!(
            "--pin-dir {}: must be an absolute path, such as {}",
            args.pin_dir.display(),
            cli::DEFAULT_PIN_DIR
        ));
    }
    args.pin_dir.clone()
}

/// The node's name as kube-proxy finds it: as given, as configured, or the host's; trimmed and in
/// lower case.
fn node_name(args: &NodeArgs, configured: Option<String>, mistakes: &mut Vec<String>) -> Arc<str> {
    let host_name = || gethostname::gethostname().into_string().ok();
    // As in kube-proxy, nothing is no name.
    let given = args.node_name.clone().into_iter().chain(configured);
    let mut given = given.filter(|name| !name.is_empty());
    let Some(typed) = given.next().or_else(host_name) else {
        mistakes.push("--node-name: the host has no usable name; give one".into());
        return "".into();
    };
    let name = normal_node_name(&typed);
    if name.is_empty() {
        mistakes.push("--node-name, --hostname-override: must not be blank".into());
    }
    if name.contains("$(") {
        mistakes.push(format!(
            "--node-name, --hostname-override: {typed:?} names a variable that the container does \
             not have; add it to the container's `env`, from the field spec.nodeName"
        ));
    }
    name.into()
}

fn normal_node_name(typed: &str) -> String {
    typed.trim().to_lowercase()
}
