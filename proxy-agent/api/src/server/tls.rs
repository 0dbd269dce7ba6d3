//! Mutual TLS of a listener: certificates as they are in their files at the moment, and the names
//! of who comes.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{
            CertificateDer, PrivateKeyDer,
            pem::{self, PemObject as _},
        },
        server::{VerifierBuilderError, WebPkiClientVerifier},
    },
    server::TlsStream,
};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer as _};

use crate::{ClientName, TlsFiles, report::LONGEST_NAME};

/// Why a listener cannot use its files of mutual TLS.
#[derive(Debug, Error)]
pub enum TlsError {
    /// One cannot be read.
    #[error("reading {path}: {error}")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// What is in them does not make a listener.
    #[error("using {}, {} and {}: {problem}", files.cert.display(), files.key.display(), files.ca.display())]
    Unusable {
        /// All of them: one may be at fault, or that they do not belong together.
        files: Box<TlsFiles>,
        /// Why not.
        problem: TlsProblem,
    },
}

/// What is wrong with certificates, or with a key.
#[derive(Debug, Error)]
pub enum TlsProblem {
    /// This is no PEM.
    #[error("{what}: {error}")]
    Pem {
        /// The certificate, its key, or the authority.
        what: &'static str,
        /// Why not.
        error: pem::Error,
    },
    /// This is PEM, and holds no certificate.
    #[error("{0}: holds no certificate in PEM")]
    Empty(&'static str),
    /// A certificate or a key that the library does not take, or that do not belong together.
    #[error("{0}")]
    Rejected(#[from] rustls::Error),
    /// Certificates of the authority that nobody can be known by.
    #[error("{0}")]
    Authority(#[from] VerifierBuilderError),
}

/// The files, and what was in them last.
#[derive(Debug)]
pub struct Certificates {
    files: TlsFiles,
    last: Mutex<Last>,
}

#[derive(Debug)]
struct Last {
    config: Arc<ServerConfig>,
    /// Of the files as they were tried last, in use or not.
    stamps: Stamps,
}

/// When each file was written, and how long it is.
type Stamps = [Option<(SystemTime, u64)>; 3];

impl Certificates {
    /// Reads them for the first time.
    pub fn open(files: TlsFiles) -> Result<Self, TlsError> {
        let stamps = stamps(&files);
        let config = Arc::new(read(&files)?);
        let last = Mutex::new(Last { config, stamps });
        Ok(Self { files, last })
    }

    /// Agrees with a client on TLS. Connections that are there stay as they are when files change.
    pub async fn greet(self: &Arc<Self>, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let own = Arc::clone(self);
        // A file system may be slow; whoever else comes is not to wait.
        let config = tokio::task::spawn_blocking(move || own.newest()).await;
        let accepted = TlsAcceptor::from(config.ok()?).accept(stream).await;
        accepted
            .inspect_err(|error| tracing::debug!(%error, "a client did not agree on TLS"))
            .ok()
    }

    /// As the files say now. While they make no sense, as before: they may just be being replaced.
    fn newest(&self) -> Arc<ServerConfig> {
        let now = stamps(&self.files);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.stamps != now {
            last.stamps = now;
            match read(&self.files) {
                Ok(config) => {
                    last.config = Arc::new(config);
                    tracing::info!(cert = %self.files.cert.display(), "certificates read again");
                }
                Err(error) => {
                    let reason = error.to_string();
                    tracing::warn!(reason, "certificates not read again; the last stay in use");
                }
            }
        }
        Arc::clone(&last.config)
    }
}

fn stamps(files: &TlsFiles) -> Stamps {
    [&files.cert, &files.key, &files.ca].map(|path| {
        let found = fs::metadata(path).ok()?;
        Some((found.modified().ok()?, found.len()))
    })
}

fn read(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let bytes = |path: &Path| {
        fs::read(path).map_err(|error| TlsError::Unreadable {
            path: path.to_owned(),
            error,
        })
    };
    let (cert, key, ca) = (bytes(&files.cert)?, bytes(&files.key)?, bytes(&files.ca)?);
    config(&cert, &key, &ca).map_err(|problem| TlsError::Unusable {
        files: Box::new(files.clone()),
        problem,
    })
}

fn config(cert: &[u8], key: &[u8], ca: &[u8]) -> Result<ServerConfig, TlsProblem> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    for root in certificates("the authority", ca)? {
        roots.add(root)?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider)).build();
    let what = "the key";
    let key =
        PrivateKeyDer::from_pem_slice(key).map_err(|error| TlsProblem::Pem { what, error })?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier?)
        .with_single_cert(certificates("the certificate", cert)?, key)?;
    config.alpn_protocols.push(b"h2".to_vec());
    Ok(config)
}

fn certificates(
    what: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsProblem> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err(TlsProblem::Empty(what)),
        Ok(all) => Ok(all),
        Err(error) => Err(TlsProblem::Pem { what, error }),
    }
}

/// The names in the certificate of who has come: DNS names, then the common name. What a client
/// cannot be called by is made so, as `system:node:a`.
pub fn names(stream: &TlsStream<TcpStream>) -> Arc<[ClientName]> {
    let certificates = stream.get_ref().1.peer_certificates();
    let own = certificates.and_then(<[_]>::first);
    own.map(|own| names_in(own)).unwrap_or_default().into()
}

fn names_in(der: &[u8]) -> Vec<ClientName> {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return Vec::new();
    };
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let alternative = alternative.map(|found| found.value.general_names.as_slice());
    let dns = alternative
        .unwrap_or_default()
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(*name),
            _ => None,
        });
    let common = certificate.subject().iter_common_name();
    let common = common.filter_map(|name| name.as_str().ok());
    dns.chain(common).filter_map(client_name).collect()
}

fn client_name(text: &str) -> Option<ClientName> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let plain = text.chars().map(|c| if allowed(c) { c } else { '-' });
    plain.take(LONGEST_NAME).collect::<String>().parse().ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    #[test]
    fn names_are_those_of_the_certificate() {
        let names = |alternative: &[&str], common: &str| {
            let alternative: Vec<_> = alternative.iter().map(ToString::to_string).collect();
            let mut params = CertificateParams::new(alternative).unwrap();
            params.distinguished_name = DistinguishedName::new();
            if !common.is_empty() {
                params.distinguished_name.push(DnType::CommonName, common);
            }
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            let names = names_in(certificate.der());
            names.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(names(&["a", "b", "192.0.2.1"], "c"), ["a", "b", "c"]);
        assert_eq!(names(&[], "system:node:a"), ["system-node-a"]);
        assert_eq!(names(&[], &"x".repeat(100)), ["x".repeat(LONGEST_NAME)]);
        assert_eq!(names(&[], ""), [] as [&str; 0]);
        assert_eq!(names_in(b"nothing"), []);
    }
}
