//! Which of the addresses that a Service port asks for it is given. Pure: reads a Service and the
//! claims of all.

use std::sync::Arc;

use crate::{
    Diagnostic, Frontend, FrontendKind, IpFamily, Service, ServicePort, Settings,
    claims::{Claim, Claimant, Claims},
    frontends::asked_for,
};

/// The frontends of `port` in `family`, ordered and unique; what another holds is told about
/// instead.
pub(crate) fn granted(
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
