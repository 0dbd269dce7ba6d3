//! What the nftables backend needs of this host, asked one by one. Nothing of this host is changed:
//! rules are tried in a network namespace that is gone at once.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    num::NonZeroU32,
    sync::Arc,
    thread,
};

use ipnet::IpNet;
use nix::{
    sched::{CloneFlags, unshare},
    sys::utsname::uname,
};
use proxy_backend::Requirement;
use proxy_model::{
    Endpoint, Frontend, FrontendKind, IpFamily, NodeState, Protocol, ServiceName, ServicePortKey,
    ServiceState, SourceRanges, TrafficPolicy,
};

use super::{FAMILIES, KernelError, lock, refusal, socket::Netlink, transaction::Transaction};
use crate::{MASQUERADE_BIT, plan::Plan, wanted::Wanted};

/// The first kernel whose maps do what is asked of them here; kube-proxy's nftables mode needs the
/// same.
const LEAST: (u32, u32) = (5, 13);

/// Every requirement, the simplest first.
pub fn probe() -> Vec<Requirement> {
    let netlink = Netlink::open().and_then(|mut netlink| netlink.generation());
    vec![
        kernel(),
        nf_tables(&netlink),
        rules(netlink.is_ok()),
        held(lock::holder(lock::Duty::Rules)),
    ]
}

/// Whether an agent is there already. That is no lack of this host.
fn held(holder: Result<Option<String>, KernelError>) -> Requirement {
    let is_held = matches!(holder, Ok(Some(_)));
    Requirement {
        name: "lock",
        required: false,
        met: !is_held,
        found: match holder {
            Ok(None) => "nobody programs rules here".to_owned(),
            Ok(Some(holder)) => format!("an agent serves with nftables here: {holder}"),
            Err(error) => format!("not known: {error}"),
        },
        reason: "one agent at a time programs the rules of a network namespace",
        remedy: is_held
            .then(|| "nothing, or stop it before another one is started here".to_owned()),
    }
}

fn kernel() -> Requirement {
    let release = uname().map_or_else(
        |_| "unknown".to_owned(),
        |name| name.release().to_string_lossy().into_owned(),
    );
    let met = version(&release).is_none_or(|version| version >= LEAST);
    Requirement {
        name: "kernel",
        required: true,
        met,
        found: release,
        reason: "older ones lack what the maps need",
        remedy: (!met).then(|| format!("use Linux {}.{} or later", LEAST.0, LEAST.1)),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn nf_tables(generation: &Result<u32, KernelError>) -> Requirement {
    Requirement {
        name: "nf_tables",
        required: true,
        met: generation.is_ok(),
        found: match generation {
            Ok(generation) => format!("generation {generation}"),
            Err(error) => error.to_string(),
        },
        reason: "the part of the kernel that holds the rules",
        remedy: generation.as_ref().err().map(|error| {
            if error.is(libc::EPERM) {
                refusal::RIGHTS.to_owned()
            } else {
                "load the kernel's module nf_tables (CONFIG_NF_TABLES)".to_owned()
            }
        }),
    }
}

/// Whether the kernel takes every kind of rule.
fn rules(reachable: bool) -> Requirement {
    let tried = if reachable { try_rules() } else { Ok(false) };
    let remedy = "load, or build, the kernel's modules nft_chain_nat, nft_ct, nft_fib_ipv4, \
                  nft_fib_ipv6, nft_masq, nft_nat, nft_numgen, nft_reject_ipv4 and nft_reject_ipv6";
    Requirement {
        name: "rules",
        // Where they cannot be tried, the first sync tells.
        required: tried.is_err(),
        met: matches!(tried, Ok(true)),
        found: match &tried {
            Ok(true) => "taken".to_owned(),
            Ok(false) => {
                "not tried: that needs CAP_SYS_ADMIN, to make a network namespace".to_owned()
            }
            Err(error) => error.to_string(),
        },
        reason: "every kind of rule and set is tried in a network namespace of its own",
        remedy: match tried {
            Ok(true) => None,
            Ok(false) => Some("nothing, if the backend serves".to_owned()),
            Err(_) => Some(remedy.to_owned()),
        },
    }
}

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
    let mut netlink = Netlink::open()?;
    let mut transaction = Transaction::new(None);
    for family in FAMILIES {
        let (wanted, elements) = Wanted::of(&state, family, 1 << MASQUERADE_BIT);
        transaction.write(family, &wanted.fixed, &Plan::whole(&wanted, &elements));
    }
    let (batch, confirmed) = transaction.finish();
    netlink.transact(&batch, confirmed)?;
    match lock::Lock::take(lock::Duty::Rules) {
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
    let endpoints: Arc<[Endpoint]> = Arc::new([Endpoint {
        address: SocketAddr::new(address, 80),
    }]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_the_lock_is_told_and_makes_no_host_unusable() {
        assert!(held(Ok(None)).met);
        let held = held(Ok(Some("process 7 of node-a".to_owned())));
        assert!(!held.met && !held.required);
        assert!(held.found.ends_with("process 7 of node-a"), "{held:?}");
    }

    #[test]
    fn releases_are_compared_as_numbers() {
        for (release, expected) in [
            ("6.18.0", Some((6, 18))),
            ("5.10.0-28-cloud-amd64", Some((5, 10))),
            ("5.4", Some((5, 4))),
            ("unknown", None),
        ] {
            assert_eq!(version(release), expected, "{release}");
        }
        assert!(version("5.9").unwrap() < LEAST && version("5.13.0").unwrap() >= LEAST);
    }
}
