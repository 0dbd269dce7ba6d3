//! One connection: how it is opened, and why it could not be.

#[cfg(feature = "tls")]
use std::path::Path;
use std::{error::Error, time::Duration};

use tonic::transport::{Channel, Endpoint};

use super::ClientError;
use crate::{Target, TlsFiles};

/// A brain that cannot be connected to for this long is not there.
const CONNECT: Duration = Duration::from_secs(10);
/// Between questions whether it is still there.
const ASKED: Duration = Duration::from_secs(5);
/// A brain that does not answer one of them for this long is gone: it may have been stopped, or its
/// host with it, without a word. That is noticed thirteen seconds later at most.
const SILENCE: Duration = Duration::from_secs(8);

/// Connects.
pub async fn open(target: &Target, tls: Option<&TlsFiles>) -> Result<Channel, ClientError> {
    let failed = |error: &dyn Error| ClientError::Connect {
        target: target.clone(),
        reason: causes(error),
    };
    let endpoint = Endpoint::from_shared(target.uri())
        .map_err(|error| failed(&error))?
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(ASKED)
        .keep_alive_timeout(SILENCE)
        .keep_alive_while_idle(true);
    let endpoint = if target.is_tls() {
        secure(endpoint, target, tls).await?
    } else {
        endpoint
    };
    endpoint.connect().await.map_err(|error| failed(&error))
}

#[cfg(feature = "tls")]
async fn secure(
    endpoint: Endpoint,
    target: &Target,
    tls: Option<&TlsFiles>,
) -> Result<Endpoint, ClientError> {
    use tonic::transport::{Certificate, ClientTlsConfig, Identity};

    let Some(files) = tls else {
        let problem = format!("{target}: needs a certificate, its key and an authority");
        return Err(ClientError::Tls(problem));
    };
    let (cert, key) = (read(&files.cert).await?, read(&files.key).await?);
    let config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read(&files.ca).await?))
        .identity(Identity::from_pem(cert, key));
    endpoint.tls_config(config).map_err(|error| {
        let TlsFiles { cert, key, ca } = files;
        let (cert, key, ca) = (cert.display(), key.display(), ca.display());
        let cause = causes(&error);
        ClientError::Tls(format!("cannot use {cert}, {key} and {ca}: {cause}"))
    })
}

#[cfg(feature = "tls")]
async fn read(path: &Path) -> Result<Vec<u8>, ClientError> {
    let path_ = path.to_owned();
    // A file system may be slow; whoever else runs here is not to wait.
    let read = tokio::task::spawn_blocking(move || std::fs::read(path_)).await;
    let read = read.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    read.map_err(|error| ClientError::Tls(format!("cannot read {}: {error}", path.display())))
}

#[cfg(not(feature = "tls"))]
async fn secure(
    _: Endpoint,
    target: &Target,
    _: Option<&TlsFiles>,
) -> Result<Endpoint, ClientError> {
    let problem = format!("{target}: this program was built without TLS (feature `tls`)");
    Err(ClientError::Tls(problem))
}

/// The causes of an error, from the outermost to the first: libraries put the one that helps last.
pub fn causes(error: &dyn Error) -> String {
    let mut told: Vec<String> = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if told.last() != Some(&text) {
            told.push(text);
        }
        next = cause.source();
    }
    told.join(": ")
}
