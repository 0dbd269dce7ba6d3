//! `config`: what can be asked of configuration files, without a cluster and without rights.

use std::path::Path;

use super::{
    ConfigError,
    cli::{self, ConfigCommand, ConvertArgs, DiffArgs, ValidateArgs},
    kube_proxy::{self, Extent, Mistake, Notice},
    read_config, told,
};

/// What is printed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// On standard output.
    pub text: String,
    /// On standard error, a line each.
    pub asides: Vec<String>,
}

impl Answer {
    fn new(text: String) -> Self {
        Self {
            text,
            asides: Vec::new(),
        }
    }
}

/// Answers.
pub fn answer(command: &ConfigCommand) -> Result<Answer, ConfigError> {
    match command {
        ConfigCommand::Validate(args) => validate(args),
        ConfigCommand::Convert(args) => convert(args),
        ConfigCommand::Defaults(args) => Ok(Answer::new(kube_proxy::defaults(args.version))),
        ConfigCommand::Explain(args) => {
            let flags: Vec<_> = cli::flags_of_fields()
                .chain(cli::FLAGS_BEFORE_FIELDS)
                .collect();
            let explained = kube_proxy::explained::explain(&args.field, &flags);
            let explained = explained.map_err(|text| mistake(format!("{}: {text}", args.field)))?;
            Ok(Answer::new(explained))
        }
        ConfigCommand::Diff(args) => diff(args),
        ConfigCommand::Schema(args) => {
            let schema = kube_proxy::schema::schema(args.version);
            Ok(Answer::new(format!("{schema:#}\n")))
        }
    }
}

fn mistake(text: String) -> ConfigError {
    ConfigError {
        mistakes: vec![text],
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let mut mistakes = Vec::new();
    let text = read_config(path, &path.display().to_string(), &mut mistakes);
    text.ok_or(ConfigError { mistakes })
}

fn wrong(mistakes: Vec<Mistake>, path: &Path) -> ConfigError {
    ConfigError {
        mistakes: told(mistakes, Some(&path.display().to_string())).collect(),
    }
}

fn texts(notices: &[Notice]) -> Vec<String> {
    notices.iter().map(ToString::to_string).collect()
}

fn validate(args: &ValidateArgs) -> Result<Answer, ConfigError> {
    let path = &args.file;
    let text = read(path)?;
    let mut mistakes = match args.reader {
        Some(cli::Reader::KubeProxy) => kube_proxy::refused_by_kube_proxy(&text),
        None => Vec::new(),
    };
    match kube_proxy::settle(Some(&text), &[]) {
        Ok(settings) if mistakes.is_empty() => Ok(Answer {
            text: format!("{}: {}: no mistakes\n", path.display(), settings.version),
            asides: texts(&settings.notices),
        }),
        Ok(_) => Err(wrong(mistakes, path)),
        Err(ours) => {
            mistakes.extend(ours);
            Err(wrong(mistakes, path))
        }
    }
}

fn convert(args: &ConvertArgs) -> Result<Answer, ConfigError> {
    let text = read(&args.file)?;
    let converted = kube_proxy::convert(Some(&text), &[], args.to, Extent::Said);
    let converted = converted.map_err(|mistakes| wrong(mistakes, &args.file))?;
    Ok(Answer {
        text: converted.file,
        asides: texts(&converted.lost),
    })
}

fn diff(args: &DiffArgs) -> Result<Answer, ConfigError> {
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let read =
        |text: &str, path| kube_proxy::every_field(text).map_err(|mistakes| wrong(mistakes, path));
    let (before, after) = (read(&before, &args.before)?, read(&after, &args.after)?);
    let both = before.into_iter().zip(after);
    let lines = both
        .filter(|(before, after)| before.value != after.value && (before.is_read || after.is_read))
        .map(|(before, after)| format!("{}: {} -> {}\n", before.path, before.value, after.value));
    let lines: Vec<_> = lines.collect();
    Ok(Answer::new(lines.concat()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::config::cli::{Cli, Command};

    const FIRST: &str =
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    const SECOND: &str =
        "apiVersion: kubeproxy.config.k8s.io/v1alpha2\nkind: KubeProxyConfiguration\n";

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn asked(arguments: &[&str]) -> Result<Answer, String> {
        let all = ["proxy-agent", "config"].iter().chain(arguments);
        match Cli::try_parse_from(all).unwrap().command {
            Some(Command::Config(args)) => answer(&args.command).map_err(|error| error.to_string()),
            other => panic!("{other:?}"),
        }
    }

    fn path(file: &tempfile::NamedTempFile) -> &str {
        file.path().to_str().unwrap()
    }

    #[test]
    fn a_right_file_is_told_with_what_decides_nothing() {
        let right = file(&format!("{FIRST}mode: nftables\nportRange: 1-2\n"));
        let answer = asked(&["validate", path(&right)]).unwrap();
        assert_eq!(
            answer.text,
            format!("{}: v1alpha1: no mistakes\n", path(&right))
        );
        assert_eq!(answer.asides.len(), 1, "{answer:?}");
        assert!(asked(&["validate", "--for=kube-proxy", path(&right)]).is_ok());
        let ours = file(&format!("{FIRST}mode: ebpf\n"));
        assert!(asked(&["validate", path(&ours)]).is_ok());
        let refused = asked(&["validate", "--for=kube-proxy", path(&ours)]).unwrap_err();
        assert!(refused.starts_with(&format!(
            "{}: mode: kube-proxy has no mode ebpf",
            path(&ours)
        )));
    }

    #[test]
    fn every_mistake_is_told_with_the_file() {
        let wrong = file(&format!(
            "{SECOND}mode: fast\nlinux: {{oomScoreAdj: 1001}}\n"
        ));
        let told = asked(&["validate", path(&wrong)]).unwrap_err();
        let lines: Vec<_> = told.lines().collect();
        assert_eq!(lines.len(), 2, "{told}");
        assert!(
            lines.iter().all(|line| line.starts_with(path(&wrong))),
            "{told}"
        );
        let none = asked(&["validate", "/nowhere/at/all"]).unwrap_err();
        assert!(
            none.starts_with("/nowhere/at/all: reading the file: "),
            "{none}"
        );
    }

    #[test]
    fn files_of_two_versions_are_compared_by_what_they_mean() {
        let first = file(&format!(
            "{FIRST}mode: nftables\nnftables: {{syncPeriod: 9s}}\n"
        ));
        let converted = asked(&["convert", path(&first)]).unwrap();
        assert_eq!(converted.asides, [] as [String; 0]);
        let second = file(&converted.text);
        // What only other modes read is another matter.
        let same = asked(&["diff", path(&first), path(&second)]).unwrap();
        assert_eq!(same, Answer::default());
        let third = file(&format!("{SECOND}mode: nftables\nsyncPeriod: 8s\n"));
        let differs = asked(&["diff", path(&first), path(&third)]).unwrap();
        assert_eq!(
            differs.text,
            "bindAddressHardFail: false -> true\nnftables.syncPeriod: \"9s\" -> \"8s\"\n"
        );
    }

    #[test]
    fn defaults_and_schemas_are_those_of_the_version() {
        for version in ["v1alpha1", "v1alpha2"] {
            let flag = format!("--version={version}");
            let defaults = asked(&["defaults", &flag]).unwrap();
            assert!(asked(&["validate", path(&file(&defaults.text))]).is_ok());
            let schema = asked(&["schema", &flag]).unwrap();
            let schema: serde_json::Value = serde_json::from_str(&schema.text).unwrap();
            assert_eq!(schema["title"], format!("KubeProxyConfiguration {version}"));
        }
        assert!(
            asked(&["explain", "nonsense"])
                .unwrap_err()
                .starts_with("nonsense: no version has")
        );
    }
}
