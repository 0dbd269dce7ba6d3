//! Addresses that all Services together have: those that any node may have on one of its devices (external and
//! load-balancer IPs), and those of endpoints on this node. Pure: reads states.
//!
//! A state is compared with the one before. The two share what did not change, so that costs next to
//! nothing however many Services there are, and does not depend on what became of the syncs in between;
//! to look at all Services would cost milliseconds each time that some endpoint comes or goes.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use imbl::{OrdMap, OrdSet, ordmap::DiffItem};
use proxy_model::{FrontendKind, NodeState, ServicePortKey, ServiceState};

/// Those of the last state.
#[derive(Debug)]
pub struct ServiceAddresses {
    /// Those of one Service port.
    of_service: fn(&ServiceState) -> Vec<IpAddr>,
    services: OrdMap<ServicePortKey, Arc<ServiceState>>,
    /// How often each is there.
    counts: BTreeMap<IpAddr, usize>,
    all: OrdSet<IpAddr>,
}

impl ServiceAddresses {
    /// External and load-balancer IPs.
    pub fn virtual_ones() -> Self {
        Self::with(dialled)
    }

    /// Those of endpoints that are known to be on this node.
    pub fn of_endpoints_here() -> Self {
        Self::with(endpoints_here)
    }

    fn with(of_service: fn(&ServiceState) -> Vec<IpAddr>) -> Self {
        Self {
            of_service,
            services: OrdMap::new(),
            counts: BTreeMap::new(),
            all: OrdSet::new(),
        }
    }

    /// Those of `state`. What is returned is cheap to clone, and to compare with what was returned
    /// before.
    pub fn of(&mut self, state: &NodeState) -> &OrdSet<IpAddr> {
        let before = std::mem::replace(&mut self.services, state.services.clone());
        for one in before.diff(&state.services) {
            let (old, new) = match one {
                DiffItem::Add(_, new) => (None, Some(new)),
                DiffItem::Update { old, new } => (Some(old.1), Some(new.1)),
                DiffItem::Remove(_, old) => (Some(old), None),
            };
            // First what is new: what both have is not given up in between.
            let of_service = self.of_service;
            new.into_iter()
                .flat_map(|service| of_service(service))
                .for_each(|address| self.add(address));
            old.into_iter()
                .flat_map(|service| of_service(service))
                .for_each(|address| self.remove(address));
        }
        &self.all
    }

    fn add(&mut self, address: IpAddr) {
        *self.counts.entry(address).or_default() += 1;
        if !self.all.contains(&address) {
            self.all.insert(address);
        }
    }

    fn remove(&mut self, address: IpAddr) {
        let Some(count) = self.counts.get_mut(&address) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&address);
            self.all.remove(&address);
        }
    }
}

fn dialled(service: &ServiceState) -> Vec<IpAddr> {
    let frontends = service.frontends.iter();
    let dialled = frontends.filter_map(|frontend| match frontend.kind {
        FrontendKind::LoadBalancerIp | FrontendKind::ExternalIp => frontend.address,
        FrontendKind::ClusterIp | FrontendKind::NodePort => None,
    });
    dialled.collect()
}

fn endpoints_here(service: &ServiceState) -> Vec<IpAddr> {
    let sets = [&service.cluster_endpoints, &service.local_endpoints];
    let all = sets.into_iter().flatten().flat_map(|set| &**set);
    let here = all.filter(|endpoint| endpoint.is_here());
    here.map(|endpoint| endpoint.address.ip()).collect()
}

#[cfg(test)]
mod tests {
    use proxy_model::{Endpoint, Frontend, IpFamily, Protocol, ServiceName, TrafficPolicy};

    use super::*;

    fn service(frontends: &[(FrontendKind, Option<&str>)]) -> Arc<ServiceState> {
        let frontend = |(kind, address): &(FrontendKind, Option<&str>)| Frontend {
            kind: *kind,
            address: address.map(|address| address.parse().unwrap()),
            port: 80,
        };
        Arc::new(ServiceState {
            frontends: frontends.iter().map(frontend).collect(),
            cluster_endpoints: None,
            local_endpoints: None,
            has_any_endpoints: false,
            internal_policy: TrafficPolicy::Cluster,
            external_policy: TrafficPolicy::Cluster,
            affinity: None,
            source_ranges: None,
        })
    }

    fn key(port: &str) -> ServicePortKey {
        ServicePortKey {
            service: ServiceName::new("shop", "web"),
            port: port.into(),
            protocol: Protocol::Tcp,
            family: IpFamily::V4,
        }
    }

    #[test]
    fn an_address_is_there_as_long_as_some_service_port_has_it() {
        use FrontendKind::{ClusterIp, ExternalIp, LoadBalancerIp, NodePort};
        let mut known = ServiceAddresses::virtual_ones();
        let mut state = NodeState::default();
        let mut told = |state: &NodeState| -> Vec<String> {
            let all = known.of(state);
            all.iter().map(ToString::to_string).collect()
        };
        let both = service(&[
            (ClusterIp, Some("10.96.0.1")),
            (LoadBalancerIp, Some("198.51.100.1")),
            (ExternalIp, Some("203.0.113.1")),
            (NodePort, None),
        ]);
        state.services.insert(key("http"), Arc::clone(&both));
        assert_eq!(told(&state), ["198.51.100.1", "203.0.113.1"]);
        state.services.insert(key("https"), both);
        assert_eq!(told(&state), ["198.51.100.1", "203.0.113.1"]);
        state.services.remove(&key("http"));
        assert_eq!(told(&state), ["198.51.100.1", "203.0.113.1"]);
        let other = service(&[
            (ExternalIp, Some("198.51.100.1")),
            (LoadBalancerIp, Some("2001:db8::1")),
        ]);
        state.services.insert(key("https"), other);
        assert_eq!(told(&state), ["198.51.100.1", "2001:db8::1"]);
        // Whatever became of states in between.
        state = NodeState::default();
        let last = service(&[(LoadBalancerIp, Some("198.51.100.9"))]);
        state.services.insert(key("dns"), last);
        assert_eq!(told(&state), ["198.51.100.9"]);
        assert_eq!(told(&NodeState::default()), [] as [&str; 0]);
    }

    #[test]
    fn endpoints_count_that_are_known_to_be_here() {
        let endpoint = |address: &str, local| Endpoint {
            address: address.parse().unwrap(),
            local,
        };
        let mut service = ServiceState::clone(&service(&[]));
        let here = endpoint("10.244.0.2:80", Some(true));
        service.cluster_endpoints = Some(Arc::new([
            here,
            endpoint("10.244.1.2:80", Some(false)),
            endpoint("10.244.2.2:80", None),
        ]));
        service.local_endpoints = Some(Arc::new([here]));
        let mut known = ServiceAddresses::of_endpoints_here();
        let mut state = NodeState::default();
        state.services.insert(key("http"), Arc::new(service));
        let there = IpAddr::from([10, 244, 0, 2]);
        assert_eq!(*known.of(&state), OrdSet::unit(there));
        assert!(known.of(&NodeState::default()).is_empty());
    }
}
