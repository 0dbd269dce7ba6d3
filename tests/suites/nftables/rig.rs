//! The backend by itself in a network namespace, and states for it.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    process::{Command, Output},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use proxy_backend::OpenError;
use proxy_backend_nftables::{NftablesBackend, NftablesOptions};
use proxy_model::{
    Endpoint, Frontend, FrontendKind, IpFamily, NodeState, Protocol, ServiceName, ServicePortKey,
    ServiceState, TrafficPolicy,
};
use proxy_tests::{
    netns::NetNs,
    requires::{self, NFTABLES, PRIVILEGED},
};

/// What is waited for takes no longer.
pub const LIMIT: Duration = Duration::from_secs(10);

/// Runs `test` on a thread in a namespace of its own.
pub fn in_namespace(test: impl FnOnce() + Send) {
    if requires::met(super::SUITE, PRIVILEGED) && requires::met(super::SUITE, NFTABLES) {
        NetNs::new().unwrap().run(test).unwrap();
    }
}

/// The backend, in the namespace of this thread.
pub fn open() -> NftablesBackend {
    let end = Instant::now() + LIMIT;
    loop {
        match NftablesBackend::open(NftablesOptions {
            mark: 0x4000,
            ..NftablesOptions::default()
        }) {
            // A program that another test is just starting has the descriptors of this process until
            // it begins.
            Err(OpenError::Held { .. }) if Instant::now() < end => thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

/// Has `nft` do something in the namespace of this thread.
pub fn nft(arguments: &[&str]) -> Output {
    Command::new("nft").args(arguments).output().unwrap()
}

/// The same, which must succeed.
pub fn nft_done(arguments: &[&str]) {
    let done = nft(arguments);
    assert!(done.status.success(), "{arguments:?}: {done:?}");
}

/// Whether the table of IPv4 has a chain of this name.
pub fn has_chain(name: &str) -> bool {
    let listed = nft(&["list", "chain", "ip", "culvert", name]);
    listed.status.success()
}

/// So many Services of one endpoint each, with session affinity if `sticky`. Every other state of as
/// many has other endpoints if `port` is another one.
pub fn services(count: u16, sticky: bool, port: u16) -> NodeState {
    let mut state = NodeState::default();
    for number in 0..count {
        let [high, low] = number.to_be_bytes();
        let endpoint = SocketAddr::new(Ipv4Addr::new(10, 244, high, low).into(), port);
        let key = ServicePortKey {
            service: ServiceName::new("shop", format!("s{number}")),
            port: Arc::default(),
            protocol: Protocol::Tcp,
            family: IpFamily::V4,
        };
        let service = ServiceState {
            frontends: vec![Frontend {
                kind: FrontendKind::ClusterIp,
                address: Some(Ipv4Addr::new(10, 96, high, low).into()),
                port: 80,
            }],
            cluster_endpoints: Some(Arc::new([Endpoint::at(endpoint)])),
            local_endpoints: None,
            has_any_endpoints: true,
            internal_policy: TrafficPolicy::Cluster,
            external_policy: TrafficPolicy::Cluster,
            affinity: NonZeroU32::new(10_800).filter(|_| sticky),
            source_ranges: None,
        };
        state.services.insert(key, Arc::new(service));
    }
    state
}
