//! kubeconfig files, as an operator would write them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::{ApiServer, tls::Identity};

/// How a client proves who it is.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// A file with a bearer token; it may change at any time.
    pub token_file: Option<PathBuf>,
    /// A client certificate.
    pub certificate: Option<Identity>,
}

impl ApiServer {
    /// Writes a kubeconfig for this server into `directory`, with the files it refers to; gives
    /// its path.
    pub fn kubeconfig(&self, directory: &Path, credentials: &Credentials) -> Result<PathBuf> {
        let write = |name: &str, content: &str| {
            let path = directory.join(name);
            fs::write(&path, content)
                .with_context(|| format!("cannot write {}", path.display()))?;
            anyhow::Ok(path)
        };
        let mut cluster = json!({ "server": self.url() });
        if let Some(authority) = self.authority() {
            cluster["certificate-authority"] = json!(write("ca.crt", authority.pem())?);
        }
        let mut user = json!({});
        if let Some(path) = &credentials.token_file {
            user["tokenFile"] = json!(path);
        }
        if let Some(identity) = &credentials.certificate {
            user["client-certificate"] = json!(write("client.crt", &identity.certificate)?);
            user["client-key"] = json!(write("client.key", &identity.key)?);
        }
        let config = json!({
            "apiVersion": "v1", "kind": "Config",
            "clusters": [{ "name": "test", "cluster": cluster }],
            "users": [{ "name": "test", "user": user }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
            "current-context": "test",
        });
        // JSON is YAML.
        write("kubeconfig", &format!("{config:#}\n"))
    }
}
