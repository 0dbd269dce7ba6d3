//! The subcommands of `config`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::config::kube_proxy::version::Version;

const FILE: &str = "File";

/// Arguments of `config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What to do with configuration files.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration file: every mistake at once, and what decides nothing
    Validate(ValidateArgs),
    /// Print the file as another version has it; what that version cannot say is told on standard error
    Convert(ConvertArgs),
    /// Print every field of a version with its default, as a file
    Defaults(VersionArgs),
    /// Tell everything about a field or a section: type, default, flags, what it decides, and how the other
    /// version spells it
    Explain(ExplainFieldArgs),
    /// Print in which fields two files of any version differ, as v1alpha1 names them, defaults included. What the
    /// mode of neither file reads is left out
    Diff(DiffArgs),
    /// Print the JSON Schema of a version
    Schema(VersionArgs),
}

/// Who else reads a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Reader {
    /// The program that this one replaces.
    KubeProxy,
}

/// Arguments of `config validate`.
#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// The file
    #[arg(help_heading = FILE, value_name = "FILE")]
    pub file: PathBuf,

    /// Whether kube-proxy takes it, too: for a node that is to go back
    #[arg(help_heading = FILE, long = "for", value_enum, value_name = "PROGRAM")]
    pub reader: Option<Reader>,
}

/// Arguments of `config convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// The file
    #[arg(help_heading = FILE, value_name = "FILE")]
    pub file: PathBuf,

    /// The version to write
    #[arg(help_heading = FILE, long, value_name = "VERSION", default_value_t = Version::NEWEST, value_parser = version)]
    pub to: Version,
}

/// Which version is meant.
#[derive(Debug, Args)]
pub struct VersionArgs {
    /// The version of the file
    #[arg(help_heading = FILE, long, value_name = "VERSION", default_value_t = Version::NEWEST, value_parser = version)]
    pub version: Version,
}

/// Arguments of `config explain`.
#[derive(Debug, Args)]
pub struct ExplainFieldArgs {
    /// The field or section, as any version spells it, such as `iptables.syncPeriod`
    #[arg(help_heading = FILE, value_name = "FIELD")]
    pub field: String,
}

/// Arguments of `config diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// A file
    #[arg(help_heading = FILE, value_name = "A")]
    pub before: PathBuf,

    /// Another one
    #[arg(help_heading = FILE, value_name = "B")]
    pub after: PathBuf,
}

fn version(text: &str) -> Result<Version, String> {
    let mut all = Version::ALL.into_iter();
    let known = all.find(|version| version.name() == text || version.api_version() == text);
    known.ok_or_else(|| {
        let names = Version::ALL.map(Version::name);
        format!("there is no such version; choose from {}", names.join(", "))
    })
}
