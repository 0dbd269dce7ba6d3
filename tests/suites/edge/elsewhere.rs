//! Endpoints on another node, which see this one in the place of clients outside: programs on devices do
//! both translations.

use std::net::{IpAddr, SocketAddr};

use proxy_model::Protocol;
use proxy_tests::{
    Agent, Server, Shop, World,
    pod::{Attempt, Listen, Transport},
    world::Neighbour,
};

mod crowd;
mod hosts;
mod leaving;
pub mod local;
mod masqueraded;
mod narrow;
mod removed;
mod switched;
mod told;
mod unserved;
mod used_up;

use serde_json::Value;

use super::asked::listed;
use super::journeys::{explained, tracked};
use super::objects;
use super::rig::{DNS, FILE, HTTP, all_served, can_run, options, prober};

/// Waits until both devices are served.
pub fn both_served(agent: &mut Agent<'_>) {
    all_served(agent, &["ext1", "ext2"]);
}

/// A node between a client outside and another node, which has endpoints in its own network.
pub struct Site {
    pub shop: Shop,
    pub client: Neighbour,
    pub other: Neighbour,
    _server: Server,
}

impl Site {
    /// `None` if this cannot run here.
    pub fn build() -> Option<Self> {
        Self::between(|world| [1, 2].map(|number| world.neighbour(number).unwrap()))
    }

    /// The same between such a client and such a node, on ext1 and ext2.
    pub fn between(neighbours: impl FnOnce(&World) -> [Neighbour; 2]) -> Option<Self> {
        can_run().then(|| {
            let shop = Shop::routed().unwrap();
            let [client, other] = neighbours(&shop.world);
            let listen = other.addresses.map(|ip| {
                let (http, dns) = (SocketAddr::new(ip, 8080), SocketAddr::new(ip, 5353));
                [Listen::tcp(http), Listen::udp(dns)]
            });
            let server = Server::start(&other.host, listen.as_flattened()).unwrap();
            Self {
                shop,
                client,
                other,
                _server: server,
            }
        })
    }

    /// The node, which is known by its addresses on both wires, and a Service with a NodePort and an endpoint
    /// elsewhere.
    pub fn objects(&self) -> String {
        let endpoints = self.other.addresses.map(|ip| [(ip, "node-b")]);
        [
            objects::node("node-a", self.other.node, self.client.node),
            objects::service("far", &endpoints),
        ]
        .concat()
    }

    pub fn serve(&self, further: &[&str]) -> Agent<'_> {
        self.serve_these(further, &self.objects())
    }

    /// The same with such objects.
    pub fn serve_these(&self, further: &[&str], objects: &str) -> Agent<'_> {
        let arguments = [&["--keep-client-address"], further].concat();
        let files = [(FILE, objects)];
        let mut agent = Agent::start(&self.shop.world, options(&arguments), &files).unwrap();
        both_served(&mut agent);
        agent
    }

    /// The client's flows, and whom their endpoint sees.
    pub fn sources(&self, agent: &Agent<'_>) -> Vec<(SocketAddr, SocketAddr)> {
        let flows = listed(&self.shop, agent, &[]);
        let place = |flow: &Value, field: &str| flow[field].as_str().unwrap().parse().unwrap();
        let ends = |flow| (place(flow, "client"), place(flow, "source"));
        flows.iter().map(ends).collect()
    }

    /// What the client dials.
    pub fn all(&self) -> Vec<(Transport, SocketAddr)> {
        let nodes = [self.client.node, self.other.node].concat();
        let of = |ip: IpAddr| {
            [(Transport::Tcp, HTTP), (Transport::Udp, DNS)]
                .map(|(transport, port)| (transport, SocketAddr::new(ip, port)))
        };
        nodes.into_iter().flat_map(of).collect()
    }

    /// The endpoint answered, and saw this node at a port of `--source-ports`.
    pub fn is_answered(&self, to: SocketAddr, attempt: &Attempt) {
        let seen = self.seen(to, attempt);
        assert!(seen.port() >= 32768, "{to}: {attempt:?}");
    }

    /// Whom the endpoint saw, which answered: this node.
    pub fn seen(&self, to: SocketAddr, attempt: &Attempt) -> SocketAddr {
        attempt
            .answer_as(to)
            .unwrap_or_else(|error| panic!("{to}: {error}"));
        let seen = attempt.client.unwrap();
        assert!(self.other.node.contains(&seen.ip()), "{to}: {attempt:?}");
        seen
    }
}

#[test]
fn endpoints_of_other_nodes_see_this_one_and_netfilter_translates_nothing() {
    let Some(site) = Site::build() else {
        return;
    };
    let agent = site.serve(&[]);
    let mut client = prober(&site.client);
    for (transport, to) in site.all() {
        for attempt in client.send(transport, to, 5).unwrap() {
            site.is_answered(to, &attempt);
        }
    }
    for client in site.client.addresses {
        let flows = tracked(&site.shop, client);
        assert!(!flows.is_empty());
        for flow in flows {
            let port = match flow.protocol {
                Protocol::Udp => 5353,
                _ => 8080,
            };
            // From client to endpoint, and back.
            assert_eq!(flow.original[1].port(), port, "{flow:?}");
            assert!(site.other.addresses.contains(&flow.original[1].ip()));
        }
    }
    let [from, _] = site.client.addresses;
    let [to, _] = site.client.node;
    let told = explained(&agent, from, (to, HTTP).into(), "ext1");
    let part = "ebpf decides: its programs are on ext1.";
    assert!(told.contains(part), "{told}");
}
