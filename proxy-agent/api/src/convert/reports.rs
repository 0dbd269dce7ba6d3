//! What clients tell a brain, checked as everything that comes.

use proxy_model::{Capability, ServiceFailure};

use super::decode::{Result, each, in_order, required, service_port_key};
use crate::wire;

/// What a client lacks. What a later version calls so is nothing that Services need here.
pub fn capabilities(from: &wire::Client) -> Vec<Capability> {
    let all = from.lacks().filter_map(|one| match one {
        wire::Capability::Unspecified => None,
        wire::Capability::Sctp => Some(Capability::Sctp),
        wire::Capability::ExternalTraffic => Some(Capability::ExternalTraffic),
        wire::Capability::SourceRanges => Some(Capability::SourceRanges),
        wire::Capability::Affinity => Some(Capability::Affinity),
        wire::Capability::ForeignClients => Some(Capability::ForeignClients),
        wire::Capability::Masquerade => Some(Capability::Masquerade),
        wire::Capability::StrayTraffic => Some(Capability::StrayTraffic),
        wire::Capability::LoopbackNodePorts => Some(Capability::LoopbackNodePorts),
        wire::Capability::Ipv6LoopbackNodePorts => Some(Capability::Ipv6LoopbackNodePorts),
    });
    in_order(all.collect())
}

/// Service ports that a backend could not program.
pub fn failures(from: Vec<wire::Failure>) -> Result<Vec<ServiceFailure>> {
    each("failures", from, |one| {
        Ok(ServiceFailure {
            key: service_port_key(required("key", one.key)?)?,
            reason: one.reason,
        })
    })
}
