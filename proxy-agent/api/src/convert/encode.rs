//! The model's values as messages.

use std::net::IpAddr;

use proxy_model::{
    Diagnostic, Endpoint, Frontend, FrontendKind, HealthCheck, HealthCheckKey, IpNet,
    ServicePortKey, ServiceState, TrafficPolicy, oracle::Detector,
};

use super::names::{family, service_port_key};
use crate::{Item, ItemKey, NodeFacts, Trigger, wire};

pub fn item(item: &Item) -> wire::Item {
    use wire::item::Item as To;
    let item = match item {
        Item::Node(facts) => To::Node(node(facts)),
        Item::ServicePort(key, state) => To::ServicePort(service_port(key, state)),
        Item::HealthCheck(key, check) => To::HealthCheck(health_check(key, *check)),
        Item::Diagnostics(all) => To::Diagnostics(diagnostics(all)),
    };
    wire::Item { item: Some(item) }
}

pub fn key(key: &ItemKey) -> wire::Key {
    use wire::key::Key as To;
    let key = match key {
        ItemKey::ServicePort(key) => To::ServicePort(service_port_key(key)),
        ItemKey::HealthCheck(key) => To::HealthCheck(health_check_key(key)),
        ItemKey::Diagnostics(object) => To::Diagnostics(object.to_string()),
    };
    wire::Key { key: Some(key) }
}

fn node(facts: &NodeFacts) -> wire::Node {
    use wire::node::PodDetector;
    let pod_detector = match &facts.traffic.detector {
        Detector::None => None,
        Detector::ClusterCidr(ranges) => Some(PodDetector::ClusterCidrs(wire::CidrList {
            cidrs: cidrs(ranges),
        })),
        Detector::NodeCidr => Some(PodDetector::PodCidrs(wire::PodCidrs {})),
        Detector::BridgeInterface(name) => Some(PodDetector::BridgeInterface(name.to_string())),
        Detector::InterfaceNamePrefix(name) => {
            Some(PodDetector::InterfaceNamePrefix(name.to_string()))
        }
    };
    let object = facts.node.object.as_ref().map(|node| wire::NodeObject {
        name: node.name.to_string(),
        zone: node.zone.as_ref().map(ToString::to_string),
        pod_cidrs: cidrs(&node.pod_cidrs),
        addresses: addresses(&node.addresses),
        eligible: node.eligible,
    });
    wire::Node {
        name: facts.node.name.to_string(),
        object,
        host_addresses: addresses(&facts.node.host_addresses),
        node_port_addresses: addresses(&facts.node_port_addresses),
        service_cidrs: cidrs(&facts.service_cidrs),
        pod_detector,
        masquerade_all: facts.traffic.masquerade_all,
    }
}

fn service_port(key: &ServicePortKey, state: &ServiceState) -> wire::ServicePort {
    let source_ranges = state.source_ranges.as_ref().map(|all| wire::SourceRanges {
        ranges: cidrs(&all.ranges),
        own_address: all.own_address,
    });
    wire::ServicePort {
        key: Some(service_port_key(key)),
        frontends: state.frontends.iter().map(frontend).collect(),
        cluster_endpoints: state.cluster_endpoints.as_deref().map(endpoints),
        local_endpoints: state.local_endpoints.as_deref().map(endpoints),
        has_any_endpoints: state.has_any_endpoints,
        internal_policy: policy(state.internal_policy).into(),
        external_policy: policy(state.external_policy).into(),
        affinity_seconds: state.affinity.map(Into::into),
        source_ranges,
    }
}

fn frontend(frontend: &Frontend) -> wire::Frontend {
    let kind = match frontend.kind {
        FrontendKind::ClusterIp => wire::FrontendKind::ClusterIp,
        FrontendKind::LoadBalancerIp => wire::FrontendKind::LoadBalancerIp,
        FrontendKind::ExternalIp => wire::FrontendKind::ExternalIp,
        FrontendKind::NodePort => wire::FrontendKind::NodePort,
    };
    wire::Frontend {
        kind: kind.into(),
        address: frontend.address.map(address).unwrap_or_default(),
        port: frontend.port.into(),
    }
}

fn endpoints(endpoints: &[Endpoint]) -> wire::EndpointSet {
    let endpoint = |one: &Endpoint| wire::Endpoint {
        address: address(one.address.ip()),
        port: one.address.port().into(),
        local: one.local,
    };
    wire::EndpointSet {
        endpoints: endpoints.iter().map(endpoint).collect(),
    }
}

fn policy(policy: TrafficPolicy) -> wire::TrafficPolicy {
    match policy {
        TrafficPolicy::Cluster => wire::TrafficPolicy::Cluster,
        TrafficPolicy::Local => wire::TrafficPolicy::Local,
    }
}

fn health_check(key: &HealthCheckKey, check: HealthCheck) -> wire::HealthCheck {
    wire::HealthCheck {
        key: Some(health_check_key(key)),
        port: check.port.get().into(),
        local_endpoints: check.local_endpoints as u64,
    }
}

fn health_check_key(key: &HealthCheckKey) -> wire::HealthCheckKey {
    wire::HealthCheckKey {
        namespace: key.service.namespace.to_string(),
        name: key.service.name.to_string(),
        family: family(key.family).into(),
    }
}

fn diagnostics(all: &[Diagnostic]) -> wire::Diagnostics {
    let object = all.first().map(|one| one.object.to_string());
    let diagnostic = |one: &Diagnostic| wire::Diagnostic {
        field: one.field.clone(),
        message: one.message.clone(),
    };
    wire::Diagnostics {
        object: object.unwrap_or_default(),
        diagnostics: all.iter().map(diagnostic).collect(),
    }
}

pub fn trigger(trigger: Trigger) -> wire::Trigger {
    wire::Trigger {
        family: family(trigger.family).into(),
        at: Some(trigger.at.into()),
    }
}

fn addresses(all: &[IpAddr]) -> Vec<Vec<u8>> {
    all.iter().copied().map(address).collect()
}

fn address(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn cidrs(all: &[IpNet]) -> Vec<wire::Cidr> {
    let cidr = |one: &IpNet| wire::Cidr {
        address: address(one.addr()),
        prefix_length: one.prefix_len().into(),
    };
    all.iter().map(cidr).collect()
}
