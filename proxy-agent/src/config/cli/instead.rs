//! What kube-proxy does instead of serving when one of these flags is given: taken, so that a
//! command line for kube-proxy does what it says. `--help` leaves them out.

use std::path::PathBuf;

use clap::Args;

use super::kube_proxy::switch;

/// kube-proxy's flags that make it do one thing and end.
#[derive(Debug, Clone, Default, Args)]
pub struct InsteadArgs {
    /// Remove what agents and kube-proxy left in the kernel
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = switch, hide = true)]
    pub cleanup: Option<bool>,

    /// Do what needs more rights than serving does: set limits and timeouts of conntrack
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = switch, hide = true)]
    pub init_only: Option<bool>,

    /// Write the configuration that file and flags make to this file
    #[arg(long, value_name = "FILE", hide = true)]
    pub write_config_to: Option<PathBuf>,
}

/// Flags of kube-proxy that decide nothing there either.
#[derive(Debug, Clone, Default, Args)]
pub struct IdleArgs {
    /// Files that name the boot, and the machine
    #[arg(long, value_name = "FILE", hide = true)]
    pub boot_id_file: Option<String>,

    /// The same
    #[arg(long, value_name = "FILES", hide = true)]
    pub machine_id_file: Option<String>,

    /// Gone in kube-proxy: its value decides nothing
    #[arg(long, value_name = "PORT", hide = true)]
    pub healthz_port: Option<String>,

    /// The same
    #[arg(long, value_name = "PORT", hide = true)]
    pub metrics_port: Option<String>,
}

impl IdleArgs {
    /// Those that kube-proxy warns of, too, with what to give instead.
    pub fn deprecated(&self) -> Vec<String> {
        let all = [
            ("healthz-port", &self.healthz_port, "healthz-bind-address"),
            ("metrics-port", &self.metrics_port, "metrics-bind-address"),
        ];
        let given = all.into_iter().filter_map(|(flag, value, instead)| {
            let value = value.as_ref()?;
            Some(format!(
                "--{flag} {value}: decides nothing, as with kube-proxy 1.36; give --{instead}"
            ))
        });
        given.collect()
    }
}

/// What a command line asks for in place of serving. kube-proxy looks in this order, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instead {
    /// Write the configuration to this file.
    WriteConfig(PathBuf),
    /// Remove everything.
    Cleanup,
    /// Prepare the host.
    Init,
}

impl InsteadArgs {
    /// The one thing to do; `None` to serve.
    pub fn wanted(&self) -> Option<Instead> {
        let on = |flag: Option<bool>| flag == Some(true);
        if let Some(file) = &self.write_config_to {
            return Some(Instead::WriteConfig(file.clone()));
        }
        if on(self.cleanup) {
            return Some(Instead::Cleanup);
        }
        on(self.init_only).then_some(Instead::Init)
    }
}
