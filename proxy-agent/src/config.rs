//! What the user asked for, in two steps: as typed (`cli`), then what it means, checked as a whole
//! so that every mistake is reported at once.

pub mod cli;
pub mod reference;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use proxy_common::names::MAPS;
use thiserror::Error;

use self::cli::{NodeArgs, PinArgs, RunArgs};
use crate::backend::ebpf;

/// What `run` needs.
#[derive(Debug, Clone)]
pub struct Run {
    /// Manifest files and directories.
    pub manifests: Vec<PathBuf>,
    /// This node's name.
    pub node: Arc<str>,
    /// The dataplane.
    pub ebpf: ebpf::Options,
}

/// Every mistake in what was typed.
#[derive(Debug, Error)]
#[error("{}", .mistakes.join("\n"))]
pub struct ConfigError {
    /// One text each, naming the flag.
    pub mistakes: Vec<String>,
}

/// Checks the arguments of `run`.
pub fn run(args: &RunArgs) -> Result<Run, ConfigError> {
    let mut mistakes = Vec::new();
    let manifests = args.node.manifests.clone();
    if manifests.is_empty() {
        mistakes.push(NO_SOURCE.to_owned());
    }
    let node = node_name(&args.node, &mut mistakes);
    let pin_dir = absolute_pin_dir(&args.pins, &mut mistakes);
    let map_sizes = map_sizes(&args.map_sizes, &mut mistakes);
    if !mistakes.is_empty() {
        return Err(ConfigError { mistakes });
    }
    Ok(Run {
        manifests,
        node,
        ebpf: ebpf::Options {
            pin_dir,
            cgroup_path: args.cgroup_path.clone(),
            map_sizes,
            kernel_log: args.kernel_log,
        },
    })
}

/// Checks the arguments of a command that computes the state once.
pub fn once(args: &NodeArgs) -> Result<(Vec<PathBuf>, Arc<str>), ConfigError> {
    let mut mistakes = Vec::new();
    if args.manifests.is_empty() {
        mistakes.push(NO_SOURCE.to_owned());
    }
    let node = node_name(args, &mut mistakes);
    if mistakes.is_empty() {
        Ok((args.manifests.clone(), node))
    } else {
        Err(ConfigError { mistakes })
    }
}

/// Checks the arguments of `cleanup`.
pub fn pin_dir(args: &PinArgs) -> Result<PathBuf, ConfigError> {
    let mut mistakes = Vec::new();
    let pin_dir = absolute_pin_dir(args, &mut mistakes);
    if mistakes.is_empty() {
        Ok(pin_dir)
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

const NO_SOURCE: &str = "--manifests: no source of cluster objects was given: name a file or \
                         directory of manifests (this version has no other source)";

/// The node's name as kube-proxy finds it: as given or the host's, trimmed and in lower case.
fn node_name(args: &NodeArgs, mistakes: &mut Vec<String>) -> Arc<str> {
    let host_name = || nix::unistd::gethostname().ok()?.into_string().ok();
    let Some(name) = args.node_name.clone().or_else(host_name) else {
        mistakes.push("--node-name: the host has no usable name, so one must be given".into());
        return "".into();
    };
    let name = name.trim().to_lowercase();
    if name.is_empty() {
        mistakes.push("--node-name: must not be empty".into());
    }
    name.into()
}

fn map_sizes(typed: &[String], mistakes: &mut Vec<String>) -> BTreeMap<String, u32> {
    let sizable = || {
        MAPS.iter()
            .filter(|shape| shape.sizable)
            .map(|shape| shape.name)
    };
    let mut sizes = BTreeMap::new();
    for text in typed {
        let Some((name, entries)) = text.split_once('=') else {
            mistakes.push(format!(
                "--map-size {text}: must have the form NAME=ENTRIES"
            ));
            continue;
        };
        if !sizable().any(|known| known == name) {
            let names: Vec<_> = sizable().collect();
            mistakes.push(format!(
                "--map-size {text}: there is no map {name} with a size to choose; choose from {}",
                names.join(", ")
            ));
            continue;
        }
        match entries.parse::<u32>() {
            Ok(entries) if (1..=MOST_ENTRIES).contains(&entries) => {
                sizes.insert(name.to_owned(), entries);
            }
            _ => mistakes.push(format!(
                "--map-size {text}: entries must be a whole number from 1 to {MOST_ENTRIES}"
            )),
        }
    }
    sizes
}

/// The kernel refuses hash maps of more buckets than fit 4 GiB; this is far above any cluster.
const MOST_ENTRIES: u32 = 1 << 26;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{cli::Cli, *};

    fn run_args(args: &[&str]) -> Result<Run, ConfigError> {
        let cli = Cli::try_parse_from(["proxy-agent"].iter().chain(args)).unwrap();
        run(&cli.run)
    }

    #[test]
    fn every_mistake_is_reported_at_once() {
        let error = run_args(&[
            "--node-name=",
            "--pin-dir=pins",
            "--map-size=FRONTENDS",
            "--map-size=COUNTERS=5",
            "--map-size=SLOTS=0",
        ])
        .unwrap_err();
        let text = error.to_string();
        let named = [
            "--manifests",
            "--node-name",
            "--pin-dir",
            "FRONTENDS",
            "COUNTERS=5",
            "SLOTS=0",
        ];
        assert_eq!(error.mistakes.len(), named.len(), "{text}");
        for (mistake, named) in error.mistakes.iter().zip(named) {
            assert!(mistake.contains(named), "{mistake}");
        }
    }

    #[test]
    fn the_node_name_is_trimmed_and_lower_case_under_either_flag() {
        for flag in ["--node-name", "--hostname-override"] {
            let run = run_args(&["--manifests=x", flag, " Node-A "]).unwrap();
            assert_eq!(&*run.node, "node-a");
        }
    }

    #[test]
    fn map_sizes_are_taken_over() {
        let run = run_args(&["--manifests=x", "--node-name=n", "--map-size=SLOTS=7"]).unwrap();
        assert_eq!(
            run.ebpf.map_sizes,
            BTreeMap::from([("SLOTS".to_owned(), 7)])
        );
    }
}
