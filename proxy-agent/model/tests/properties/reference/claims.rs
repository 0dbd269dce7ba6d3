//! Who asks for which address, who gets it, and what those are told who do not.

use std::net::{IpAddr, SocketAddr};

use proxy_model::{Diagnostic, Frontend, FrontendKind, IpFamily, Service, ServicePort};

use super::ordered;
use crate::walk::Objects;

/// A port of a Service asks to be dialled at a frontend.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) service: &'a Service,
    pub(super) port: &'a ServicePort,
    pub(super) family: IpFamily,
    pub(super) frontend: Frontend,
}

impl Asked<'_> {
    fn is_for_the_same_address(&self, other: &Self) -> bool {
        self.family == other.family
            && self.port.protocol == other.port.protocol
            && self.frontend.address == other.frontend.address
            && self.frontend.port == other.frontend.port
    }

    fn is_of_the_same_port(&self, other: &Self) -> bool {
        self.service.name == other.service.name && self.port.name == other.port.name
    }
}

/// What all ports of all Services ask for.
pub(super) fn all_asked(objects: &Objects) -> Vec<Asked<'_>> {
    let mut all = Vec::new();
    for service in objects.services.values() {
        for family in [IpFamily::V4, IpFamily::V6] {
            if !has_family(service, family) {
                continue;
            }
            for port in &service.ports {
                let asked = |frontend| Asked {
                    service,
                    port,
                    family,
                    frontend,
                };
                all.extend(asked_by(service, port, family).into_iter().map(asked));
            }
        }
    }
    all
}

/// A Service is served in the families of its ClusterIPs.
pub(super) fn has_family(service: &Service, family: IpFamily) -> bool {
    service
        .cluster_ips
        .iter()
        .any(|ip| IpFamily::of(*ip) == family)
}

pub(super) fn asked_by(service: &Service, port: &ServicePort, family: IpFamily) -> Vec<Frontend> {
    let mut frontends = Vec::new();
    let mut add = |kind, addresses: &[IpAddr]| {
        for address in addresses {
            if IpFamily::of(*address) == family {
                frontends.push(Frontend {
                    kind,
                    address: Some(*address),
                    port: port.port,
                });
            }
        }
    };
    add(FrontendKind::ClusterIp, &service.cluster_ips);
    if let Some(external) = &service.external {
        add(FrontendKind::LoadBalancerIp, &external.load_balancer_ips);
        add(FrontendKind::ExternalIp, &external.ips);
    }
    if let Some(number) = port.node_port {
        frontends.push(Frontend {
            kind: FrontendKind::NodePort,
            address: None,
            port: number.get(),
        });
    }
    frontends
}

/// Of those who ask for one address: ClusterIPs before load-balancer IPs before external IPs, then
/// by namespace, name, and port name.
pub(super) fn holder<'a>(all: &[Asked<'a>], asked: &Asked<'a>) -> Asked<'a> {
    let rivals = all
        .iter()
        .filter(|other| other.is_for_the_same_address(asked));
    *rivals
        .min_by_key(|one| {
            let name = &one.service.name;
            (
                one.frontend.kind,
                &name.namespace,
                &name.name,
                &one.port.name,
            )
        })
        .expect("who asks is among them")
}

/// The frontends that `port` gets.
pub(super) fn given(
    all: &[Asked<'_>],
    service: &Service,
    port: &ServicePort,
    family: IpFamily,
) -> Vec<Frontend> {
    let mut given = Vec::new();
    for frontend in asked_by(service, port, family) {
        let asked = Asked {
            service,
            port,
            family,
            frontend,
        };
        let holder = holder(all, &asked);
        if holder.is_of_the_same_port(&asked) && holder.frontend == frontend {
            given.push(frontend);
        }
    }
    ordered(given)
}

/// What sources said, and one for each address that somebody asks for and another gets.
pub(super) fn diagnostics(objects: &Objects) -> Vec<Diagnostic> {
    let mut diagnostics: Vec<_> = objects.diagnosed.values().flatten().cloned().collect();
    let all = all_asked(objects);
    for asked in &all {
        let holder = holder(&all, asked);
        if !holder.is_of_the_same_port(asked) {
            diagnostics.push(conflict(asked, &holder));
        }
    }
    ordered(diagnostics)
}

fn conflict(loser: &Asked<'_>, holder: &Asked<'_>) -> Diagnostic {
    let of_itself = loser.service.name == holder.service.name;
    let (kind, holders_kind) = (loser.frontend.kind, holder.frontend.kind);
    let field = if kind == FrontendKind::NodePort || of_itself && kind == holders_kind {
        "spec.ports"
    } else {
        match kind {
            FrontendKind::ClusterIp => "spec.clusterIPs",
            FrontendKind::LoadBalancerIp => "status.loadBalancer.ingress",
            FrontendKind::ExternalIp => "spec.externalIPs",
            FrontendKind::NodePort => unreachable!(),
        }
    };
    let number = loser.frontend.port;
    let what = match loser.frontend.address {
        Some(address) => SocketAddr::new(address, number).to_string(),
        None => format!("{} node port {number}", loser.family),
    };
    let whose = if of_itself {
        "this Service".to_owned()
    } else {
        format!("Service {}", holder.service.name)
    };
    Diagnostic {
        object: format!("Service {}", loser.service.name).into(),
        field: field.to_owned(),
        message: format!(
            "{what}/{} is taken by port \"{}\" of {whose} ({}): port \"{}\" is not served on it",
            loser.port.protocol,
            holder.port.name,
            holders_kind.as_str(),
            loser.port.name,
        ),
    }
}
