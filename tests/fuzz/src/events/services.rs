//! Services.

use std::num::{NonZeroU16, NonZeroU32};

use arbitrary::{Result, Unstructured};
use proxy_model::{ExternalAccess, Service, ServicePort, TrafficPolicy};

use super::{address, maybe, name, port, port_name, protocol, range, several};

pub(super) fn service(input: &mut Unstructured<'_>) -> Result<Service> {
    Ok(Service {
        name: name(input)?,
        cluster_ips: several(input, address)?,
        ports: several(input, service_port)?,
        internal_policy: policy(input)?,
        affinity: NonZeroU32::new(input.int_in_range(0..=3)?),
        external: maybe(input, external)?.map(Box::new),
    })
}

fn service_port(input: &mut Unstructured<'_>) -> Result<ServicePort> {
    Ok(ServicePort {
        name: port_name(input)?,
        protocol: protocol(input)?,
        port: port(input)?,
        node_port: maybe(input, port)?.and_then(NonZeroU16::new),
    })
}

fn policy(input: &mut Unstructured<'_>) -> Result<TrafficPolicy> {
    let all = [TrafficPolicy::Cluster, TrafficPolicy::Local];
    input.choose(&all).copied()
}

fn external(input: &mut Unstructured<'_>) -> Result<ExternalAccess> {
    Ok(ExternalAccess {
        policy: policy(input)?,
        ips: several(input, address)?,
        load_balancer_ips: several(input, address)?,
        proxied_ips: several(input, address)?,
        source_ranges: several(input, range)?,
        health_check_node_port: maybe(input, port)?.and_then(NonZeroU16::new),
    })
}
