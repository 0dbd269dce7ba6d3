//! Mutual TLS of a listener: certificates as they are in their files at the moment, and the names
//! of who comes.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use tokio::net::TcpStream;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
        server::WebPkiClientVerifier,
    },
    server::TlsStream,
};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer as _};

use crate::{ClientName, TlsFiles, report::LONGEST_NAME};

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
    /// Reads them for the first time. The error says what was attempted, and on what.
    pub fn open(files: TlsFiles) -> Result<Self, String> {
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
                Err(reason) => {
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

fn read(files: &TlsFiles) -> Result<ServerConfig, String> {
    let bytes = |path: &Path| {
        fs::read(path).map_err(|error| format!("reading {}: {error}", path.display()))
    };
    let (cert, key, ca) = (bytes(&files.cert)?, bytes(&files.key)?, bytes(&files.ca)?);
    config(&cert, &key, &ca).map_err(|reason| {
        format!(
            "using {}, {} and {}: {reason}",
            files.cert.display(),
            files.key.display(),
            files.ca.display()
        )
    })
}

fn config(cert: &[u8], key: &[u8], ca: &[u8]) -> Result<ServerConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    for root in certificates("the authority", ca)? {
        roots.add(root).map_err(|error| error.to_string())?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider)).build();
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("the key: {error}"))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(verifier.map_err(|error| error.to_string())?)
        .with_single_cert(certificates("the certificate", cert)?, key)
        .map_err(|error| error.to_string())?;
    config.alpn_protocols.push(b"h2".to_vec());
    Ok(config)
}

fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err(format!("{what}: holds no certificate in PEM")),
        Ok(all) => Ok(all),
        Err(error) => Err(format!("{what}: {error}")),
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
