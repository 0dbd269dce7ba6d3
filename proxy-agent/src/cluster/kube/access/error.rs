//! Why there is no way to the API server, in words that hold no credential: what a kubeconfig, an
//! exec plugin or a URL says is never repeated.

use std::{error::Error, path::PathBuf};

use ::kube::{client::AuthError, config::KubeconfigError};
use thiserror::Error as DeriveError;

/// Why there is no way to the API server: something that was typed, or that is in a file that was
/// named, is wrong. Whether a server answers is another matter, and no error at all.
#[derive(Debug, DeriveError)]
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
    #[error("cannot use the kubeconfig {path}: {reason}")]
    Kubeconfig {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A kubeconfig that wants a proxy.
    #[error(
        "the kubeconfig {path} reaches the API server through proxy-url {url}, which is not \
         supported: give a server that is reached directly"
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
        "no API server: give one with --master or --kubeconfig, or cluster objects with \
         --manifests (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, which kubelet sets in a \
         container, are not set)"
    )]
    NoServer,
    /// What kubelet set makes no sense.
    #[error(
        "KUBERNETES_SERVICE_HOST {host:?} with KUBERNETES_SERVICE_PORT {port:?} is not an address \
         of an API server: give one with --master or --kubeconfig"
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
         kubernetes Service: this proxy provides it, and so cannot depend on it. Give an address \
         of the API server itself with --master, or a kubeconfig with --kubeconfig"
    )]
    OwnService {
        /// As set.
        address: String,
    },
    /// Certificates, keys or credentials that cannot be used.
    #[error("cannot prepare connections to the API server: {reason}")]
    Credentials {
        /// What is wrong with them.
        reason: String,
    },
    /// A URL with a user in it.
    #[error(
        "the URL {server} of an API server holds a user or a password, which would end up in logs: \
         put credentials into the kubeconfig, or into a token file that it names"
    )]
    User {
        /// Without them.
        server: String,
    },
    /// Credentials for a server that is spoken to in plain text.
    #[error(
        "the API server {server} is not reached by TLS, so an attacker on the path to it would get \
         the credentials of this agent: give its URL with https://, or give no credentials"
    )]
    PlainText {
        /// Which.
        server: String,
    },
}

/// An error with everything that led to it, each said once, and without what may hold a credential.
pub(in crate::cluster::kube) fn told(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(text) = discreet(error) {
            return text;
        }
        let cause = error.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        next = error.source();
    }
    text
}

/// What may be said of an error whose own text quotes a kubeconfig, or what an exec plugin printed.
/// The texts of those that led to it quote it in turn.
fn discreet(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<AuthError>() {
        return match error {
            AuthError::AuthExecRun { out, .. } => Some(format!(
                "the exec plugin of the kubeconfig failed ({}); run it by hand to see what it says",
                out.status
            )),
            AuthError::AuthExecParse(error) => Some(format!(
                "the output of the kubeconfig's exec plugin is not an ExecCredential{}",
                place(error)
            )),
            AuthError::ParseTokenKey(_) => {
                Some("the output of the kubeconfig's auth provider holds no token".to_owned())
            }
            _ => None,
        };
    }
    match error.downcast_ref::<KubeconfigError>()? {
        KubeconfigError::Parse(error) => Some(format!(
            "it is not a kubeconfig{}; its content is not shown, because it may be a credential",
            place(error)
        )),
        _ => None,
    }
}

fn place(error: &serde_saphyr::Error) -> String {
    match error.location() {
        Some(location) => format!(": line {}, column {}", location.line(), location.column()),
        None => String::new(),
    }
}

/// A URL as it was typed, without the user and the password that may be in it. Takes away too much
/// rather than too little.
pub(in crate::cluster::kube) fn without_user(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}…@{host}"),
        None => url.to_owned(),
    }
}
