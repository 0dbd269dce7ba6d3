//! What the rules say that no Service decides: how sources are told apart, where NodePorts answer, which bit
//! marks what is to be masqueraded. Pure.

use std::net::IpAddr;

use ipnet::IpNet;
use proxy_backend::{Settings, Translates};
use proxy_model::{IpFamily, NodeState, oracle::Detector};

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
}

impl IptablesOptions {
    /// What the settings say.
    pub const fn of(settings: &Settings) -> Self {
        Self {
            mark: settings.masquerade_mark,
            tcp_be_liberal: settings.tcp_be_liberal,
            above: settings.above,
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
    pub pods: Option<Pods>,
    /// Where NodePorts answer, without loopback addresses.
    pub node_ips: Vec<IpAddr>,
    /// Those are all addresses of the host.
    pub on_all: bool,
    /// Endpoints are many: see [`MANY_ENDPOINTS`].
    pub many: bool,
}

/// How pods of this node are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pods {
    /// By their addresses; not empty.
    Within(Vec<IpNet>),
    /// By the interface on which they arrive, as rules spell it.
    On(String),
}

impl Pods {
    /// One match for each way in which a packet may be a pod's.
    pub fn matches(&self) -> Vec<Match> {
        match self {
            Self::Within(cidrs) => {
                let cidrs = cidrs.iter();
                cidrs
                    .map(|cidr| Match::all().source(false, *cidr))
                    .collect()
            }
            Self::On(interface) => vec![Match::all().interface(false, interface)],
        }
    }

    /// All that is no pod's, if one rule can say so.
    pub fn none_of(&self) -> Option<Match> {
        match self {
            Self::Within(cidrs) => match cidrs[..] {
                [cidr] => Some(Match::all().source(true, cidr)),
                _ => None,
            },
            Self::On(interface) => Some(Match::all().interface(true, interface)),
        }
    }
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
        Self {
            family,
            options,
            masquerade_all: state.traffic.masquerade_all,
            pods: pods(state, family),
            on_all: !node_ips.is_empty() && host.iter().all(|one| node_ips.contains(one)),
            node_ips,
            many: endpoints.sum::<usize>() > MANY_ENDPOINTS,
        }
    }
}

fn pods(state: &NodeState, family: IpFamily) -> Option<Pods> {
    let within = |cidrs: &[IpNet]| {
        let of_family = |cidr: &&IpNet| IpFamily::of(cidr.addr()) == family;
        let cidrs: Vec<_> = cidrs.iter().filter(of_family).map(IpNet::trunc).collect();
        (!cidrs.is_empty()).then_some(Pods::Within(cidrs))
    };
    match &state.traffic.detector {
        Detector::None => None,
        Detector::ClusterCidr(cidrs) => within(cidrs),
        Detector::NodeCidr => within(state.node.pod_cidrs()),
        Detector::BridgeInterface(name) => Some(Pods::On(name.to_string())),
        Detector::InterfaceNamePrefix(prefix) => Some(Pods::On(format!("{prefix}+"))),
    }
}
