//! How rules tell packets of this node's pods from others: the detector, and the ranges that it stands for.

use std::sync::Arc;

use ipnet::IpNet;

use crate::{IpFamily, NodeState, oracle::Detector};

/// What tells the pods of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalPods {
    /// Their addresses are in one of these ranges, all of one family; not empty.
    Within(Vec<IpNet>),
    /// Their packets arrive on this interface or, if `prefix`, on one whose name begins so.
    ArriveOn {
        /// The name, or its beginning.
        name: Arc<str>,
        /// Whether it is a beginning.
        prefix: bool,
    },
}

impl LocalPods {
    /// As `state` has it for packets of `family`; `None` if they cannot be told: then nothing is masqueraded as
    /// foreign, and pods count as outside where that matters.
    pub fn of(state: &NodeState, family: IpFamily) -> Option<Self> {
        let within = |cidrs: &[IpNet]| {
            let of_family = |cidr: &&IpNet| IpFamily::of(cidr.addr()) == family;
            let cidrs: Vec<_> = cidrs.iter().filter(of_family).map(IpNet::trunc).collect();
            (!cidrs.is_empty()).then_some(Self::Within(cidrs))
        };
        let arrive_on = |name: &Arc<str>, prefix| {
            let name = Arc::clone(name);
            Some(Self::ArriveOn { name, prefix })
        };
        match &state.traffic.detector {
            Detector::None => None,
            Detector::ClusterCidr(cidrs) => within(cidrs),
            Detector::NodeCidr => within(state.node.pod_cidrs()),
            Detector::BridgeInterface(name) => arrive_on(name, false),
            Detector::InterfaceNamePrefix(prefix) => arrive_on(prefix, true),
        }
    }
}
