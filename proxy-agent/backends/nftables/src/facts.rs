//! What the rules say that no Service decides: how sources are told apart, where ClusterIPs come
//! from, which bit marks what is to be masqueraded.

use std::net::IpAddr;

use ipnet::IpNet;
use proxy_backend::{Settings, Translates};
use proxy_model::{IpFamily, LocalPods, NodeState};

use super::ruleset::{Field, Statement};

/// What the backend needs to know besides the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NftablesOptions {
    /// The bit of the packet mark that says that a packet is to be masqueraded, as a mask.
    pub mark: u32,
    /// What programs of a layer above translate. Packets of these connections come here while somebody has
    /// detached the programs.
    pub above: Translates,
}

impl NftablesOptions {
    /// What the settings say.
    pub const fn of(settings: &Settings) -> Self {
        Self {
            mark: settings.masquerade_mark,
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
    pub options: NftablesOptions,
    masquerade_all: bool,
    pods: Option<LocalPods>,
    /// Where ClusterIPs are taken from.
    pub service_cidrs: Vec<IpNet>,
    /// Where NodePorts answer. Loopback addresses do not: packets to those cannot be led
    /// elsewhere without opening the node to its neighbours (CVE-2020-8558).
    pub node_ips: Vec<IpAddr>,
}

impl Facts {
    /// Those of `state`.
    pub fn of(state: &NodeState, family: IpFamily, options: NftablesOptions) -> Self {
        let of_family = |cidrs: &[IpNet]| -> Vec<IpNet> {
            let cidrs = cidrs.iter().map(IpNet::trunc);
            cidrs
                .filter(|cidr| IpFamily::of(cidr.addr()) == family)
                .collect()
        };
        let mut node_ips = state.node_port_addresses.to_vec();
        node_ips.retain(|address| IpFamily::of(*address) == family && !address.is_loopback());
        Self {
            family,
            options,
            masquerade_all: state.traffic.masquerade_all,
            pods: LocalPods::of(state, family),
            service_cidrs: of_family(&state.service_cidrs),
            node_ips,
        }
    }

    /// Whether everything that dials a ClusterIP is masqueraded.
    pub fn masquerades_all(&self) -> bool {
        self.masquerade_all
    }

    /// Conditions of which one holds for what comes from a pod of this node; `None` if that cannot
    /// be told: then nothing is masqueraded as foreign, and pods count as outside where that matters.
    pub fn local_pods(&self) -> Option<Vec<Statement>> {
        Some(match self.pods.as_ref()? {
            LocalPods::Within(cidrs) => {
                let cidrs = cidrs.iter();
                cidrs
                    .map(|cidr| Statement::Within(Field::Source, *cidr))
                    .collect()
            }
            LocalPods::ArriveOn { name, prefix } => vec![Statement::ArrivedOn {
                name: name.clone(),
                prefix: *prefix,
            }],
        })
    }
}
