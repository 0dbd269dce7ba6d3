//! The sets and maps of the table: their names, and what their keys and data are made of.
//!
//! What changes with Services is elements of these. Their number is fixed, so that a change costs
//! the same however many Services there are: the kernel looks sets up by name in a list.

use proxy_model::IpFamily;

use super::key::Part;

/// A set or map that every table has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Set {
    /// Frontends with an address: how they are treated.
    Services,
    /// NodePorts: how they are treated.
    NodePorts,
    /// Where connections to a frontend with an address may land.
    Endpoints,
    /// Where connections to a NodePort may land.
    NodeEndpoints,
    /// Frontends with an address that nothing serves: refused, or dropped.
    Unserved,
    /// NodePorts that nothing serves.
    UnservedNodePorts,
    /// Load-balancer IPs that not everybody may dial.
    Restricted,
    /// ClusterIPs of this cluster.
    ClusterIps,
    /// Where NodePorts answer.
    NodeIps,
    /// Endpoints as pairs of source and destination: connections that come back to where they
    /// come from.
    Hairpin,
    /// Endpoints of Services with session affinity: for those who have none yet.
    StickyEndpoints,
    /// Who was led to which of them, and not long ago. Written by the rules themselves.
    StickyClients,
}

/// Clients with an endpoint of their own, at most; more are led to a random one each time.
const MOST_CLIENTS: u32 = 1 << 20;

/// What a map has for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// Nothing: it is a set.
    None,
    /// What becomes of the packet.
    Verdict,
    /// An address and a port.
    Endpoint,
}

/// The parts of [`Data::Endpoint`].
pub const ENDPOINT: &[Part] = &[Part::Address, Part::Port];

impl Set {
    /// All, in the order in which they are made.
    pub const ALL: [Self; 12] = [
        Self::Services,
        Self::NodePorts,
        Self::Endpoints,
        Self::NodeEndpoints,
        Self::Unserved,
        Self::UnservedNodePorts,
        Self::Restricted,
        Self::ClusterIps,
        Self::NodeIps,
        Self::Hairpin,
        Self::StickyEndpoints,
        Self::StickyClients,
    ];

    /// Its name in the kernel.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::NodePorts => "node-ports",
            Self::Endpoints => "endpoints",
            Self::NodeEndpoints => "node-endpoints",
            Self::Unserved => "unserved",
            Self::UnservedNodePorts => "unserved-node-ports",
            Self::Restricted => "restricted",
            Self::ClusterIps => "cluster-ips",
            Self::NodeIps => "node-ips",
            Self::Hairpin => "hairpin",
            Self::StickyEndpoints => "sticky-endpoints",
            Self::StickyClients => "sticky-clients",
        }
    }

    /// What it is for, as `nft list` prints it.
    pub const fn comment(self) -> &'static str {
        match self {
            Self::Services => "ClusterIPs, load-balancer and external IPs",
            Self::NodePorts => "NodePorts",
            Self::Endpoints => "endpoints of what is in services, numbered",
            Self::NodeEndpoints => "endpoints of NodePorts, numbered",
            Self::Unserved => "no endpoint, or none that may be used from here",
            Self::UnservedNodePorts => "NodePorts without an endpoint that may be used",
            Self::Restricted => "load-balancer IPs with source ranges",
            Self::ClusterIps => "every other port of these is refused",
            Self::NodeIps => "where NodePorts answer",
            Self::Hairpin => "endpoints that dial themselves",
            Self::StickyEndpoints => "endpoints of Services with session affinity",
            Self::StickyClients => "clients, with the number of the endpoint that each has",
        }
    }

    /// What its keys are made of.
    pub const fn key(self) -> &'static [Part] {
        use Part::{Address, Mark, Number, Port, Protocol};
        match self {
            Self::Services | Self::Unserved | Self::Restricted => &[Address, Protocol, Port],
            Self::NodePorts | Self::UnservedNodePorts => &[Protocol, Port],
            Self::Endpoints => &[Address, Protocol, Port, Number],
            Self::NodeEndpoints => &[Protocol, Port, Number],
            Self::ClusterIps | Self::NodeIps => &[Address],
            Self::Hairpin => &[Address, Address],
            Self::StickyEndpoints => &[Number, Mark],
            Self::StickyClients => &[Address, Mark],
        }
    }

    /// What it has for a key.
    pub const fn data(self) -> Data {
        match self {
            Self::Services
            | Self::NodePorts
            | Self::Unserved
            | Self::UnservedNodePorts
            | Self::Restricted
            | Self::StickyEndpoints => Data::Verdict,
            Self::Endpoints | Self::NodeEndpoints => Data::Endpoint,
            Self::ClusterIps | Self::NodeIps | Self::Hairpin | Self::StickyClients => Data::None,
        }
    }

    /// The most elements that it may have; only sets that rules write to have a limit.
    pub const fn size(self) -> Option<u32> {
        match self {
            Self::StickyClients => Some(MOST_CLIENTS),
            _ => None,
        }
    }

    /// Whether rules write to it: what is in it is not compared with anything.
    pub const fn is_dynamic(self) -> bool {
        self.size().is_some()
    }

    /// Whether several Service ports may need the same element.
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::ClusterIps | Self::Hairpin)
    }

    /// The declaration of its type, in the words of `nft`.
    pub fn declaration(self, family: IpFamily) -> String {
        let ip = match family {
            IpFamily::V4 => "ip",
            IpFamily::V6 => "ip6",
        };
        let word = |(index, part): (usize, &Part)| match part {
            // Only what the type is matters, not which of the two it is.
            Part::Address if self == Self::Hairpin && index == 0 => format!("{ip} saddr"),
            Part::Address if self == Self::StickyClients => format!("{ip} saddr"),
            Part::Address => format!("{ip} daddr"),
            Part::Protocol => "meta l4proto".to_owned(),
            Part::Port => "th dport".to_owned(),
            Part::Number => "numgen random mod 1".to_owned(),
            Part::Mark => "meta mark".to_owned(),
        };
        let key: Vec<_> = self.key().iter().enumerate().map(word).collect();
        let data = match self.data() {
            Data::None => String::new(),
            Data::Verdict => " : verdict".to_owned(),
            Data::Endpoint => format!(" : {ip} daddr . th dport"),
        };
        format!("typeof {}{data}", key.join(" . "))
    }
}
