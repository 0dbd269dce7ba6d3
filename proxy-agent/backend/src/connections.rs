//! Connections from outside that programs of a backend translate: what `conntrack` shows of them, and
//! ends. Knows neither maps nor forms of output.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use proxy_model::{Protocol, ServiceName, ServicePortKey};

use crate::OpenError;

/// A flow: all that a client and an endpoint exchange under one pair of addresses and ports. Ordered
/// by what clients dial, then by who they are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// What the client dialled.
    pub frontend: SocketAddr,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Who dialled.
    pub client: SocketAddr,
    /// Whom the endpoint sees in the client's place, if not the client: this node.
    pub source: Option<SocketAddr>,
    /// Where it was led.
    pub endpoint: SocketAddr,
    /// How far it has got.
    pub stage: Stage,
    /// For how long neither side sent anything, to the second.
    pub idle: Duration,
    /// The Service port that it is for; `None` once that is gone.
    pub service: Option<ServicePortKey>,
}

/// How far a flow has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The endpoint did not answer yet.
    Opening,
    /// It answered; what came of that is not known yet. Such a flow may still give way to others.
    Answered,
    /// Both sides take part.
    Established,
    /// One side is done.
    HalfClosed,
    /// Both sides are done.
    Closed,
    /// One side broke it.
    Broken,
}

impl Stage {
    /// All of them, in the order of a flow's life.
    pub const ALL: [Self; 6] = [
        Self::Opening,
        Self::Answered,
        Self::Established,
        Self::HalfClosed,
        Self::Closed,
        Self::Broken,
    ];

    /// The name used in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Answered => "answered",
            Self::Established => "established",
            Self::HalfClosed => "half-closed",
            Self::Closed => "closed",
            Self::Broken => "broken",
        }
    }
}

/// Which flows are meant: those that have all that is given here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Which {
    /// For this Service, any of its ports.
    pub service: Option<ServiceName>,
    /// Of this client, from any port.
    pub client: Option<IpAddr>,
}

impl Which {
    /// Whether flows of this client are meant, as far as that decides.
    pub fn has_client(&self, client: IpAddr) -> bool {
        self.client.is_none_or(|wanted| wanted == client)
    }

    /// Whether flows for this Service port are meant, as far as that decides.
    pub fn has_service(&self, port: Option<&ServicePortKey>) -> bool {
        let Some(wanted) = &self.service else {
            return true;
        };
        port.is_some_and(|port| port.service == *wanted)
    }
}

/// How much of a table is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Room {
    /// What is taken.
    pub used: u64,
    /// What there is.
    pub limit: u64,
}

/// All flows at about one time, and the room that they take.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Census {
    /// The flows, ordered.
    pub flows: Vec<Flow>,
    /// Flows that both sides take part in, or took: of these, none gives way to others.
    pub kept: Room,
    /// Entries of all others, which give way where there is no room.
    pub passing: Room,
    /// Flows of which it is remembered that they were left to the layer beneath.
    pub beneath: u64,
    /// By device and reason, packets that were not translated; `None` where that cannot be read.
    pub packets: Option<BTreeMap<(String, &'static str), u64>>,
}

/// What came of ending flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ended {
    /// Flows that are gone.
    pub removed: u64,
    /// Flows whose own packets put them back again and again.
    pub came_back: u64,
}

/// The flows of this host.
pub trait Connections {
    /// The flows that are meant, ordered.
    fn list(&mut self, which: &Which) -> Result<Vec<Flow>, OpenError>;

    /// All of them, and what they take.
    fn census(&mut self) -> Result<Census, OpenError>;

    /// Ends the flows that are meant.
    fn end(&mut self, which: &Which) -> Result<Ended, OpenError>;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proxy_model::{IpFamily, ObjectName};

    use super::*;

    #[test]
    fn flows_are_meant_that_have_all_that_is_given() {
        let port = ServicePortKey {
            service: ObjectName::new("shop", "web"),
            port: Arc::from("http"),
            protocol: Protocol::Tcp,
            family: IpFamily::V4,
        };
        let all = Which::default();
        assert!(all.has_service(None) && all.has_service(Some(&port)));
        let web = Which {
            service: Some(ObjectName::new("shop", "web")),
            client: Some([192, 0, 2, 7].into()),
        };
        assert!(web.has_service(Some(&port)) && !web.has_service(None));
        assert!(web.has_client([192, 0, 2, 7].into()) && !web.has_client([192, 0, 2, 8].into()));
        let other = Which {
            service: Some(ObjectName::new("shop", "we")),
            client: None,
        };
        assert!(!other.has_service(Some(&port)) && other.has_client([192, 0, 2, 8].into()));
    }
}
