//! Nodes, ranges of ClusterIPs, and the configuration of a node.

use std::net::SocketAddr;

use arbitrary::{Result, Unstructured};
use proxy_model::{
    Node, NodePortSelection, ServiceCidr, Settings,
    oracle::{Detector, Traffic},
};

use super::{address, maybe, node_name, range, several, word};

pub(super) fn node(input: &mut Unstructured<'_>) -> Result<Node> {
    Ok(Node {
        name: node_name(input)?,
        zone: maybe(input, |input| word(input, &["zone-a", "zone-b"]))?,
        pod_cidrs: several(input, range)?,
        addresses: several(input, address)?,
        eligible: input.arbitrary()?,
    })
}

pub(super) fn service_cidr(input: &mut Unstructured<'_>) -> Result<ServiceCidr> {
    Ok(ServiceCidr {
        name: word(input, &["kubernetes", "more"])?,
        cidrs: several(input, range)?,
    })
}

/// Any configuration of `node-a`.
pub(crate) fn settings(input: &mut Unstructured<'_>) -> Result<Settings> {
    Ok(Settings {
        node: "node-a".into(),
        traffic: Traffic {
            detector: match input.int_in_range(0..=4)? {
                0 => Detector::None,
                1 => Detector::ClusterCidr(several(input, range)?),
                2 => Detector::NodeCidr,
                3 => Detector::BridgeInterface(word(input, &["cbr0"])?),
                _ => Detector::InterfaceNamePrefix(word(input, &["veth", ""])?),
            },
            masquerade_all: input.arbitrary()?,
        },
        node_ips: several(input, address)?,
        node_ports: match input.int_in_range(0..=2)? {
            0 => NodePortSelection::All,
            1 => NodePortSelection::Primary,
            _ => NodePortSelection::Cidrs(several(input, range)?),
        },
        localhost_node_ports: input.arbitrary()?,
        reserved: several(input, |input| {
            Ok(SocketAddr::new(address(input)?, input.arbitrary()?))
        })?,
    })
}
