//! Model values in the form the maps hold.

use std::{net::SocketAddr, sync::Arc};

use proxy_common::{
    address,
    endpoint::{Endpoint, SlotValue},
    frontend::{ENDPOINTS_EXIST, FrontendKey, LEADS_TO_LOCAL, SCOPE_ANY},
    service::{ServiceKey, ServiceValue, from_text, to_text},
    socket,
};
use proxy_model::{IpFamily, ObjectName, Protocol, ServicePortKey, ServiceState, TrafficPolicy};

/// The IP protocol number that sockets of `protocol` have; `None` for SCTP, which the socket
/// hooks never see (tried on 5.10, 6.1 and 6.12).
pub fn protocol_number(protocol: Protocol) -> Option<u8> {
    match protocol {
        Protocol::Tcp => Some(socket::TCP),
        Protocol::Udp => Some(socket::UDP),
        Protocol::Sctp => None,
    }
}

/// Keys of FRONTENDS for a Service port.
pub fn frontend_keys(state: &ServiceState, protocol: u8) -> impl Iterator<Item = FrontendKey> {
    state.frontends.iter().filter_map(move |frontend| {
        let address = frontend.address.filter(|_| !frontend.kind.is_external())?;
        Some(FrontendKey {
            address: address::from_ip(address),
            port: frontend.port,
            protocol,
            scope: SCOPE_ANY,
        })
    })
}

/// Flags of a frontend of this Service port.
pub fn frontend_flags(state: &ServiceState) -> u32 {
    let local = match state.internal_policy {
        TrafficPolicy::Cluster => 0,
        TrafficPolicy::Local => LEADS_TO_LOCAL,
    };
    local
        | if state.has_any_endpoints {
            ENDPOINTS_EXIST
        } else {
            0
        }
}

/// Value of SERVICES; `None` when a name is longer than Kubernetes allows.
pub fn service_value(service: u32, key: &ServicePortKey) -> Option<ServiceValue> {
    Some(ServiceValue {
        service,
        protocol: protocol_number(key.protocol)?,
        family: match key.family {
            IpFamily::V4 => 4,
            IpFamily::V6 => 6,
        },
        padding: 0,
        namespace: to_text(&key.service.namespace)?,
        name: to_text(&key.service.name)?,
        port_name: to_text(&key.port)?,
    })
}

/// The Service port that an entry of SERVICES names; `None` when it makes no sense.
pub fn service_key(key: ServiceKey, value: &ServiceValue) -> Option<ServicePortKey> {
    if key.service != value.service {
        return None;
    }
    Some(ServicePortKey {
        service: ObjectName::new(from_text(&value.namespace)?, from_text(&value.name)?),
        port: Arc::from(from_text(&value.port_name)?),
        protocol: match value.protocol {
            socket::TCP => Protocol::Tcp,
            socket::UDP => Protocol::Udp,
            _ => return None,
        },
        family: match value.family {
            4 => IpFamily::V4,
            6 => IpFamily::V6,
            _ => return None,
        },
    })
}

/// Value of SLOTS.
pub fn slot_value(set: u32, endpoint: u32, at: SocketAddr) -> SlotValue {
    let (port, address) = (at.port(), address::from_ip(at.ip()));
    SlotValue::new(
        set,
        &Endpoint {
            number: endpoint,
            port,
            address,
        },
    )
}

/// Where a slot leads.
pub fn slot_address(value: &SlotValue) -> SocketAddr {
    SocketAddr::new(address::to_ip(value.address), value.port)
}
