//! What the node's configuration adds to the cluster's objects, and which addresses it selects for
//! NodePorts.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use ipnet::IpNet;

use crate::{Frontend, FrontendKind, IpFamily, Protocol, oracle::Traffic};

/// The node that a model is for, and the part of its configuration that decides where traffic
/// goes. Fixed for the life of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The node's name. EndpointSlices name the node that their endpoints run on; they are
    /// compared with it as written.
    pub node: Arc<str>,
    /// How sources are recognised, and what is masqueraded.
    pub traffic: Traffic,
    /// Addresses of the node that come before those of its Node object, one of each family at most
    /// (kube-proxy's `bindAddress`, and `nodeIPOverride` of KEP-784).
    pub node_ips: Vec<IpAddr>,
    /// Where NodePorts answer (kube-proxy's `nodePortAddresses`).
    pub node_ports: NodePortSelection,
    /// Whether processes of this node reach NodePorts through loopback addresses, where the
    /// selection holds them (kube-proxy's `localhostNodePorts`).
    pub localhost_node_ports: bool,
    /// Addresses that no external IP is served on: those of the API servers that this agent
    /// follows. Any user may write external IPs (CVE-2020-8554), and one that takes these would cut
    /// the agent off from all changes, the deletion of that Service included.
    pub reserved: Vec<SocketAddr>,
}

/// Which of the host's addresses NodePorts answer on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NodePortSelection {
    /// On all of them.
    #[default]
    All,
    /// On the node's first address of each family.
    Primary,
    /// On those in these ranges. A family without a range has all of its addresses, as in
    /// kube-proxy.
    Cidrs(Vec<IpNet>),
}

impl<N: Into<Arc<str>>> From<N> for Settings {
    /// kube-proxy's defaults for the node called `node`.
    fn from(node: N) -> Self {
        Self {
            node: node.into(),
            traffic: Traffic::default(),
            node_ips: Vec::new(),
            node_ports: NodePortSelection::All,
            localhost_node_ports: true,
            reserved: Vec::new(),
        }
    }
}

const LOOPBACK: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

impl Settings {
    /// The addresses of the node, given those that its Node object names: the first of a family is the one that
    /// counts where only one does.
    pub(crate) fn node_addresses(&self, node: &[IpAddr]) -> Vec<IpAddr> {
        self.node_ips.iter().chain(node).copied().collect()
    }

    /// The addresses that NodePorts answer on, of those that the host has and those that its Node
    /// object names. 127.0.0.1 among them stands for all of 127.0.0.0/8.
    pub(crate) fn node_port_addresses(&self, host: &[IpAddr], node: &[IpAddr]) -> BTreeSet<IpAddr> {
        let loopback = LOOPBACK
            .into_iter()
            .filter(|_| self.localhost_node_ports && self.node_ports != NodePortSelection::Primary);
        match &self.node_ports {
            NodePortSelection::Primary => [IpFamily::V4, IpFamily::V6]
                .into_iter()
                .filter_map(|family| first_of(family, &self.node_addresses(node)))
                .collect(),
            selection => host
                .iter()
                .copied()
                .filter(|address| !address.is_loopback())
                .chain(loopback)
                .filter(|address| selection.holds(*address))
                .collect(),
        }
    }
}

impl Settings {
    /// Whether nothing may be served on `frontend`, because this agent needs it itself.
    pub(crate) fn reserves(&self, frontend: &Frontend, protocol: Protocol) -> bool {
        frontend.kind == FrontendKind::ExternalIp
            && protocol == Protocol::Tcp
            && self.reserved.iter().any(|server| {
                Some(server.ip().to_canonical()) == frontend.address
                    && server.port() == frontend.port
            })
    }
}

impl NodePortSelection {
    /// Whether NodePorts answer on all addresses of `family`, those that come later included.
    pub fn is_everything(&self, family: IpFamily) -> bool {
        match self {
            Self::All => true,
            Self::Primary => false,
            Self::Cidrs(cidrs) => {
                let mut of_family = cidrs
                    .iter()
                    .filter(|cidr| IpFamily::of(cidr.addr()) == family)
                    .peekable();
                of_family.peek().is_none() || of_family.any(|cidr| cidr.prefix_len() == 0)
            }
        }
    }

    fn holds(&self, address: IpAddr) -> bool {
        let Self::Cidrs(cidrs) = self else {
            return true;
        };
        let family = IpFamily::of(address);
        let mut of_family = cidrs
            .iter()
            .filter(|cidr| IpFamily::of(cidr.addr()) == family)
            .peekable();
        of_family.peek().is_none() || of_family.any(|cidr| cidr.contains(&address))
    }
}

/// The first of `addresses` that is of `family`: a node's address, where only one counts.
pub(crate) fn first_of(family: IpFamily, addresses: &[IpAddr]) -> Option<IpAddr> {
    let mut addresses = addresses.iter().copied();
    addresses.find(|address| IpFamily::of(*address) == family)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &[&str] = &["127.0.0.1", "192.0.2.1", "198.51.100.1", "::1", "fd00::1"];
    const NODE: &[&str] = &["192.0.2.1", "fd00::1", "198.51.100.1"];

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn selected(selection: &[&str], localhost: bool, host: &[&str]) -> Vec<String> {
        let settings = Settings {
            node_ports: match selection {
                [] => NodePortSelection::All,
                ["primary"] => NodePortSelection::Primary,
                cidrs => {
                    let cidrs = cidrs.iter().map(|cidr| cidr.parse().unwrap());
                    NodePortSelection::Cidrs(cidrs.collect())
                }
            },
            localhost_node_ports: localhost,
            ..Settings::from("here")
        };
        let selected = settings.node_port_addresses(&addresses(host), &addresses(NODE));
        selected.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_address_that_is_given_is_the_first_of_its_family() {
        let settings = Settings {
            node_ips: addresses(&["198.51.100.1"]),
            node_ports: NodePortSelection::Primary,
            ..Settings::from("here")
        };
        let selected = settings.node_port_addresses(&addresses(HOST), &addresses(NODE));
        assert!(
            selected
                .into_iter()
                .eq(addresses(&["198.51.100.1", "fd00::1"]))
        );
        // There may be no Node object.
        let selected = settings.node_port_addresses(&addresses(HOST), &[]);
        assert!(selected.into_iter().eq(addresses(&["198.51.100.1"])));
    }

    #[test]
    fn node_ports_answer_on_the_selected_addresses() {
        for (selection, localhost, expected) in [
            (&[][..], true, HOST),
            (&[], false, &["192.0.2.1", "198.51.100.1", "fd00::1"]),
            (&["0.0.0.0/0", "::/0"], true, HOST),
            // A family without a range has all of its addresses.
            (&["::/0"], true, HOST),
            (&["192.0.2.0/24"], true, &["192.0.2.1", "::1", "fd00::1"]),
            (
                &["192.0.2.0/24", "fd00::/64"],
                true,
                &["192.0.2.1", "fd00::1"],
            ),
            (&["198.51.100.1/32", "fd01::/64"], true, &["198.51.100.1"]),
            (&["127.0.0.0/8", "::1/128"], true, &["127.0.0.1", "::1"]),
            (&["127.0.0.0/8", "::1/128"], false, &[]),
            (
                &["192.0.2.0/24", "198.51.100.0/24", "fd00::/64"],
                true,
                &["192.0.2.1", "198.51.100.1", "fd00::1"],
            ),
            (&["primary"], true, &["192.0.2.1", "fd00::1"]),
            (&["primary"], false, &["192.0.2.1", "fd00::1"]),
        ] {
            assert_eq!(
                selected(selection, localhost, HOST),
                expected,
                "{selection:?}, localhost {localhost}"
            );
        }
    }

    #[test]
    fn loopback_needs_no_interface_that_tells_of_it() {
        assert_eq!(selected(&[], true, &[]), ["127.0.0.1", "::1"]);
    }
}
