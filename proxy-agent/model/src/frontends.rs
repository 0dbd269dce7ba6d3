//! The addresses that a Service port asks to be dialled at. Pure: reads a Service. Which of them it is
//! given, `granted` knows.

use crate::{Frontend, FrontendKind, IpFamily, Service, ServicePort};

/// The families that a Service has: those of its ClusterIPs. It is served in no other.
pub(crate) fn families(service: &Service) -> impl Iterator<Item = IpFamily> {
    [IpFamily::V4, IpFamily::V6].into_iter().filter(|&family| {
        let mut addresses = service.cluster_ips.iter();
        addresses.any(|&address| IpFamily::of(address) == family)
    })
}

/// Every frontend that `port` asks for in `family`; one address may be named twice.
pub(crate) fn asked_for(
    service: &Service,
    port: &ServicePort,
    family: IpFamily,
) -> impl Iterator<Item = Frontend> {
    let number = port.port;
    let external = service.external.as_deref();
    let (balanced, ips) = external.map_or((&[][..], &[][..]), |external| {
        (&external.load_balancer_ips, &external.ips)
    });
    let addresses = [
        (FrontendKind::ClusterIp, &*service.cluster_ips),
        (FrontendKind::LoadBalancerIp, balanced),
        (FrontendKind::ExternalIp, ips),
    ];
    let node_port = port.node_port.map(|number| Frontend {
        kind: FrontendKind::NodePort,
        address: None,
        port: number.get(),
    });
    let dialled = addresses.into_iter().flat_map(move |(kind, addresses)| {
        addresses.iter().filter_map(move |&address| {
            (IpFamily::of(address) == family).then_some(Frontend {
                kind,
                address: Some(address),
                port: number,
            })
        })
    });
    dialled.chain(node_port)
}
