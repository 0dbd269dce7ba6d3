//! What there is to explain from: the state always, and the cluster behind it where it is known. A
//! node that follows a brain elsewhere has the state only.

use std::net::IpAddr;

use proxy_model::{
    Model, NodeState, ServiceName, ServicePortKey, SliceName, Standing, TrafficPolicy,
};

/// The state, and what it follows from.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    state: &'a NodeState,
    cluster: Option<&'a Model>,
}

impl<'a> Known<'a> {
    /// A state, and the model that it is of if there is one here.
    pub fn new(state: &'a NodeState, cluster: Option<&'a Model>) -> Self {
        Self { state, cluster }
    }

    /// The state.
    pub fn state(&self) -> &'a NodeState {
        self.state
    }

    /// Whether there is no more to know than the state.
    pub(super) fn is_state_only(&self) -> bool {
        self.cluster.is_none()
    }

    /// What becomes of each endpoint that a Service port could use; `None` if only those are known
    /// that it does use.
    pub(super) fn standings(
        &self,
        key: &ServicePortKey,
        policy: TrafficPolicy,
    ) -> Option<Vec<Standing<'a>>> {
        Some(self.cluster?.standings(key, policy))
    }

    /// Services with a load balancer that serves `address` itself, as far as is known.
    pub(super) fn proxied(&self, address: IpAddr) -> impl Iterator<Item = &'a ServiceName> {
        let clusters = self.cluster.into_iter();
        clusters.flat_map(move |cluster| cluster.proxied(address))
    }

    /// The EndpointSlices of a Service, as far as is known.
    pub(super) fn slice_names(&self, service: &ServiceName) -> impl Iterator<Item = &'a SliceName> {
        let clusters = self.cluster.into_iter();
        clusters.flat_map(move |cluster| cluster.slice_names(service))
    }
}

impl<'a> From<&'a Model> for Known<'a> {
    fn from(model: &'a Model) -> Self {
        Self::new(model.state(), Some(model))
    }
}

impl<'a> From<&'a NodeState> for Known<'a> {
    fn from(state: &'a NodeState) -> Self {
        Self::new(state, None)
    }
}
