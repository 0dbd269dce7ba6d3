//! Where the API server is and as whom to speak to it: what was typed, a kubeconfig, or what
//! kubelet tells a container. Reads files and the environment; connects to nothing.

use std::{
    env,
    net::{IpAddr, SocketAddr},
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
use thiserror::Error;

use super::Options;

/// Where kubelet puts the credentials of a container.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Why there is no way to the API server: something that was typed, or that is in a file that was
/// named, is wrong. Whether a server answers is another matter, and no error at all.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// A `--master` that makes no sense.
    #[error("--master {master:?}: {reason}; write a URL such as https://192.0.2.1:6443")]
    Master {
        /// As typed.
        master: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A kubeconfig that cannot be used.
    #[error("cannot use the kubeconfig {path}: {}", chain(.source))]
    Kubeconfig {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<KubeconfigError>,
    },
    /// A kubeconfig that wants a proxy.
    #[error(
        "the kubeconfig {path} reaches the API server through proxy-url {url}, which is not \
         supported: name a server that is reached directly"
    )]
    ProxyUrl {
        /// Which.
        path: PathBuf,
        /// The proxy.
        url: String,
    },
    /// A token file that cannot be used.
    #[error("cannot use the token file {path}: it {reason}")]
    Token {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing says where the API server is.
    #[error(
        "no API server: name one with --master or --kubeconfig, or cluster objects with \
         --manifests (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, which kubelet sets in \
         a container, are not set)"
    )]
    NoServer,
    /// What kubelet set makes no sense.
    #[error(
        "KUBERNETES_SERVICE_HOST {host:?} with KUBERNETES_SERVICE_PORT {port:?} is no address of \
         an API server: name one with --master or --kubeconfig"
    )]
    Environment {
        /// As set.
        host: String,
        /// As set.
        port: String,
    },
    /// The API server is only known behind a Service.
    #[error(
        "the API server is at {address} (KUBERNETES_SERVICE_HOST), which is the ClusterIP of the \
         kubernetes Service: this proxy is to provide it, and cannot depend on it. Name an \
         address of the API server itself with --master, or a kubeconfig with --kubeconfig"
    )]
    OwnService {
        /// As set.
        address: String,
    },
    /// Certificates, keys or credentials that cannot be used.
    #[error("cannot prepare connections to the API server: {}", chain(.source))]
    Credentials {
        /// What is wrong with them.
        source: Box<::kube::Error>,
    },
}

/// An error with everything that led to it, each said once.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

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
    pub(super) async fn find(options: &Options) -> Result<Self, ConnectError> {
        let masters = masters(&options.masters)?;
        if let Some(path) = &options.kubeconfig {
            return Self::from_kubeconfig(path, masters).await;
        }
        if let [first, ..] = masters.as_slice() {
            let config = with_service_account(first).await?;
            return Ok(Self::new(config, masters));
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
        Ok(Self::new(config, vec![server]))
    }

    async fn from_kubeconfig(path: &Path, masters: Vec<Uri>) -> Result<Self, ConnectError> {
        let fail = |source| ConnectError::Kubeconfig {
            path: path.to_owned(),
            source: Box::new(source),
        };
        let kubeconfig = Kubeconfig::read_from(path).map_err(fail)?;
        let proxy = kubeconfig
            .clusters
            .iter()
            .find_map(|named| named.cluster.as_ref()?.proxy_url.clone());
        let config = configure(kubeconfig).await.map_err(fail)?;
        // A proxy may come from the environment too, which is ignored: nodes reach their API
        // server directly.
        if let (Some(url), Some(_)) = (proxy, &config.proxy_url) {
            let path = path.to_owned();
            return Err(ConnectError::ProxyUrl { path, url });
        }
        let servers = if masters.is_empty() {
            vec![config.cluster_url.clone()]
        } else {
            masters
        };
        Ok(Self::new(config, servers))
    }

    fn new(mut config: Config, servers: Vec<Uri>) -> Self {
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
        Self {
            config,
            servers,
            token_file,
        }
    }
}

/// Each may be several, separated by commas.
fn masters(typed: &[String]) -> Result<Vec<Uri>, ConnectError> {
    typed
        .iter()
        .flat_map(|typed| typed.split(','))
        .map(|master| {
            master_url(master.trim()).map_err(|reason| ConnectError::Master {
                master: master.trim().to_owned(),
                reason,
            })
        })
        .collect()
}

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
    let mut config = config.map_err(|source| ConnectError::Kubeconfig {
        path: SERVICE_ACCOUNT.into(),
        source: Box::new(source),
    })?;
    // Read again when it is replaced.
    config.root_cert_file = certificates.exists().then_some(certificates);
    Ok(config)
}

/// What kubelet tells a container about the API server.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `KUBERNETES_SERVICE_HOST`
    pub host: Option<String>,
    /// `KUBERNETES_SERVICE_PORT`
    pub port: Option<String>,
    /// `KUBERNETES_PORT_443_TCP_ADDR`: the ClusterIP, also where the other two were changed to
    /// name the API server itself.
    pub cluster_ip: Option<String>,
}

impl Environment {
    /// That of this process.
    pub fn read() -> Self {
        Self {
            host: env::var("KUBERNETES_SERVICE_HOST").ok(),
            port: env::var("KUBERNETES_SERVICE_PORT").ok(),
            cluster_ip: env::var("KUBERNETES_PORT_443_TCP_ADDR").ok(),
        }
    }

    /// Whether the API server is only named by the Service in front of it. If nothing says what
    /// that Service's address is, this one is taken to be it.
    pub fn is_own_service(&self) -> bool {
        let Some(host) = &self.host else {
            return false;
        };
        if host == "kubernetes" || host.starts_with("kubernetes.default") {
            return true;
        }
        let address = |text: &str| text.parse::<IpAddr>().ok();
        match self.cluster_ip.as_deref() {
            None => address(host).is_some(),
            Some(cluster_ip) => {
                host == cluster_ip
                    || (address(host).is_some() && address(host) == address(cluster_ip))
            }
        }
    }

    /// Whether `served` knows the address: an earlier run left it in place.
    fn is_served(&self, served: &dyn Fn(SocketAddr) -> bool) -> bool {
        let address = self
            .host
            .as_deref()
            .and_then(|host| host.parse::<IpAddr>().ok());
        let port = self.port.as_deref().and_then(|port| port.parse().ok());
        matches!((address, port), (Some(address), Some(port)) if served((address, port).into()))
    }

    fn server(&self) -> Result<Uri, ConnectError> {
        let (Some(host), Some(port)) = (&self.host, &self.port) else {
            return Err(ConnectError::NoServer);
        };
        let authority = match (host.parse::<IpAddr>(), port.parse::<u16>()) {
            (Ok(address), Ok(port)) => SocketAddr::from((address, port)).to_string(),
            _ => format!("{host}:{port}"),
        };
        let bad = |_| ConnectError::Environment {
            host: host.clone(),
            port: port.clone(),
        };
        master_url(&authority).map_err(bad)
    }
}

#[cfg(test)]
mod tests;
