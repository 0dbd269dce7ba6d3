//! What the rules say that no Service decides: how sources are told apart, where NodePorts answer, which bit
//! marks what is to be masqueraded. Pure.

use std::net::{IpAddr, Ipv4Addr};

use proxy_backend::{Settings, Translates};
use proxy_model::{IpFamily, LocalPods, NodeState};

use crate::rule::Match;

/// More endpoints than that, and those of Services are written without comments, as kube-proxy does: they
/// are most of the text.
pub const MANY_ENDPOINTS: usize = 1_000;

/// What the backend needs to know besides the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IptablesOptions {
    /// The bit of the packet mark that says that a packet is to be masqueraded, as a mask.
    pub mark: u32,
    /// Packets of TCP that conntrack takes for none of a connection are let through.
    pub tcp_be_liberal: bool,
    /// What programs of a layer above translate. Packets of these connections come here while somebody has
    /// detached the programs.
    pub above: Translates,
    /// What this host sends to 127.0.0.0/8 can be led elsewhere, and no layer above does that already.
    pub localnet: bool,
    /// Rules name the kernel's counters of packets (nfacct), which must be there before.
    pub counters: bool,
}

impl IptablesOptions {
    /// What the settings say, on a host where packets to loopback addresses can be led elsewhere.
    pub const fn of(settings: &Settings) -> Self {
        Self {
            mark: settings.masquerade_mark,
            tcp_be_liberal: settings.tcp_be_liberal,
            above: settings.above,
            localnet: !settings.beneath,
            counters: false,
        }
    }
}

/// Whether NodePorts answer on 127.0.0.0/8, and who has the host route packets from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Localnet {
    /// They do not.
    Unserved,
    /// They do, on a host that routes packets from there anyway.
    Served,
    /// They do, because this agent, or an earlier one, has the host route packets from there.
    Opened,
    /// They do not any more, and the host still routes packets from there for one of ours: that cannot be set back.
    Left,
}

impl Localnet {
    /// Whether they do.
    pub const fn is_served(self) -> bool {
        matches!(self, Self::Served | Self::Opened)
    }

    /// Whether the host routes packets from there for one of ours.
    pub const fn is_opened(self) -> bool {
        matches!(self, Self::Opened | Self::Left)
    }

    /// The same, where it is one of ours who has the host route packets from there, or is not.
    pub const fn opened(self, by_us: bool) -> Self {
        match (self.is_served(), by_us) {
            (true, true) => Self::Opened,
            (true, false) => Self::Served,
            (false, true) => Self::Left,
            (false, false) => Self::Unserved,
        }
    }
}

/// Facts of a node for one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Which.
    pub family: IpFamily,
    /// What was asked for.
    pub options: IptablesOptions,
    /// Everything that dials a ClusterIP is masqueraded.
    pub masquerade_all: bool,
    /// How pods of this node are told; `None` if they cannot be: then nothing is masqueraded as foreign, and
    /// pods count as outside where that matters.
    pub pods: Option<LocalPods>,
    /// Where NodePorts answer, without loopback addresses.
    pub node_ips: Vec<IpAddr>,
    /// Those are all addresses of the host.
    pub on_all: bool,
    /// Whether NodePorts answer on 127.0.0.0/8, too.
    pub localnet: Localnet,
    /// Endpoints are many: see [`MANY_ENDPOINTS`].
    pub many: bool,
}

/// One match for each way in which a packet may be a pod's of this node.
pub fn of_pods(pods: &LocalPods) -> Vec<Match> {
    match pods {
        LocalPods::Within(cidrs) => {
            let cidrs = cidrs.iter();
            cidrs
                .map(|cidr| Match::all().source(false, *cidr))
                .collect()
        }
        LocalPods::ArriveOn { name, prefix } => {
            vec![Match::all().interface(false, &spelled(name, *prefix))]
        }
    }
}

/// All that is no pod's of this node, if one rule can say so.
pub fn of_others(pods: &LocalPods) -> Option<Match> {
    match pods {
        LocalPods::Within(cidrs) => match cidrs[..] {
            [cidr] => Some(Match::all().source(true, cidr)),
            _ => None,
        },
        LocalPods::ArriveOn { name, prefix } => {
            Some(Match::all().interface(true, &spelled(name, *prefix)))
        }
    }
}

/// An interface as rules have it: `+` stands for any end.
fn spelled(name: &str, prefix: bool) -> String {
    format!("{name}{}", if prefix { "+" } else { "" })
}

impl Facts {
    /// Those of `state`.
    pub fn of(state: &NodeState, family: IpFamily, options: IptablesOptions) -> Self {
        let own = |addresses: &[IpAddr]| -> Vec<IpAddr> {
            let mut own = addresses.to_vec();
            own.retain(|one| IpFamily::of(*one) == family && !one.is_loopback());
            own
        };
        let node_ips = own(&state.node_port_addresses);
        let host = own(&state.node.host_addresses);
        let endpoints = state.services.values().map(|service| {
            let sets = [&service.cluster_endpoints, &service.local_endpoints];
            sets.into_iter()
                .flatten()
                .map(|set| set.len())
                .max()
                .unwrap_or(0)
        });
        let on_loopback = state
            .node_port_addresses
            .contains(&Ipv4Addr::LOCALHOST.into());
        let localnet = options.localnet && family == IpFamily::V4 && on_loopback;
        Self {
            family,
            options,
            masquerade_all: state.traffic.masquerade_all,
            pods: LocalPods::of(state, family),
            on_all: !node_ips.is_empty() && host.iter().all(|one| node_ips.contains(one)),
            node_ips,
            localnet: if localnet {
                Localnet::Served
            } else {
                Localnet::Unserved
            },
            many: endpoints.sum::<usize>() > MANY_ENDPOINTS,
        }
    }
}
