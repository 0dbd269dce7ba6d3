//! What kubelet tells a container about the API server.

use std::{
    env,
    net::{IpAddr, SocketAddr},
};

use http::Uri;

use super::{ConnectError, master_url};

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
    pub(super) fn is_served(&self, served: &dyn Fn(SocketAddr) -> bool) -> bool {
        let address = self
            .host
            .as_deref()
            .and_then(|host| host.parse::<IpAddr>().ok());
        let port = self.port.as_deref().and_then(|port| port.parse().ok());
        matches!((address, port), (Some(address), Some(port)) if served((address, port).into()))
    }

    pub(super) fn server(&self) -> Result<Uri, ConnectError> {
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
