//! Messages as the model's values, or why they are none. Never panics, whatever comes.

use std::{
    net::{IpAddr, SocketAddr},
    num::{NonZeroU16, NonZeroU32},
    sync::Arc,
    time::SystemTime,
};

use proxy_model::{
    Diagnostic, Endpoint, Frontend, FrontendKind, HealthCheck, HealthCheckKey, IpFamily, IpNet,
    Node, NodeInfo, Protocol, ServiceName, ServicePortKey, ServiceState, SourceRanges,
    TrafficPolicy,
    oracle::{Detector, Traffic},
};

use super::DecodeError;
use crate::{Item, ItemKey, NodeFacts, Trigger, wire};

pub type Result<T> = std::result::Result<T, DecodeError>;

/// The item; `None` for one of a kind that a later version added.
pub fn item(item: wire::Item) -> Result<Option<Item>> {
    use wire::item::Item as From;
    Ok(Some(match item.item {
        None => return Ok(None),
        Some(From::Node(from)) => {
            Item::Node(Box::new(node(from).map_err(|error| error.within("node"))?))
        }
        Some(From::ServicePort(from)) => service_port(from)?,
        Some(From::HealthCheck(from)) => {
            health_check(from).map_err(|error| error.within("health_check"))?
        }
        Some(From::Diagnostics(from)) => diagnostics(from)?,
    }))
}

/// The key; `None` for one of a kind that a later version added.
pub fn key(key: wire::Key) -> Result<Option<ItemKey>> {
    use wire::key::Key as From;
    Ok(Some(match key.key {
        None => return Ok(None),
        Some(From::ServicePort(key)) => ItemKey::ServicePort(service_port_key(key)?),
        Some(From::HealthCheck(key)) => ItemKey::HealthCheck(health_check_key(key)?),
        Some(From::Diagnostics(object)) => ItemKey::Diagnostics(object.into()),
    }))
}

/// A field that the message makes no sense without.
pub fn required<T>(field: &str, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| DecodeError::new(field, "is required"))
}

fn node(from: wire::Node) -> Result<NodeFacts> {
    use wire::node::PodDetector;
    let detector = match from.pod_detector {
        None => Detector::None,
        Some(PodDetector::ClusterCidrs(ranges)) => {
            Detector::ClusterCidr(cidrs("cluster_cidrs", ranges.cidrs)?)
        }
        Some(PodDetector::PodCidrs(wire::PodCidrs {})) => Detector::NodeCidr,
        Some(PodDetector::BridgeInterface(name)) => Detector::BridgeInterface(name.into()),
        Some(PodDetector::InterfaceNamePrefix(name)) => Detector::InterfaceNamePrefix(name.into()),
    };
    let object = from.object.map(node_object).transpose()?;
    Ok(NodeFacts {
        node: NodeInfo {
            name: from.name.into(),
            object: object.map(Arc::new),
            host_addresses: in_order(addresses("host_addresses", from.host_addresses)?).into(),
        },
        traffic: Traffic {
            detector,
            masquerade_all: from.masquerade_all,
        },
        node_port_addresses: in_order(addresses("node_port_addresses", from.node_port_addresses)?)
            .into(),
        service_cidrs: in_order(cidrs("service_cidrs", from.service_cidrs)?).into(),
    })
}

fn node_object(from: wire::NodeObject) -> Result<Node> {
    Ok(Node {
        name: from.name.into(),
        zone: from.zone.map(Into::into),
        pod_cidrs: cidrs("object.pod_cidrs", from.pod_cidrs)?,
        addresses: addresses("object.addresses", from.addresses)?,
        eligible: from.eligible,
    })
}

fn service_port(mut from: wire::ServicePort) -> Result<Item> {
    let key = service_port_key(required("service_port.key", from.key.take())?)?;
    let state = service_state(key.family, from)
        .map_err(|error| error.within(&format!("service_port {key}")))?;
    Ok(Item::ServicePort(key, Arc::new(state)))
}

fn service_state(family: IpFamily, from: wire::ServicePort) -> Result<ServiceState> {
    let frontends: Result<Vec<_>> = each("frontends", from.frontends, |one| frontend(family, &one));
    let set = |field, set: Option<wire::EndpointSet>| {
        set.map(|set| {
            let endpoints = each(field, set.endpoints, |one| endpoint(family, &one))?;
            Ok(Arc::from(each_once(endpoints)))
        })
        .transpose()
    };
    let affinity = from.affinity_seconds.map(|seconds| {
        let problem = "is 0: omit it if there is no affinity";
        NonZeroU32::new(seconds).ok_or_else(|| DecodeError::new("affinity_seconds", problem))
    });
    let source_ranges = from.source_ranges.map(|from| {
        let ranges = cidrs("source_ranges.ranges", from.ranges)?;
        for range in &ranges {
            of_family("source_ranges.ranges", family, range.addr())?;
        }
        Ok(Arc::new(SourceRanges {
            ranges: in_order(ranges),
            own_address: from.own_address,
        }))
    });
    Ok(ServiceState {
        frontends: in_order(frontends?),
        cluster_endpoints: set("cluster_endpoints", from.cluster_endpoints)?,
        local_endpoints: set("local_endpoints", from.local_endpoints)?,
        has_any_endpoints: from.has_any_endpoints,
        internal_policy: policy("internal_policy", from.internal_policy)?,
        external_policy: policy("external_policy", from.external_policy)?,
        affinity: affinity.transpose()?,
        source_ranges: source_ranges.transpose()?,
    })
}

pub fn service_port_key(from: wire::ServicePortKey) -> Result<ServicePortKey> {
    let protocol = match from.protocol() {
        wire::Protocol::Tcp => Protocol::Tcp,
        wire::Protocol::Udp => Protocol::Udp,
        wire::Protocol::Sctp => Protocol::Sctp,
        wire::Protocol::Unspecified => {
            return Err(unknown("service_port.key.protocol", from.protocol));
        }
    };
    Ok(ServicePortKey {
        protocol,
        family: family("service_port.key.family", from.family)?,
        service: ServiceName::new(from.namespace, from.name),
        port: from.port.into(),
    })
}

fn frontend(family: IpFamily, from: &wire::Frontend) -> Result<Frontend> {
    let kind = match from.kind() {
        wire::FrontendKind::ClusterIp => FrontendKind::ClusterIp,
        wire::FrontendKind::LoadBalancerIp => FrontendKind::LoadBalancerIp,
        wire::FrontendKind::ExternalIp => FrontendKind::ExternalIp,
        wire::FrontendKind::NodePort => FrontendKind::NodePort,
        wire::FrontendKind::Unspecified => return Err(unknown("kind", from.kind)),
    };
    let address = match (&*from.address, kind) {
        ([], FrontendKind::NodePort) => None,
        (bytes, _) => Some(of_family("address", family, address("address", bytes)?)?),
    };
    let port = port("port", from.port)?.get();
    Ok(Frontend {
        kind,
        address,
        port,
    })
}

/// In order of address, each address once. What is said to be here and elsewhere is known to be neither.
fn each_once(endpoints: Vec<Endpoint>) -> Vec<Endpoint> {
    let mut endpoints = in_order(endpoints);
    endpoints.dedup_by(|next, kept| {
        let same = next.address == kept.address;
        if same {
            kept.local = None;
        }
        same
    });
    endpoints
}

fn endpoint(family: IpFamily, from: &wire::Endpoint) -> Result<Endpoint> {
    let address = of_family("address", family, address("address", &from.address)?)?;
    let port = port("port", from.port)?.get();
    Ok(Endpoint {
        address: SocketAddr::new(address, port),
        local: from.local,
    })
}

fn health_check(from: wire::HealthCheck) -> Result<Item> {
    let key = health_check_key(required("key", from.key)?)?;
    let check = HealthCheck {
        port: port("port", from.port)?,
        local_endpoints: usize::try_from(from.local_endpoints).unwrap_or(usize::MAX),
    };
    Ok(Item::HealthCheck(key, check))
}

fn health_check_key(from: wire::HealthCheckKey) -> Result<HealthCheckKey> {
    Ok(HealthCheckKey {
        family: family("health_check.key.family", from.family)?,
        service: ServiceName::new(from.namespace, from.name),
    })
}

fn diagnostics(from: wire::Diagnostics) -> Result<Item> {
    if from.diagnostics.is_empty() {
        let problem = "is empty: delete the item when nothing is wrong any more";
        return Err(DecodeError::new("diagnostics.diagnostics", problem));
    }
    let object: Arc<str> = from.object.into();
    let diagnostic = |one: wire::Diagnostic| Diagnostic {
        object: Arc::clone(&object),
        field: one.field,
        message: one.message,
    };
    let all = from.diagnostics.into_iter().map(diagnostic).collect();
    Ok(Item::Diagnostics(in_order(all)))
}

pub fn trigger(from: wire::Trigger) -> Option<Trigger> {
    // A trigger is only measured: one that makes no sense is worth no trouble.
    Some(Trigger {
        family: family("family", from.family).ok()?,
        at: SystemTime::try_from(from.at?).ok()?,
    })
}

fn policy(field: &str, from: i32) -> Result<TrafficPolicy> {
    match wire::TrafficPolicy::try_from(from) {
        Ok(wire::TrafficPolicy::Cluster) => Ok(TrafficPolicy::Cluster),
        Ok(wire::TrafficPolicy::Local) => Ok(TrafficPolicy::Local),
        Ok(wire::TrafficPolicy::Unspecified) | Err(_) => Err(unknown(field, from)),
    }
}

fn family(field: &str, from: i32) -> Result<IpFamily> {
    match wire::IpFamily::try_from(from) {
        Ok(wire::IpFamily::Ipv4) => Ok(IpFamily::V4),
        Ok(wire::IpFamily::Ipv6) => Ok(IpFamily::V6),
        Ok(wire::IpFamily::Unspecified) | Err(_) => Err(unknown(field, from)),
    }
}

fn unknown(field: &str, value: i32) -> DecodeError {
    let problem = match value {
        0 => "is not specified, and must be".to_owned(),
        _ => format!("has the unknown value {value}: the other side may be newer"),
    };
    DecodeError::new(field, problem)
}

fn port(field: &str, from: u32) -> Result<NonZeroU16> {
    let port = u16::try_from(from).ok().and_then(NonZeroU16::new);
    port.ok_or_else(|| DecodeError::new(field, format!("is {from}; a port is 1 to 65535")))
}

fn of_family(field: &str, family: IpFamily, address: IpAddr) -> Result<IpAddr> {
    if IpFamily::of(address) == family {
        return Ok(address);
    }
    let problem = format!("{address} is not an {family} address, but the key is of that family");
    Err(DecodeError::new(field, problem))
}

fn addresses(field: &str, from: Vec<Vec<u8>>) -> Result<Vec<IpAddr>> {
    each(field, from, |bytes| address("", &bytes))
}

fn address(field: &str, from: &[u8]) -> Result<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(from) {
        return Ok(v4.into());
    }
    if let Ok(v6) = <[u8; 16]>::try_from(from) {
        return Ok(v6.into());
    }
    let problem = format!("has {} bytes; an address has 4 or 16", from.len());
    Err(DecodeError::new(field, problem))
}

fn cidrs(field: &str, from: Vec<wire::Cidr>) -> Result<Vec<IpNet>> {
    each(field, from, |one| {
        let address = address("address", &one.address)?;
        let length = u8::try_from(one.prefix_length).ok();
        let net = length.and_then(|length| IpNet::new(address, length).ok());
        let problem = || format!("{} is too long for {address}", one.prefix_length);
        net.ok_or_else(|| DecodeError::new("prefix_length", problem()))
    })
}

/// Converts a list; an error names the place in it.
pub fn each<F, T>(field: &str, from: Vec<F>, one: impl Fn(F) -> Result<T>) -> Result<Vec<T>> {
    let at =
        |(index, value)| one(value).map_err(|error| error.within(&format!("{field}[{index}]")));
    from.into_iter().enumerate().map(at).collect()
}

/// Backends may rely on the order, whoever sends.
pub fn in_order<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    if !all.is_sorted_by(|a, b| a < b) {
        all.sort_unstable();
        all.dedup();
    }
    all
}
