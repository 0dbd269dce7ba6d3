//! Who may serve an address that several Services claim. Knows addresses and names, nothing of
//! endpoints.
//!
//! The API server hands out each ClusterIP once, but a source may show two owners: while an
//! address moves from one Service to another, or in hand-written manifests. The smallest
//! claimant holds the address, so that the outcome does not depend on who came first.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use crate::{
    Frontend, FrontendKind, IpFamily, Protocol, Service, ServiceName,
    frontends::{asked_for, families},
};

/// What is claimed: one address and port that a client can dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claim {
    family: IpFamily,
    /// `None` for this node's own addresses.
    address: Option<IpAddr>,
    port: u16,
    protocol: Protocol,
}

impl Claim {
    pub(crate) fn new(frontend: &Frontend, protocol: Protocol, family: IpFamily) -> Self {
        Self {
            family,
            address: frontend.address,
            port: frontend.port,
            protocol,
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{}", SocketAddr::new(address, self.port))?,
            None => write!(f, "{} node port {}", self.family, self.port)?,
        }
        write!(f, "/{}", self.protocol)
    }
}

/// Who claims it. Ordered by kind, so that nobody can take a ClusterIP by naming it as an external
/// IP (CVE-2020-8554); then by namespace, Service name and port name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claimant {
    pub(crate) kind: FrontendKind,
    pub(crate) service: ServiceName,
    pub(crate) port: Arc<str>,
}

impl Claimant {
    /// Whether both are the same port of the same Service.
    pub(crate) fn is_same_port(&self, other: &Self) -> bool {
        (&self.service, &self.port) == (&other.service, &other.port)
    }
}

/// All claims of all Services.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// The claimants of each, ordered; never none. There is one, except by mistake.
    claimants: BTreeMap<Claim, Vec<Claimant>>,
}

impl Claims {
    /// Enters what `service` claims, and returns the Services whose outcome that changed.
    pub(crate) fn add(&mut self, service: &Service) -> BTreeSet<ServiceName> {
        let mut affected = BTreeSet::new();
        for (claim, claimant) in claims_of(service) {
            let claimants = self.claimants.entry(claim).or_default();
            if let Err(place) = claimants.binary_search(&claimant) {
                claimants.reserve_exact(1);
                claimants.insert(place, claimant);
                if place == 0 {
                    affected.extend(claimants.iter().map(|other| other.service.clone()));
                }
            }
        }
        affected
    }

    /// Withdraws what `service` claims, and returns the Services whose outcome that changed.
    pub(crate) fn remove(&mut self, service: &Service) -> BTreeSet<ServiceName> {
        let mut affected = BTreeSet::new();
        for (claim, claimant) in claims_of(service) {
            let Some(claimants) = self.claimants.get_mut(&claim) else {
                continue;
            };
            if let Ok(place) = claimants.binary_search(&claimant) {
                claimants.remove(place);
                if place == 0 {
                    affected.extend(claimants.iter().map(|other| other.service.clone()));
                }
            }
            if claimants.is_empty() {
                self.claimants.remove(&claim);
            }
        }
        affected
    }

    /// Who holds `claim`.
    pub(crate) fn holder(&self, claim: &Claim) -> Option<&Claimant> {
        self.claimants.get(claim)?.first()
    }
}

fn claims_of(service: &Service) -> impl Iterator<Item = (Claim, Claimant)> {
    families(service).flat_map(move |family| {
        service.ports.iter().flat_map(move |port| {
            asked_for(service, port, family).map(move |frontend| {
                let claimant = Claimant {
                    kind: frontend.kind,
                    service: service.name.clone(),
                    port: Arc::clone(&port.name),
                };
                (Claim::new(&frontend, port.protocol, family), claimant)
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServicePort;

    fn service(name: &str, ports: &[&str]) -> Service {
        Service {
            name: ServiceName::new("shop", name),
            cluster_ips: vec!["10.96.0.1".parse().unwrap()],
            ports: ports
                .iter()
                .map(|&port| ServicePort {
                    name: port.into(),
                    protocol: Protocol::Tcp,
                    port: 80,
                    node_port: None,
                })
                .collect(),
            ..Service::default()
        }
    }

    fn holder(claims: &Claims) -> Option<String> {
        let claim = Claim {
            family: IpFamily::V4,
            address: Some("10.96.0.1".parse().unwrap()),
            port: 80,
            protocol: Protocol::Tcp,
        };
        claims
            .holder(&claim)
            .map(|claimant| format!("{}:{}", claimant.service, claimant.port))
    }

    fn names(affected: &BTreeSet<ServiceName>) -> Vec<&str> {
        affected.iter().map(|name| &*name.name).collect()
    }

    #[test]
    fn the_smallest_claimant_holds_whatever_the_order() {
        let (a, b) = (service("a", &["http"]), service("b", &["http"]));
        for order in [[&a, &b], [&b, &a]] {
            let mut claims = Claims::default();
            for service in order {
                claims.add(service);
            }
            assert_eq!(holder(&claims).as_deref(), Some("shop/a:http"));
        }
    }

    #[test]
    fn a_new_holder_affects_all_claimants_and_a_new_loser_none() {
        let mut claims = Claims::default();
        assert_eq!(names(&claims.add(&service("b", &["http"]))), ["b"]);
        assert!(claims.add(&service("c", &["http"])).is_empty());
        assert_eq!(
            names(&claims.add(&service("a", &["http"]))),
            ["a", "b", "c"]
        );
    }

    #[test]
    fn those_who_remain_are_affected_when_the_holder_leaves() {
        let mut claims = Claims::default();
        for name in ["a", "b", "c"] {
            claims.add(&service(name, &["http"]));
        }
        assert!(claims.remove(&service("b", &["http"])).is_empty());
        assert_eq!(names(&claims.remove(&service("a", &["http"]))), ["c"]);
        assert_eq!(holder(&claims).as_deref(), Some("shop/c:http"));
        claims.remove(&service("c", &["http"]));
        assert!(claims.claimants.is_empty());
    }

    #[test]
    fn two_ports_of_one_service_compete_by_port_name() {
        let mut claims = Claims::default();
        claims.add(&service("a", &["web", "http"]));
        assert_eq!(holder(&claims).as_deref(), Some("shop/a:http"));
    }
}
