//! Helm's command line.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use anyhow::{Context as _, Result, bail};
use xtask::chart_tools;

/// The name of the release, which is that of the chart: objects are called so, too.
pub const RELEASE: &str = "culvert";

/// Where it is installed.
const NAMESPACE: &str = "kube-system";

/// The chart of this workspace.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/culvert")
}

/// Values, as an operator gives them.
#[derive(Debug, Clone, Default)]
pub struct Values {
    /// Files, a later one over an earlier one.
    pub files: Vec<PathBuf>,
    /// Over those: `apiServers={https://10.0.0.1:6443}`.
    pub set: Vec<String>,
    /// The version of Kubernetes that it is rendered for; Helm's own idea without.
    pub kubernetes: Option<String>,
}

impl Values {
    /// Without a file.
    pub fn set(set: &[&str]) -> Self {
        Self {
            set: set.iter().map(|&one| one.to_owned()).collect(),
            ..Self::default()
        }
    }

    /// Of one file.
    pub fn file(path: &Path) -> Self {
        Self {
            files: vec![path.to_owned()],
            ..Self::default()
        }
    }

    fn add_to(&self, command: &mut Command) {
        for file in &self.files {
            command.arg("--values").arg(file);
        }
        for one in &self.set {
            command.arg("--set").arg(one);
        }
        if let Some(version) = &self.kubernetes {
            command.args(["--kube-version", version]);
        }
    }
}

/// Helm, with no settings of whoever runs this.
pub fn helm() -> Result<Command> {
    let mut command = Command::new(chart_tools::helm()?);
    let nowhere = "/nonexistent/culvert-tests";
    for place in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(place, nowhere);
    }
    command
        .env_remove("KUBECONFIG")
        .env_remove("HELM_NAMESPACE")
        .stdin(Stdio::null());
    Ok(command)
}

fn template(values: &Values) -> Result<Output> {
    let mut command = helm()?;
    command.args(["template", RELEASE]).arg(directory());
    command.args(["--namespace", NAMESPACE]);
    values.add_to(&mut command);
    command.output().context("cannot run Helm")
}

/// What Helm prints for these values.
pub fn render_text(values: &Values) -> Result<String> {
    let output = template(values)?;
    if !output.status.success() {
        bail!(
            "Helm does not render {values:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    String::from_utf8(output.stdout).context("what Helm printed is no text")
}

/// Why Helm renders nothing for these values; none if it does.
pub fn refusal(values: &Values) -> Result<Option<String>> {
    let output = template(values)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((!output.status.success()).then_some(said))
}

/// What Helm's linter says of the chart with these values; whether it is content comes first.
pub fn lint(values: &Values) -> Result<(bool, String)> {
    let mut command = helm()?;
    command.args(["lint", "--strict"]).arg(directory());
    values.add_to(&mut command);
    let output = command.output().context("cannot run Helm")?;
    let said = [&*output.stdout, &*output.stderr].map(String::from_utf8_lossy);
    Ok((output.status.success(), said.concat()))
}
