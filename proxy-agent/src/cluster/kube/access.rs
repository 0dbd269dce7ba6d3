//! Where the API server is and as whom to speak to it: what was typed, a kubeconfig, or what
//! kubelet tells a container. Reads files and the environment; connects to nothing.

mod environment;
mod error;
#[cfg(test)]
mod tests;

use std::{
    io::ErrorKind,
    net::IpAddr,
    path::{Path, PathBuf},
};

use ::kube::{
    Config,
    config::{
        AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, KubeconfigError, NamedAuthInfo,
        NamedCluster, NamedContext,
    },
};
use http::Uri;

use super::ApiServerOptions;
use crate::file::check_size;
pub use environment::Environment;
pub use error::ConnectError;
pub(super) use error::{told, without_user};

/// Where kubelet puts the credentials of a container.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Bytes of a kubeconfig. With certificates in it, one has some ten thousand.
const LARGEST_KUBECONFIG: u64 = 1 << 20;

/// All that is needed to connect.
pub(super) struct Access {
    /// Credentials and certificates; the server in it is one of `servers`.
    pub(super) config: Config,
    /// In order of preference, at least one.
    pub(super) servers: Vec<Uri>,
    /// A bearer token that is replaced now and then. Not in `config`: `kube` reads it once a
    /// minute and does not notice that a token is refused.
    pub(super) token_file: Option<PathBuf>,
}

impl Access {
    pub(super) async fn find(options: &ApiServerOptions) -> Result<Self, ConnectError> {
        let masters = masters(&options.masters)?;
        if let Some(path) = &options.kubeconfig {
            return Self::from_kubeconfig(path, masters).await;
        }
        if let [first, ..] = masters.as_slice() {
            let config = with_service_account(first).await?;
            return Self::new(config, masters);
        }
        let environment = Environment::read();
        let server = environment.server()?;
        if environment.is_own_service() && !environment.is_served(&*options.already_programmed) {
            let address = server
                .authority()
                .map(ToString::to_string)
                .unwrap_or_default();
            return Err(ConnectError::OwnService { address });
        }
        let config = with_service_account(&server).await?;
        Self::new(config, vec![server])
    }

    async fn from_kubeconfig(path: &Path, masters: Vec<Uri>) -> Result<Self, ConnectError> {
        let fail = |error: KubeconfigError| ConnectError::Kubeconfig {
            path: path.to_owned(),
            reason: told(&error),
        };
        match check_size(path, LARGEST_KUBECONFIG) {
            // Of one that is not there, `kube` says so.
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(ConnectError::Kubeconfig {
                    path: path.to_owned(),
                    reason: error.to_string(),
                });
            }
            _ => {}
        }
        let kubeconfig = Kubeconfig::read_from(path).map_err(fail)?;
        let proxy = kubeconfig
            .clusters
            .iter()
            .find_map(|named| named.cluster.as_ref()?.proxy_url.clone());
        let config = configure(kubeconfig).await.map_err(fail)?;
        // A proxy may come from the environment too, which is ignored: nodes reach their API
        // server directly.
        if let (Some(url), Some(_)) = (proxy, &config.proxy_url) {
            return Err(ConnectError::ProxyUrl {
                path: path.to_owned(),
                url: without_user(&url),
            });
        }
        let servers = if masters.is_empty() {
            vec![config.cluster_url.clone()]
        } else {
            masters
        };
        Self::new(config, servers)
    }

    fn new(mut config: Config, servers: Vec<Uri>) -> Result<Self, ConnectError> {
        let names_user = |server: &&Uri| {
            let authority = server.authority();
            authority.is_some_and(|authority| authority.as_str().contains('@'))
        };
        if let Some(server) = servers.iter().find(names_user) {
            let server = without_user(&server.to_string());
            return Err(ConnectError::User { server });
        }
        if holds_secrets(&config)
            && let Some(server) = servers.iter().find(|server| is_overheard(server))
        {
            let server = server.to_string();
            return Err(ConnectError::PlainText { server });
        }
        let user = &mut config.auth_info;
        // In the order in which `kube` looks for credentials.
        let sooner = user.auth_provider.is_some()
            || (user.username.is_some() && user.password.is_some())
            || user.token.is_some();
        let token_file = user
            .token_file
            .take()
            .filter(|_| !sooner)
            .map(PathBuf::from);
        Ok(Self {
            config,
            servers,
            token_file,
        })
    }

    /// What is as it was asked for, and gives the cluster into the hands of whoever is on the way to
    /// its API server: for the log.
    pub(super) fn warn(&self) {
        for server in &self.servers {
            let text = if is_overheard(server) {
                "it is not reached by TLS: an attacker on the path to it decides what this node \
                 serves; give its URL with https://"
            } else if self.config.accept_invalid_certs && is_tls(server) {
                "insecure-skip-tls-verify: an attacker on the path to it gets the credentials of \
                 this agent, and decides what this node serves; give certificate-authority-data"
            } else {
                continue;
            };
            tracing::warn!(%server, text, "API server not verified");
        }
    }
}

/// Whether something goes along with each request that others must not see. A client certificate
/// does not: it proves without telling.
fn holds_secrets(config: &Config) -> bool {
    let user = &config.auth_info;
    user.token.is_some()
        || user.token_file.is_some()
        || user.password.is_some()
        || user.auth_provider.is_some()
        || user.exec.is_some()
}

fn is_tls(server: &Uri) -> bool {
    server.scheme_str() == Some("https")
}

/// Whether what is said to `server` leaves this host in plain text.
fn is_overheard(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse();
    let here = host == "localhost" || address.is_ok_and(|address: IpAddr| address.is_loopback());
    !is_tls(server) && !here
}

/// Each may be several, separated by commas.
fn masters(typed: &[String]) -> Result<Vec<Uri>, ConnectError> {
    typed
        .iter()
        .flat_map(|typed| typed.split(','))
        .map(|master| {
            master_url(master.trim()).map_err(|reason| ConnectError::Master {
                master: without_user(master.trim()),
                reason,
            })
        })
        .collect()
}

/// The error completes the sentence "--master: …".
fn master_url(master: &str) -> Result<Uri, String> {
    let url = if master.contains("://") {
        master.to_owned()
    } else {
        format!("https://{master}")
    };
    let url: Uri = url.parse().map_err(|error| format!("{error}"))?;
    match (url.scheme_str(), url.host()) {
        (Some("https" | "http"), Some(host)) if !host.is_empty() => Ok(url),
        (Some("https" | "http"), _) => Err("names no host".to_owned()),
        (scheme, _) => Err(format!(
            "{} is neither https nor http",
            scheme.unwrap_or_default()
        )),
    }
}

/// Takes what the current context of `kubeconfig` says.
async fn configure(kubeconfig: Kubeconfig) -> Result<Config, KubeconfigError> {
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
}

/// The credentials of the container that this runs in, if it has any: a kubeconfig in other
/// files.
async fn with_service_account(server: &Uri) -> Result<Config, ConnectError> {
    let file = |name: &str| Path::new(SERVICE_ACCOUNT).join(name);
    let (token, certificates) = (file("token"), file("ca.crt"));
    let text = |path: &Path| path.exists().then(|| path.to_string_lossy().into_owned());
    let name = "service-account".to_owned();
    let kubeconfig = Kubeconfig {
        clusters: vec![NamedCluster {
            name: name.clone(),
            cluster: Some(Cluster {
                server: Some(server.to_string()),
                certificate_authority: text(&certificates),
                ..Cluster::default()
            }),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: name.clone(),
            auth_info: Some(AuthInfo {
                token_file: text(&token),
                ..AuthInfo::default()
            }),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: name.clone(),
            context: Some(Context {
                cluster: name.clone(),
                user: Some(name.clone()),
                ..Context::default()
            }),
            ..NamedContext::default()
        }],
        current_context: Some(name),
        ..Kubeconfig::default()
    };
    let config = configure(kubeconfig).await;
    let mut config = config.map_err(|error| ConnectError::Kubeconfig {
        path: SERVICE_ACCOUNT.into(),
        reason: told(&error),
    })?;
    // Read again when it is replaced.
    config.root_cert_file = certificates.exists().then_some(certificates);
    Ok(config)
}
