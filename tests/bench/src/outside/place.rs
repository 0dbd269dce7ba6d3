//! Where the endpoints are that a host outside is led to, and whom they see.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
};

use anyhow::Result;
use proxy_harness::{
    World,
    world::{Host, Neighbour},
};

/// How many endpoints hold connections. Their ports in the place of a client's are some 32,000 each.
const ENDPOINTS: u8 = 16;

/// Where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Place {
    /// In a pod here, which sees the client.
    Here,
    /// In a pod here, which sees the node.
    SeesTheNode,
    /// On another node, which sees this one.
    Elsewhere,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Here => "a pod here",
            Self::SeesTheNode => "a pod here that sees the node",
            Self::Elsewhere => "another node",
        })
    }
}

impl Place {
    /// The endpoints' addresses. The first one serves whatever is measured.
    pub(super) fn addresses(self) -> [IpAddr; ENDPOINTS as usize] {
        let subnet = match self {
            Self::Here | Self::SeesTheNode => 244,
            Self::Elsewhere => 245,
        };
        std::array::from_fn(|index| {
            let number = u8::try_from(index + 1).unwrap_or(ENDPOINTS);
            Ipv4Addr::new(10, subnet, 0, number).into()
        })
    }

    /// On which node they are.
    pub(super) fn node(self) -> &'static str {
        match self {
            Self::Here | Self::SeesTheNode => "node-a",
            Self::Elsewhere => "node-b",
        }
    }

    /// Whether endpoints see the node in the place of the client.
    pub(super) fn is_masqueraded(self) -> bool {
        self != Self::Here
    }

    /// Entries of TRACK for a flow.
    pub(super) fn entries(self) -> usize {
        if self.is_masqueraded() { 4 } else { 2 }
    }
}

/// What has those addresses.
#[derive(Debug)]
pub(super) enum Endpoints {
    Pod(Host),
    Elsewhere(Neighbour),
}

impl Endpoints {
    /// Builds it.
    pub(super) fn start(place: Place, world: &World) -> Result<Self> {
        let addresses = place.addresses();
        let endpoints = if place == Place::Elsewhere {
            let other = world.neighbour(2)?;
            let via = other.addresses[0];
            let lines = |line: &dyn Fn(&IpAddr) -> String| {
                addresses.iter().map(line).collect::<Vec<_>>().concat()
            };
            let netns = other.host.netns();
            netns.ip(&lines(&|address| format!("addr add {address}/32 dev lo\n")))?;
            let node = world.node().netns();
            node.ip(&lines(&|address| {
                format!("route add {address} via {via}\n")
            }))?;
            Self::Elsewhere(other)
        } else {
            Self::Pod(world.pod("endpoints", &addresses)?)
        };
        // As many connections as come at once, and those that nobody accepts.
        let queue = [("core/somaxconn", "65535")];
        endpoints.host().netns().sysctls(&queue)?;
        Ok(endpoints)
    }

    /// The network that they are in.
    pub(super) fn host(&self) -> &Host {
        match self {
            Self::Pod(host) => host,
            Self::Elsewhere(neighbour) => &neighbour.host,
        }
    }

    /// The node's device towards them, if that is one of their own.
    pub(super) fn device(&self) -> Option<&str> {
        match self {
            Self::Pod(_) => None,
            Self::Elsewhere(neighbour) => Some(&neighbour.device),
        }
    }
}
