//! The node API on the command line: whom an agent follows, and where others follow it.

use std::path::PathBuf;

use clap::Args;

/// Another brain as the source.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Source: another brain")]
pub struct TargetArgs {
    /// Follow this brain instead of a source of cluster objects: `unix:///run/x.sock`,
    /// `tcp://127.0.0.1:4590` (loopback only) or `tls://HOST:PORT`
    #[arg(long, value_name = "ADDRESS")]
    pub target: Option<String>,

    /// With `--target tls://`: certificate to present (PEM)
    #[arg(long, value_name = "FILE")]
    pub target_tls_cert: Option<PathBuf>,

    /// With `--target tls://`: private key of that certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub target_tls_key: Option<PathBuf>,

    /// With `--target tls://`: certificates of the authorities that may issue the brain's
    /// certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub target_tls_ca: Option<PathBuf>,

    /// With `--target tcp://`: file with the token of the brain's `--listen-token-file`; without
    /// it, the brain accepts no reports
    #[arg(long, value_name = "FILE")]
    pub target_token_file: Option<PathBuf>,

    /// With --target: name of this agent in the brain's output [default: the backend that the mode
    /// names, or the first in order; `brain` for a brain that follows another]
    #[arg(long, value_name = "NAME")]
    pub client_name: Option<String>,
}

/// Where backends in other processes get the state.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "State for others")]
pub struct ListenArgs {
    /// Serve the node API here, for backends in other processes: `unix:///run/x.sock`,
    /// `tcp://127.0.0.1:4590` (loopback only) or `tls://IP:PORT`; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<String>,

    /// File mode of the sockets of `--listen unix://`, in octal [default: 0600]
    #[arg(long, value_name = "MODE")]
    pub listen_mode: Option<String>,

    /// With `--listen tcp://`: accept reports from clients that present the token in this file,
    /// which is read again when it changes; without it, such an address accepts no reports
    #[arg(long, value_name = "FILE")]
    pub listen_token_file: Option<PathBuf>,

    /// With `--listen tls://`: certificate to present (PEM)
    #[arg(long, value_name = "FILE")]
    pub listen_tls_cert: Option<PathBuf>,

    /// With `--listen tls://`: private key of that certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub listen_tls_key: Option<PathBuf>,

    /// With `--listen tls://`: certificates of the authorities that may issue clients' certificates
    /// (PEM)
    #[arg(long, value_name = "FILE")]
    pub listen_tls_ca: Option<PathBuf>,
}
