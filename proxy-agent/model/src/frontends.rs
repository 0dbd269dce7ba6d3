//! The addresses that a Service port asks to be dialled at, and which of them it is given. Pure:
//! reads a Service and the claims of all.

use std::sync::Arc;

use crate::{
    Diagnostic, Frontend, FrontendKind, IpFamily, Service, ServicePort, Settings,
    claims::{Claim, Claimant, Claims},
};

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

/// The frontends of `port` in `family`, ordered and unique; what another holds is told about
/// instead.
pub(crate) fn given(
    settings: &Settings,
    claims: &Claims,
    service: &Service,
    port: &ServicePort,
    family: IpFamily,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<Frontend> {
    let mut frontends = Vec::new();
    for frontend in asked_for(service, port, family) {
        let claim = Claim::new(&frontend, port.protocol, family);
        if settings.reserves(&frontend, port.protocol) {
            diagnostics.push(reserved(&claim, service, port));
            continue;
        }
        let claimant = Claimant {
            kind: frontend.kind,
            service: service.name.clone(),
            port: Arc::clone(&port.name),
        };
        match claims.holder(&claim) {
            Some(holder) if *holder != claimant => {
                // An external IP that is the load balancer's too is served as the latter.
                if !holder.is_same_port(&claimant) {
                    diagnostics.push(conflict(&claim, &claimant, holder));
                }
            }
            _ => frontends.push(frontend),
        }
    }
    frontends.sort_unstable();
    frontends.dedup();
    frontends
}

fn reserved(claim: &Claim, service: &Service, port: &ServicePort) -> Diagnostic {
    Diagnostic {
        object: format!("Service {}", service.name).into(),
        field: "spec.externalIPs".to_owned(),
        message: format!(
            "{claim} is where this agent reaches the API server: port {:?} is not served on it",
            port.name
        ),
    }
}

fn conflict(claim: &Claim, loser: &Claimant, holder: &Claimant) -> Diagnostic {
    let field = match loser.kind {
        FrontendKind::NodePort => "spec.ports",
        _ if holder.service == loser.service && holder.kind == loser.kind => "spec.ports",
        FrontendKind::ClusterIp => "spec.clusterIPs",
        FrontendKind::LoadBalancerIp => "status.loadBalancer.ingress",
        FrontendKind::ExternalIp => "spec.externalIPs",
    };
    let owner = if holder.service == loser.service {
        "this Service".to_owned()
    } else {
        format!("Service {}", holder.service)
    };
    Diagnostic {
        object: format!("Service {}", loser.service).into(),
        field: field.to_owned(),
        message: format!(
            "{claim} is taken by port {:?} of {owner} ({}): port {:?} is not served on it",
            holder.port,
            holder.kind.as_str(),
            loser.port
        ),
    }
}
