//! The flags that all out-of-process backends share.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use proxy_model::Capability;

use super::{DriverError, DriverOptions};
use crate::{ClientName, Target, TlsFiles, Token, client};

/// Which brain to follow, and from where. A backend with flags of its own flattens this into them.
#[derive(Debug, Clone, Args)]
pub struct DriverArgs {
    /// The brain: `unix:///run/x.sock`, `tcp://127.0.0.1:4590` (loopback only) or `tls://HOST:PORT`
    #[arg(long, value_name = "ADDRESS")]
    pub target: Target,

    /// With `tls://`: certificate to present (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// With `tls://`: private key of that certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// With `tls://`: certificates of the authorities that may issue the brain's certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// With `tcp://`: file with the token of the brain's `--listen-token-file`; without it, the
    /// brain accepts no reports
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Name of this backend in the brain's output [default: its own name]
    #[arg(long, value_name = "NAME")]
    pub client_name: Option<String>,

    /// With --rev: the state that is already in force, as printed by --once; nothing is done until
    /// there is another one
    #[arg(long, value_name = "NUMBER", requires = "rev")]
    pub instance_id: Option<u64>,

    /// See --instance-id
    #[arg(long, value_name = "NUMBER", requires = "instance_id")]
    pub rev: Option<u64>,

    /// Bring one state into force, print the flags that continue from it, and exit
    #[arg(long)]
    pub once: bool,

    /// Compare what is in force with the state this often, in seconds; 0 for never
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub sync_period: u64,
}

impl DriverArgs {
    /// What they mean for a backend called `name` that lacks `lacks`.
    pub fn options(self, name: &str, lacks: &[Capability]) -> Result<DriverOptions, DriverError> {
        let usage = |problem: String| DriverError::Usage(problem);
        let tls = TlsFiles::of_flags("--", [self.tls_cert, self.tls_key, self.tls_ca])
            .map_err(|error| usage(error.to_string()))?;
        if self.target.is_tls() && tls.is_none() {
            let problem = "needs --tls-cert, --tls-key and --tls-ca";
            return Err(usage(format!("--target {}: {problem}", self.target)));
        }
        if self.token_file.is_some() && !matches!(self.target, Target::Tcp(_)) {
            let problem = "--token-file: is for --target tcp://";
            return Err(usage(problem.to_owned()));
        }
        let name = self.client_name.as_deref().unwrap_or(name);
        let name: ClientName = name
            .parse()
            .map_err(|error| usage(format!("--client-name: {error}")))?;
        let resume = self.instance_id.zip(self.rev);
        Ok(DriverOptions {
            client: client::ClientOptions {
                target: self.target,
                tls,
                token_file: self.token_file,
                name,
                lacks: lacks.to_vec(),
            },
            resume: resume.map(|(instance_id, revision)| Token {
                instance_id,
                revision,
            }),
            once: self.once,
            repair_every: (self.sync_period > 0).then(|| Duration::from_secs(self.sync_period)),
        })
    }
}
