//! Which set serves a packet, and whether its source is replaced, by policy and by where it comes
//! from.
//!
//! ```text
//!                                  ClusterIP            external, Cluster    external, Local
//! from this node's pods            policy's set         cluster, masquerade  cluster
//! from this node itself            policy's set, *      cluster, masquerade  cluster, masquerade
//! from elsewhere                   policy's set, *      cluster, masquerade  local
//! from any local socket            policy's set         cluster              cluster
//! ```
//! `*`: masqueraded if a detector says that it comes from no pod of this node, and with
//! `masqueradeAll`.

use super::{Masquerade, Packet, Path, Reason};
use crate::{Frontend, FrontendKind, NodeState, ServiceState, TrafficPolicy};

/// Where a packet goes.
pub(super) struct Route {
    /// To an endpoint of this set.
    pub(super) set: TrafficPolicy,
    /// Why every endpoint sees this node as the source.
    pub(super) masquerade: Option<Masquerade>,
    /// The rule.
    pub(super) reason: Reason,
}

impl Route {
    const fn to_cluster(masquerade: Option<Masquerade>, reason: Reason) -> Self {
        Self {
            set: TrafficPolicy::Cluster,
            masquerade,
            reason,
        }
    }
}

/// The way of `packet` to `frontend`.
pub(super) fn of(
    state: &NodeState,
    packet: &Packet,
    path: Path,
    service: &ServiceState,
    frontend: Frontend,
) -> Route {
    let policy = match frontend.kind {
        FrontendKind::ClusterIp => service.internal_policy,
        FrontendKind::LoadBalancerIp | FrontendKind::ExternalIp | FrontendKind::NodePort => {
            service.external_policy
        }
    };
    let detector = &state.traffic.detector;
    match (frontend.kind.is_external(), policy) {
        (false, policy) => {
            let masquerade = if state.traffic.masquerade_all {
                Some(Masquerade::All)
            } else {
                let foreign = detector.is_local(&state.node, packet) == Some(false);
                foreign.then_some(Masquerade::NotLocal)
            };
            match policy {
                TrafficPolicy::Cluster => Route::to_cluster(masquerade, Reason::ClusterSet),
                TrafficPolicy::Local => Route {
                    set: policy,
                    masquerade,
                    reason: Reason::LocalSet,
                },
            }
        }
        // The answer must come back this way, wherever the endpoint is.
        (true, TrafficPolicy::Cluster) => {
            Route::to_cluster(Some(Masquerade::External), Reason::ClusterSet)
        }
        // What comes from here must not fail because no endpoint is here.
        (true, TrafficPolicy::Local) if path == Path::Socket => {
            Route::to_cluster(None, Reason::LocalClient)
        }
        (true, TrafficPolicy::Local) if detector.is_local(&state.node, packet) == Some(true) => {
            Route::to_cluster(None, Reason::LocalClient)
        }
        (true, TrafficPolicy::Local) if state.node.is_host(packet.source) => {
            Route::to_cluster(Some(Masquerade::Host), Reason::LocalClient)
        }
        (true, TrafficPolicy::Local) => Route {
            set: TrafficPolicy::Local,
            masquerade: None,
            reason: Reason::LocalSet,
        },
    }
}
