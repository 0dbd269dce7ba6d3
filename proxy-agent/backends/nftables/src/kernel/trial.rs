//! Every kind of rule and set, tried in a network namespace that is gone at once: what the kernel
//! takes there it takes anywhere.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    num::NonZeroU32,
    sync::Arc,
    thread,
    time::Duration,
};

use ipnet::IpNet;
use nix::sched::{CloneFlags, unshare};
use proxy_backend::Translates;
use proxy_model::{
    Endpoint, Frontend, FrontendKind, IpFamily, NodeState, Protocol, ServiceName, ServicePortKey,
    ServiceState, SourceRanges, TrafficPolicy,
};

use super::{FAMILIES, KernelError, lock, socket::Netlink, transaction::Transaction};
use crate::{MASQUERADE_BIT, NftablesOptions, plan::Plan, wanted::Wanted};

/// Whether the kernel took them; false if there was no place to try.
pub fn try_rules() -> Result<bool, KernelError> {
    let tried = thread::scope(|scope| {
        scope
            .spawn(|| match unshare(CloneFlags::CLONE_NEWNET) {
                Err(_) => Ok(false),
                Ok(()) => write_everything().map(|()| true),
            })
            .join()
    });
    tried.unwrap_or(Ok(false))
}

fn write_everything() -> Result<(), KernelError> {
    let state = everything();
    let options = NftablesOptions {
        mark: 1 << MASQUERADE_BIT,
        above: Translates::All,
    };
    let mut netlink = Netlink::open()?;
    let mut transaction = Transaction::new(None);
    for family in FAMILIES {
        let (wanted, elements) = Wanted::of(&state, family, options);
        transaction.write(family, &wanted.fixed, &Plan::whole(&wanted, &elements));
    }
    let (batch, confirmed) = transaction.finish();
    netlink.transact(&batch, confirmed)?;
    match lock::Lock::take(lock::Duty::Rules, Duration::ZERO) {
        Err(lock::LockError::Kernel(error)) => Err(error),
        // Nobody else is in this namespace.
        _ => Ok(()),
    }
}

/// A state that needs every kind of rule.
fn everything() -> NodeState {
    let mut state = NodeState::default();
    for (family, address) in FAMILIES.into_iter().zip([
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
            ranges: vec![IpNet::from(address)],
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
