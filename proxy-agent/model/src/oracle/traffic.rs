//! What the oracle is asked about: a packet, the path it takes, and how the node recognises its own
//! pods.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use ipnet::IpNet;

use crate::{IpFamily, NodeInfo, Protocol};

/// The first packet of a connection, or a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Who sends it.
    pub source: IpAddr,
    /// Where it is sent to.
    pub destination: SocketAddr,
    /// Protocol.
    pub protocol: Protocol,
    /// The interface on which it reaches the node; `None` for what the node itself sends.
    pub interface: Option<Arc<str>>,
}

impl Packet {
    /// IPv4-mapped addresses as the IPv4 addresses they stand for: an IPv6 socket that dials one
    /// sends IPv4.
    pub fn canonical(&self) -> Self {
        Self {
            source: self.source.to_canonical(),
            destination: SocketAddr::new(
                self.destination.ip().to_canonical(),
                self.destination.port(),
            ),
            ..self.clone()
        }
    }
}

/// Which mechanism sees the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Path {
    /// Packet by packet, as netfilter does it: for everything that passes through the node.
    #[default]
    Packet,
    /// When a process of this node calls `connect` or `sendto`.
    Socket,
}

impl Path {
    /// The name that `--path` takes: `packet` or `socket`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Packet => "packet",
            Self::Socket => "socket",
        }
    }
}

/// How a node treats sources: the part of the configuration that decides about masquerading.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Traffic {
    /// How sources on this node's pod network are recognised.
    pub detector: Detector,
    /// Masquerade everything that dials a ClusterIP.
    pub masquerade_all: bool,
}

/// How traffic from this node's pods is recognised (kube-proxy's `detectLocalMode`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Detector {
    /// Not at all: nothing is masqueraded because of its source.
    #[default]
    None,
    /// The source is in one of these ranges, at most one per family.
    ClusterCidr(Vec<IpNet>),
    /// The source is in one of the node's own pod ranges.
    NodeCidr,
    /// It arrives on this interface.
    BridgeInterface(Arc<str>),
    /// It arrives on an interface whose name begins so.
    InterfaceNamePrefix(Arc<str>),
}

impl Detector {
    /// Whether `packet` comes from a pod of this node. `None` if that is not known: without a
    /// detector, or without a range of the packet's family, nothing counts as foreign.
    pub fn is_local(&self, node: &NodeInfo, packet: &Packet) -> Option<bool> {
        self.tells(node, IpFamily::of(packet.source))
            .then(|| self.includes(node, packet))
    }

    /// Whether it can tell who is local among sources of this family.
    pub fn tells(&self, node: &NodeInfo, family: IpFamily) -> bool {
        let any = |cidrs: &[IpNet]| cidrs.iter().any(|cidr| IpFamily::of(cidr.addr()) == family);
        match self {
            Self::None => false,
            Self::ClusterCidr(cidrs) => any(cidrs),
            Self::NodeCidr => any(node.pod_cidrs()),
            Self::BridgeInterface(_) | Self::InterfaceNamePrefix(_) => true,
        }
    }

    fn includes(&self, node: &NodeInfo, packet: &Packet) -> bool {
        match self {
            Self::None => false,
            Self::ClusterCidr(cidrs) => within(cidrs, packet.source),
            Self::NodeCidr => within(node.pod_cidrs(), packet.source),
            Self::BridgeInterface(name) => packet.interface.as_ref() == Some(name),
            Self::InterfaceNamePrefix(prefix) => {
                let arrived_on = packet.interface.as_deref();
                arrived_on.is_some_and(|name| name.starts_with(&**prefix))
            }
        }
    }
}

fn within(cidrs: &[IpNet], address: IpAddr) -> bool {
    cidrs.iter().any(|cidr| cidr.contains(&address))
}
