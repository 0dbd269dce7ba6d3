//! Names of chains: kube-proxy's, so that a node moves from one to the other without a gap, and people and
//! their tools find what they know. Pure.
//!
//! The hash is the first 16 characters of the base32 of the SHA-256 of `namespace/name:port` and the protocol
//! in lower case, for endpoints also of `address:port`.

use std::{borrow::Cow, fmt::Write as _, net::SocketAddr, sync::Arc};

use data_encoding::BASE32;
use proxy_model::{Protocol, ServicePortKey};
use sha2::{Digest as _, Sha256};

/// How names begin of the chains that belong to one Service port, all in the table nat. The last is of
/// kube-proxy before 1.24 (external policy Local), and nobody makes it any more.
pub const OF_SERVICES: [&str; 6] = [
    "KUBE-SVC-",
    "KUBE-SVL-",
    "KUBE-EXT-",
    "KUBE-FW-",
    "KUBE-SEP-",
    "KUBE-XLB-",
];

/// Whether this is the name of a chain that belongs to one Service port.
pub fn is_of_service(chain: &str) -> bool {
    OF_SERVICES.iter().any(|prefix| chain.starts_with(prefix))
}

/// The protocol as rules spell it.
pub const fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}

/// The chains of one Service port.
#[derive(Debug)]
pub struct Names {
    text: String,
    hash: String,
}

impl Names {
    /// Those of `key`, which are the same in both families.
    pub fn of(key: &ServicePortKey) -> Self {
        let (namespace, name) = (part(&key.service.namespace), part(&key.service.name));
        let mut text = format!("{namespace}/{name}");
        if !key.port.is_empty() {
            write!(text, ":{}", part(&key.port)).expect("writing to a string cannot fail");
        }
        let hash = hash(&[&text, protocol(key.protocol)]);
        Self { text, hash }
    }

    /// `namespace/name:port`, as comments have it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Chooses among all endpoints.
    pub fn cluster(&self) -> Arc<str> {
        self.chain("SVC")
    }

    /// Chooses among those of this node.
    pub fn local(&self) -> Arc<str> {
        self.chain("SVL")
    }

    /// For what is dialled from outside.
    pub fn external(&self) -> Arc<str> {
        self.chain("EXT")
    }

    /// For load-balancer IPs with source ranges.
    pub fn firewall(&self) -> Arc<str> {
        self.chain("FW")
    }

    fn chain(&self, kind: &str) -> Arc<str> {
        format!("KUBE-{kind}-{}", self.hash).into()
    }

    /// Leads to one endpoint.
    pub fn endpoint(&self, of: Protocol, address: SocketAddr) -> Arc<str> {
        let hash = hash(&[&self.text, protocol(of), &address.to_string()]);
        format!("KUBE-SEP-{hash}").into()
    }
}

/// A name so that it ends where the next one begins. Those that the API server takes are left as they are; a file may
/// bring others, and two Services would share a chain.
fn part(name: &str) -> Cow<'_, str> {
    if name.contains(['/', ':', '%']) {
        name.replace('%', "%25")
            .replace('/', "%2F")
            .replace(':', "%3A")
            .into()
    } else {
        name.into()
    }
}

fn hash(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part);
    }
    let mut text = BASE32.encode(&digest.finalize());
    text.truncate(16);
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proxy_model::{IpFamily, ObjectName};

    use super::*;

    fn key(name: &str, port: &str) -> ServicePortKey {
        ServicePortKey {
            service: ObjectName::new("shop", name),
            port: port.into(),
            protocol: Protocol::Tcp,
            family: IpFamily::V4,
        }
    }

    /// As kube-proxy 1.36 names them for the same Service.
    #[test]
    fn chains_have_the_names_that_kube_proxy_gives_them() {
        let names = Names::of(&key("web", "http"));
        assert_eq!(names.text(), "shop/web:http");
        assert_eq!(&*names.cluster(), "KUBE-SVC-67NZLRHBNDSAWJRO");
        let endpoint = names.endpoint(Protocol::Tcp, "10.244.0.10:8080".parse().unwrap());
        assert_eq!(&*endpoint, "KUBE-SEP-P3BKYI4UT7GLM4G4");
        assert!(is_of_service(&endpoint) && is_of_service(&names.firewall()));
        assert!(!is_of_service("KUBE-SERVICES") && !is_of_service("KUBE-FIREWALL"));
    }

    #[test]
    fn a_port_without_a_name_is_the_service() {
        assert_eq!(Names::of(&key("web", "")).text(), "shop/web");
    }

    /// A manifest file may bring names that the API server refuses.
    #[test]
    fn no_two_services_share_a_chain_whatever_they_are_called() {
        let alike = [
            key("web", "a:b"),
            key("web:a", "b"),
            key("web:a:b", ""),
            key("web%3Aa", "b"),
            key("web/a", "b"),
        ];
        let chains: BTreeSet<_> = alike.iter().map(|key| Names::of(key).cluster()).collect();
        assert_eq!(chains.len(), alike.len());
        let mut other = key("a", "");
        other.service = ObjectName::new("shop/web", "a");
        assert_ne!(
            Names::of(&other).text(),
            Names::of(&key("web/a", "")).text()
        );
    }
}
