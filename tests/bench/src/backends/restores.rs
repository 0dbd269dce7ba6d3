//! What iptables itself takes for a change: the lines that the agent would hand to `iptables-restore`, handed over
//! without it, between tables that the agent has left. It changes the same Service, and the same client dials.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Result;
use proxy_backend_iptables::{IptablesOptions, NAME, change};
use proxy_harness::{World, requires};
use proxy_model::{
    Endpoint, Frontend, FrontendKind, IpFamily, NodeState, ObjectName, Protocol, ServicePortKey,
    ServiceState, TrafficPolicy,
};

use super::super::{
    Session,
    api::{self, Changed, Times, objects},
    figures::{Collected, Goal},
    sizes::Size,
};

/// One change of an agent against its bare restore.
const LITTLE_MORE: Goal = Goal::AtMost(1.1);
/// How long others may hold the lock, in seconds.
const WAIT: &str = "20";

/// A flavour of the programs of iptables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavour {
    Legacy,
    Nft,
}

impl Flavour {
    /// Those by which a backend can write here; a single `None` for one that writes by itself.
    pub(super) fn all_of(backend: &str) -> Vec<Option<Self>> {
        if backend != NAME {
            return vec![None];
        }
        let all = [Self::Legacy, Self::Nft].into_iter();
        all.filter(|flavour| requires::is_on_path(&flavour.restore(IpFamily::V4)))
            .map(Some)
            .collect()
    }

    /// As names of programs have it.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Nft => "nft",
        }
    }

    /// What a full sync takes kube-proxy 1.36 that runs these programs, in milliseconds, where it was measured.
    pub(super) const fn full_sync_of_kube_proxy(self, size: Size) -> Option<f64> {
        match (self, size.0) {
            (Self::Legacy, 1_000) => Some(300.0),
            (Self::Legacy, 10_000) => Some(10_500.0),
            (Self::Nft, 1_000) => Some(6_700.0),
            _ => None,
        }
    }

    fn restore(self, family: IpFamily) -> String {
        let program = match family {
            IpFamily::V4 => "iptables",
            IpFamily::V6 => "ip6tables",
        };
        format!("{program}-{}-restore", self.as_str())
    }

    fn hand_over(self, world: &World, family: IpFamily, lines: &str) -> Result<()> {
        let program = self.restore(family);
        let words = [&*program, "-w", WAIT, "--noflush", "--counters"];
        world.node().netns().feed(&words, lines)
    }

    /// Makes `world` one whose kubelet uses it, which decides what agents use.
    pub(super) fn prepare(self, world: &World) -> Result<()> {
        for family in [IpFamily::V4, IpFamily::V6] {
            let canary = "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n";
            self.hand_over(world, family, canary)?;
        }
        Ok(())
    }
}

/// Changes the Service in `world` as `agent` did, which is gone and took so long.
pub(super) fn measure(
    session: &Session,
    flavour: Flavour,
    changed: &Changed<'_, '_>,
    agent: &Times,
    collected: &mut Collected,
) -> Result<()> {
    let [one, other] = changed.endpoints.map(state);
    let lines = [change_of(&other, &one), change_of(&one, &other)];
    let times = api::changes(session, changed, |new| {
        let to = usize::from(new == changed.endpoints[1]);
        flavour.hand_over(changed.world, IpFamily::V4, &lines[to])
    })?;
    let case = changed.case;
    let bare = times.at(50);
    collected.add(case, "bare restore to first connection, p50", "ms", bare);
    let ratio = agent.at(50) / bare;
    let metric = "change, p50 of the agent / of its bare restore";
    collected.add_with_goal(case, metric, "ratio", Some(LITTLE_MORE), ratio);
    Ok(())
}

fn change_of(before: &NodeState, now: &NodeState) -> String {
    let [v4, _] = change(before, now, IptablesOptions::default());
    v4
}

/// The Service that is changed, alone.
fn state(endpoint: SocketAddr) -> NodeState {
    let (address, port) = objects::FRONTEND;
    let key = ServicePortKey {
        service: ObjectName::new(objects::NAMESPACE, objects::CHANGED),
        port: objects::PORT_NAME.into(),
        protocol: Protocol::Tcp,
        family: IpFamily::V4,
    };
    let service = ServiceState {
        frontends: vec![Frontend {
            kind: FrontendKind::ClusterIp,
            address: Some(address.into()),
            port,
        }],
        cluster_endpoints: Some(Arc::new([Endpoint::at(endpoint)])),
        local_endpoints: None,
        has_any_endpoints: true,
        internal_policy: TrafficPolicy::Cluster,
        external_policy: TrafficPolicy::Cluster,
        affinity: None,
        source_ranges: None,
    };
    let mut state = NodeState::default();
    state.services.insert(key, Arc::new(service));
    state
}
