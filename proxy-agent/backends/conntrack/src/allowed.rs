//! Where flows of one frontend may lead. Which of a Service port's sets serves a packet depends on
//! its source too, which a flow no longer tells for certain: so each set counts that serves some.

use std::{net::SocketAddr, sync::Arc};

use proxy_model::{Endpoint, FrontendKind, ServiceState, TrafficPolicy};

/// The endpoints that a frontend may lead to: all that are in either set.
#[derive(Debug, Clone, Default)]
pub(super) struct Allowed([Option<Arc<[Endpoint]>>; 2]);

impl Allowed {
    /// Those of a frontend of this kind.
    pub(super) fn of(service: &ServiceState, kind: FrontendKind) -> Self {
        let cluster = service.cluster_endpoints.clone();
        let local = service.local_endpoints.clone();
        let (policy, external) = if kind.is_external() {
            (service.external_policy, true)
        } else {
            (service.internal_policy, false)
        };
        Self(match policy {
            TrafficPolicy::Cluster => [cluster, None],
            // Clients on this node are led to the cluster set all the same.
            TrafficPolicy::Local if external => [cluster, local],
            TrafficPolicy::Local => [None, local],
        })
    }

    fn sets(&self) -> impl Iterator<Item = &[Endpoint]> {
        self.0.iter().flatten().map(|set| &**set)
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.sets().all(<[_]>::is_empty)
    }

    /// Whether `address` is one of them.
    pub(super) fn contains(&self, address: SocketAddr) -> bool {
        // Sets are ordered.
        let is_in = |set: &[Endpoint]| set.binary_search_by_key(&address, |one| one.address);
        self.sets().any(|set| is_in(set).is_ok())
    }

    /// Whether each of them is one of `other`, too.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.sets()
            .flatten()
            .all(|endpoint| other.contains(endpoint.address))
    }
}
