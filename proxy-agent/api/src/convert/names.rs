//! What both sides name, as messages: Service ports, families, capabilities.

use proxy_model::{Capability, IpFamily, Protocol, ServicePortKey};

use crate::wire;

pub fn service_port_key(key: &ServicePortKey) -> wire::ServicePortKey {
    let protocol = match key.protocol {
        Protocol::Tcp => wire::Protocol::Tcp,
        Protocol::Udp => wire::Protocol::Udp,
        Protocol::Sctp => wire::Protocol::Sctp,
    };
    wire::ServicePortKey {
        namespace: key.service.namespace.to_string(),
        name: key.service.name.to_string(),
        port: key.port.to_string(),
        protocol: protocol.into(),
        family: family(key.family).into(),
    }
}

pub fn family(family: IpFamily) -> wire::IpFamily {
    match family {
        IpFamily::V4 => wire::IpFamily::Ipv4,
        IpFamily::V6 => wire::IpFamily::Ipv6,
    }
}

pub fn capability(capability: Capability) -> wire::Capability {
    match capability {
        Capability::Sctp => wire::Capability::Sctp,
        Capability::ExternalTraffic => wire::Capability::ExternalTraffic,
        Capability::SourceRanges => wire::Capability::SourceRanges,
        Capability::Affinity => wire::Capability::Affinity,
        Capability::ForeignClients => wire::Capability::ForeignClients,
        Capability::Masquerade => wire::Capability::Masquerade,
        Capability::StrayTraffic => wire::Capability::StrayTraffic,
        Capability::LoopbackNodePorts => wire::Capability::LoopbackNodePorts,
        Capability::Ipv6LoopbackNodePorts => wire::Capability::Ipv6LoopbackNodePorts,
    }
}
