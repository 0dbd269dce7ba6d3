//! What one Service means on this node: its entries of the node-local state, and what is wrong
//! with it in the company of the others. Pure: reads the cluster, remembers nothing.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    Diagnostic, Frontend, FrontendKind, IpFamily, Service, ServicePort, ServicePortKey,
    ServiceState,
    claims::{Claim, Claimant},
    cluster::Cluster,
    select::{Uses, choose},
    slices::merge,
};

/// One Service on one node.
#[derive(Debug, Default)]
pub(crate) struct LocalService {
    /// Entries by key.
    pub(crate) entries: BTreeMap<ServicePortKey, ServiceState>,
    /// Addresses it claims and does not get.
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// Computes one Service from the cluster's present objects.
pub(crate) fn localize(cluster: &Cluster, service: &Service, node: &str) -> LocalService {
    let mut local = LocalService::default();
    for port in &service.ports {
        for family in [IpFamily::V4, IpFamily::V6] {
            if !service
                .cluster_ips
                .iter()
                .any(|&address| IpFamily::of(address) == family)
            {
                continue;
            }
            let key = ServicePortKey {
                service: service.name.clone(),
                port: Arc::clone(&port.name),
                protocol: port.protocol,
                family,
            };
            let candidates = merge(
                cluster.slices_of(&service.name),
                &port.name,
                port.protocol,
                family,
            );
            let sets = choose(
                &candidates,
                Uses::of_cluster_ip(service.internal_policy),
                node,
            );
            let state = ServiceState {
                frontends: frontends(cluster, service, port, family, &mut local.diagnostics),
                cluster_endpoints: sets.cluster,
                local_endpoints: sets.local,
                has_any_endpoints: sets.has_any,
                internal_policy: service.internal_policy,
            };
            // Names and protocols are unique by contract; the first one counts if they are not.
            local.entries.entry(key).or_insert(state);
        }
    }
    local
}

fn frontends(
    cluster: &Cluster,
    service: &Service,
    port: &ServicePort,
    family: IpFamily,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<Frontend> {
    let claimant = Claimant {
        service: service.name.clone(),
        port: Arc::clone(&port.name),
    };
    let mut frontends = Vec::new();
    for &address in &service.cluster_ips {
        if IpFamily::of(address) != family {
            continue;
        }
        let claim = Claim::new(address, port);
        match cluster.claims().holder(&claim) {
            Some(holder) if *holder != claimant => {
                diagnostics.push(conflict(&claim, &claimant, holder));
            }
            _ => frontends.push(Frontend {
                kind: FrontendKind::ClusterIp,
                address,
                port: port.port,
            }),
        }
    }
    frontends.sort_unstable();
    frontends.dedup();
    frontends
}

fn conflict(claim: &Claim, loser: &Claimant, holder: &Claimant) -> Diagnostic {
    let Claim { address, protocol } = claim;
    let (field, other) = if holder.service == loser.service {
        (
            "spec.ports",
            format!("port {:?} of this Service", holder.port),
        )
    } else {
        (
            "spec.clusterIPs",
            format!("port {:?} of Service {}", holder.port, holder.service),
        )
    };
    Diagnostic {
        object: format!("Service {}", loser.service).into(),
        field: field.to_owned(),
        message: format!(
            "{address}/{protocol} is taken by {other}: port {:?} is not served on it",
            loser.port
        ),
    }
}
