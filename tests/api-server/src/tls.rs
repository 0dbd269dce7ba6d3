//! Certificates for one test: an authority, the server's certificate, and those of clients.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
        server::WebPkiClientVerifier,
    },
};

/// A certificate and its key, as PEM.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// A certificate authority that exists only for one test.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
    /// Who was given which certificate.
    issued: Mutex<BTreeMap<Vec<u8>, String>>,
}

impl Authority {
    /// A new one.
    pub fn new() -> Result<Self> {
        let key = KeyPair::generate().context("cannot make a key")?;
        let mut parameters = CertificateParams::default();
        parameters
            .distinguished_name
            .push(DnType::CommonName, "test authority");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = parameters.self_signed(&key)?;
        Ok(Self {
            certificate: certificate.der().clone(),
            pem: certificate.pem(),
            issuer: Issuer::new(parameters, key),
            issued: Mutex::default(),
        })
    }

    /// Its certificate as PEM: what a client trusts.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for the client `name`.
    pub fn client(&self, name: &str) -> Result<Identity> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        self.issued
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(certificate.der().to_vec(), name.to_owned());
        Ok(Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    /// Whose certificate this is.
    pub(super) fn name_of(&self, certificate: &CertificateDer<'_>) -> Option<String> {
        self.issued
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(certificate.as_ref())
            .cloned()
    }

    /// What a server at `address` needs to speak TLS. It asks for client certificates and takes
    /// those of this authority, but does without.
    pub(super) fn acceptor(&self, address: IpAddr) -> Result<TlsAcceptor> {
        let names = vec![address.to_string(), "localhost".to_owned()];
        let mut parameters = CertificateParams::new(names)?;
        parameters
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![certificate.der().clone()], key)?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
