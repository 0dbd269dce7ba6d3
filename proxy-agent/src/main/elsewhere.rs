//! Where there is no dataplane yet: the commands that serve say so. Those that compute from
//! manifests work on any system.

use std::{env::consts::OS, process::ExitCode};

use anyhow::Error;
use proxy_agent::config::cli::{
    BrainArgs, CheckArgs, CleanupArgs, ConntrackArgs, ExplainArgs, LogLevelArgs, MountBpffsArgs,
    PinArgs, RunArgs, StateArgs,
};
use thiserror::Error;

use crate::{HOST_CANNOT, end};

/// What was asked for needs a dataplane of this system.
#[derive(Debug, Error)]
#[error(
    "{what}: not possible on {OS}, for which this version has no dataplane; `state`, `explain` and \
     `render` work with --manifests"
)]
struct NotHere {
    what: &'static str,
}

fn not_here(what: &'static str) -> Result<(), Error> {
    Err(NotHere { what }.into())
}

/// Cannot serve.
pub fn run(_: RunArgs) -> ExitCode {
    end(not_here("serving Services"))
}

/// Nor think for others.
pub fn brain(_: BrainArgs) -> ExitCode {
    end(not_here("a brain for backends in other processes"))
}

/// Cannot serve either way.
pub fn check(_: &CheckArgs) -> ExitCode {
    end(not_here("looking for what a dataplane needs"))
}

/// Nothing translates here.
pub fn conntrack(_: &ConntrackArgs) -> Result<(), Error> {
    not_here("looking at connections that programs translate")
}

/// There is nothing to remove.
pub fn cleanup(_: &CleanupArgs) -> Result<(), Error> {
    not_here("removing a dataplane")
}

/// Nor anything of kube-proxy's.
pub fn cleanup_all(_: &PinArgs) -> Result<(), Error> {
    not_here("removing a dataplane")
}

/// Nor to prepare.
pub fn init(_: &RunArgs) -> Result<(), Error> {
    not_here("preparing to serve Services")
}

/// BPF programs are Linux's.
pub fn mount_bpffs(_: &MountBpffsArgs) -> Result<(), Error> {
    not_here("mounting the BPF file system")
}

/// No agent runs here.
pub fn ask_state(_: &StateArgs) -> Result<(), Error> {
    not_here("asking a running agent for its state")
}

/// No agent runs here.
pub fn log_level(_: &LogLevelArgs) -> Result<(), Error> {
    not_here("changing a running agent's log")
}

/// No agent runs here.
pub fn ask_explain(_: &ExplainArgs) -> Result<(), Error> {
    not_here("asking a running agent about a packet")
}

/// The exit code of an error that only these commands have.
pub fn exit_code(error: &Error) -> Option<u8> {
    error.is::<NotHere>().then_some(HOST_CANNOT)
}
