//! Which flows the state would make now, and so which are stale. Pure.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, SocketAddr},
};

use proxy_model::{IpFamily, NodeState, Protocol, ServicePortKey};

use super::{
    allowed::Allowed,
    flow::{Flow, UDP},
};

/// Where UDP flows to frontends may lead.
///
/// It knows what a backend knows: sets with topology and traffic policy applied. kube-proxy asks
/// for endpoints that serve at all, and so leaves flows alone that lead to another zone, or to
/// another node against policy Local, after that became wrong.
#[derive(Debug, Default)]
pub struct Expected {
    frontends: HashMap<SocketAddr, Wanted>,
    node_ports: HashMap<(IpFamily, u16), Allowed>,
    node_addresses: HashSet<IpAddr>,
}

#[derive(Debug)]
enum Wanted {
    Endpoints(Allowed),
    /// Nobody's frontend any more: translated by nobody, a flow is as a new one would be.
    Untranslated,
}

impl Expected {
    /// What `state` says of all its UDP frontends, and of those that are `gone` (see
    /// [`gone`](super::gone)). One that is gone for one Service and there for another is there.
    pub fn of_all(state: &NodeState, gone: impl IntoIterator<Item = SocketAddr>) -> Self {
        let mut expected = Self::of(state, [], gone);
        for (key, _) in &state.services {
            expected.add(state, key);
        }
        expected
    }

    /// What `state` says of the UDP frontends of these Service ports, and of those that are `gone`.
    /// The others' flows count as somebody else's. A frontend that moved to a Service port which
    /// is not among `keys` counts as gone: name all that changed.
    pub fn of<'a>(
        state: &NodeState,
        keys: impl IntoIterator<Item = &'a ServicePortKey>,
        gone: impl IntoIterator<Item = SocketAddr>,
    ) -> Self {
        let gone = gone.into_iter();
        let mut expected = Self {
            frontends: gone
                .map(|address| (address, Wanted::Untranslated))
                .collect(),
            node_ports: HashMap::new(),
            node_addresses: node_addresses(state).collect(),
        };
        for key in keys {
            expected.add(state, key);
        }
        expected
    }

    fn add(&mut self, state: &NodeState, key: &ServicePortKey) {
        if key.protocol != Protocol::Udp {
            return;
        }
        let Some(service) = state.services.get(key) else {
            return;
        };
        for frontend in &service.frontends {
            let allowed = Allowed::of(service, frontend.kind);
            match frontend.address {
                Some(address) => {
                    let address = SocketAddr::new(address, frontend.port);
                    self.frontends.insert(address, Wanted::Endpoints(allowed));
                }
                None => {
                    self.node_ports.insert((key.family, frontend.port), allowed);
                }
            }
        }
    }

    /// Whether any flow of this family could be stale.
    pub fn names(&self, family: IpFamily) -> bool {
        let of_family = |address: &SocketAddr| IpFamily::of(address.ip()) == family;
        self.frontends.keys().any(of_family)
            || self.node_ports.keys().any(|(other, _)| *other == family)
    }

    /// Whether no rule that is in force for the state would make this flow: it is UDP to a
    /// frontend, and leads to none of the endpoints that the frontend may lead to. That includes
    /// one that nobody translated, because there was no endpoint when it began.
    pub fn is_stale(&self, flow: &Flow) -> bool {
        if flow.protocol != UDP {
            return false;
        }
        let address = flow.destination;
        let node_port = || {
            let port = (IpFamily::of(address.ip()), address.port());
            let allowed = self.node_ports.get(&port)?;
            self.node_addresses
                .contains(&address.ip())
                .then_some(allowed)
        };
        match self.frontends.get(&address) {
            Some(Wanted::Endpoints(allowed)) => !allowed.contains(flow.answerer),
            // A NodePort that another Service took meanwhile is there.
            gone => match (node_port(), gone) {
                (Some(allowed), _) => !allowed.contains(flow.answerer),
                (None, Some(_)) => flow.answerer != address,
                (None, None) => false,
            },
        }
    }
}

/// Where packets reach NodePorts: no packet to a loopback address leaves its socket's host, so
/// what is there belongs to others.
pub(super) fn node_addresses(state: &NodeState) -> impl Iterator<Item = IpAddr> {
    let addresses = state.node_port_addresses.iter().copied();
    addresses.filter(|address| !address.is_loopback())
}
