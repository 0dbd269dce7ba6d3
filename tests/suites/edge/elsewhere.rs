//! Endpoints on another node, which see this one in the place of clients outside: programs on devices do
//! both translations.

use std::net::{IpAddr, SocketAddr};

use proxy_model::Protocol;
use proxy_tests::{
    Agent, Server, Shop, World,
    agent::LogLine,
    pod::{Attempt, Listen, Transport},
    world::Neighbour,
};

mod crowd;
mod hosts;
mod leaving;
mod local;
mod masqueraded;
mod narrow;
mod removed;
mod told;
mod unserved;
mod used_up;

use serde_json::Value;

use super::asked::listed;
use super::journeys::{explained, tracked};
use super::rig::{DNS, FILE, HTTP, can_run, options, prober};

/// Waits until both devices are served, in whichever order.
pub fn both_served(agent: &mut Agent<'_>) {
    let mut others = vec!["ext1", "ext2"];
    while !others.is_empty() {
        let is_other = |line: &LogLine| {
            let device = line.text("device");
            line.message() == Some("device served")
                && others.iter().any(|other| Some(*other) == device)
        };
        let line = agent.wait_for_line("a device is served", is_other).unwrap();
        others.retain(|other| Some(*other) != line.text("device"));
    }
}

/// An endpoint of the Service on the other node.
fn slice(family: &str, ip: IpAddr) -> String {
    let name = family.to_lowercase();
    format!(
        "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: far-{name}
  namespace: shop
  labels: {{kubernetes.io/service-name: far}}
addressType: {family}
ports:
- {{name: http, port: 8080, protocol: TCP}}
- {{name: dns, port: 5353, protocol: UDP}}
endpoints:
- {{addresses: [\"{ip}\"], nodeName: node-b, conditions: {{ready: true}}}}
"
    )
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
        let [client4, client6] = self.client.node;
        let [other4, other6] = self.other.node;
        let [v4, v6] = self.other.addresses;
        let slices = [slice("IPv4", v4), slice("IPv6", v6)].concat();
        format!(
            "---
apiVersion: v1
kind: Node
metadata: {{name: node-a}}
status:
  addresses:
  - {{type: InternalIP, address: {other4}}}
  - {{type: InternalIP, address: \"{other6}\"}}
  - {{type: ExternalIP, address: {client4}}}
  - {{type: ExternalIP, address: \"{client6}\"}}
---
apiVersion: v1
kind: Service
metadata: {{name: far, namespace: shop}}
spec:
  type: NodePort
  clusterIP: 10.96.0.200
  clusterIPs: [10.96.0.200, \"fd00:10:96::200\"]
  ipFamilies: [IPv4, IPv6]
  ipFamilyPolicy: RequireDualStack
  ports:
  - {{name: http, port: 80, protocol: TCP, nodePort: {HTTP}}}
  - {{name: dns, port: 53, protocol: UDP, nodePort: {DNS}}}
{slices}"
        )
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

    /// The endpoint answered, and saw this node.
    pub fn is_answered(&self, to: SocketAddr, attempt: &Attempt) {
        attempt
            .answer_as(to)
            .unwrap_or_else(|error| panic!("{to}: {error}"));
        let seen = attempt.client.unwrap();
        assert!(self.other.node.contains(&seen.ip()), "{to}: {attempt:?}");
        assert!(seen.port() >= 32768, "{to}: {attempt:?}");
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
