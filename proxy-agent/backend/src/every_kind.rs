//! A state for a trial: what a host takes of it, it takes of any.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    num::NonZeroU32,
    sync::Arc,
};

use proxy_model::{
    Endpoint, Frontend, FrontendKind, IpFamily, NodeState, Protocol, ServiceName, ServicePortKey,
    ServiceState, SourceRanges, TrafficPolicy,
};

/// A state that needs every kind of rule.
pub fn every_kind() -> NodeState {
    let mut state = NodeState::default();
    for (family, address) in [IpFamily::V4, IpFamily::V6].into_iter().zip([
        IpAddr::from(Ipv4Addr::new(192, 0, 2, 1)),
        IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    ]) {
        for affinity in [None, NonZeroU32::new(1)] {
            let (key, service) = service(family, address, affinity);
            state.services.insert(key, Arc::new(service));
        }
    }
    state
}

fn service(
    family: IpFamily,
    address: IpAddr,
    affinity: Option<NonZeroU32>,
) -> (ServicePortKey, ServiceState) {
    let endpoints: Arc<[Endpoint]> = Arc::new([Endpoint::at(SocketAddr::new(address, 80))]);
    let frontend = |kind, address| Frontend {
        kind,
        address,
        port: if affinity.is_some() { 80 } else { 81 },
    };
    let other = match address {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::new(192, 0, 2, 2)),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
    };
    let service = ServiceState {
        frontends: vec![
            frontend(FrontendKind::ClusterIp, Some(address)),
            frontend(FrontendKind::LoadBalancerIp, Some(other)),
            frontend(FrontendKind::NodePort, None),
        ],
        cluster_endpoints: Some(Arc::clone(&endpoints)),
        local_endpoints: Some(endpoints),
        has_any_endpoints: true,
        internal_policy: TrafficPolicy::Cluster,
        external_policy: TrafficPolicy::Local,
        affinity,
        source_ranges: Some(Arc::new(SourceRanges {
            ranges: vec![address.into()],
            own_address: true,
        })),
    };
    let key = ServicePortKey {
        service: ServiceName::new(
            "probe",
            if affinity.is_some() {
                "sticky"
            } else {
                "plain"
            },
        ),
        port: Arc::default(),
        protocol: Protocol::Tcp,
        family,
    };
    (key, service)
}
