//! Two nodes that both run the agent, as by default, each with clients of its own and an endpoint of the
//! same Service: what one node's programs lead to the other is a client of a pod there. Between them is a
//! wire, or an overlay.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use proxy_tests::{
    Agent, AgentOptions, Prober, Server, World,
    pod::{Listen, Transport},
    requires::{self, Need},
    world::{Host, NODE_ADDRESSES, Neighbour},
};

use super::{
    SUITE,
    narrow::echo_over_tcp,
    objects,
    rig::{DNS, FILE, HTTP, all_served, can_run, options, prober},
};
use crate::layers::tracked::flows;

/// Rounds of requests within which both endpoints must have answered. Few are needed.
const ROUNDS: u16 = 40;

/// The ends of the wire between the nodes, or of what is in its place.
const WIRE: [[&str; 2]; 2] = [["172.30.0.1", "fd30::1"], ["172.30.0.2", "fd30::2"]];
/// The ends of what carries an overlay.
const UNDER: [[&str; 2]; 2] = [["172.31.0.1", "fd31::1"], ["172.31.0.2", "fd31::2"]];

/// A node, its client, and its endpoint.
struct Node {
    world: World,
    name: &'static str,
    client: Neighbour,
    pod: Host,
    _server: Server,
}

/// Where the pod of a node is.
fn pod_addresses(index: usize) -> [IpAddr; 2] {
    [
        format!("10.244.{}.1", index + 1).parse().unwrap(),
        format!("fd00:10:244:{}::1", index + 1).parse().unwrap(),
    ]
}

impl Node {
    fn new(index: usize) -> Self {
        let world = World::routed(&[], &[]).unwrap();
        let client = world.neighbour(u8::try_from(index).unwrap() + 1).unwrap();
        let pod = world.pod("endpoint", &pod_addresses(index)).unwrap();
        let listen = pod_addresses(index).map(|ip| {
            let (http, dns) = (SocketAddr::new(ip, 8080), SocketAddr::new(ip, 5353));
            [Listen::tcp(http), Listen::udp(dns)]
        });
        let server = Server::start(&pod, listen.as_flattened()).unwrap();
        Self {
            world,
            name: ["node-a", "node-b"][index],
            client,
            pod,
            _server: server,
        }
    }

    fn serve(&self, objects: &str) -> Agent<'_> {
        let options = AgentOptions {
            node_name: self.name.to_owned(),
            ..options(&[])
        };
        let mut agent = Agent::start(&self.world, options, &[(FILE, objects)]).unwrap();
        all_served(&mut agent, &[&self.client.device, "wire"]);
        agent
    }

    /// What clients dial.
    fn frontends(&self) -> Vec<(Transport, SocketAddr)> {
        let both = [(Transport::Tcp, HTTP), (Transport::Udp, DNS)];
        let of = |ip: IpAddr| both.map(|(transport, port)| (transport, SocketAddr::new(ip, port)));
        self.client.node.into_iter().flat_map(of).collect()
    }

    /// Whether an endpoint sees this node.
    fn is_seen(&self, index: usize, seen: SocketAddr) -> bool {
        let wire = WIRE[index].map(|one| one.parse::<IpAddr>().unwrap());
        let mut own = [&NODE_ADDRESSES[..], &self.client.node, &wire]
            .concat()
            .into_iter();
        own.any(|one| one == seen.ip()) && seen.port() >= 32768
    }
}

/// Both, wired to each other; `None` if this cannot run here.
fn nodes() -> Option<[Node; 2]> {
    nodes_over(None)
}

/// The same with an overlay of this kind between them, if any.
fn nodes_over(overlay: Option<&'static str>) -> Option<[Node; 2]> {
    let needs: Vec<_> = overlay.map(Need::Device).into_iter().collect();
    if !can_run() || !requires::met(SUITE, &needs) {
        return None;
    }
    let nodes = [0, 1].map(Node::new);
    let netns = nodes.each_ref().map(|node| node.world.node().netns());
    let (device, peer) = (overlay.map_or("wire", |_| "under"), netns[1].path());
    let wire = format!("link add {device} type veth peer name {device} netns {peer}\n");
    netns[0].ip(&wire).unwrap();
    for (index, netns) in netns.iter().enumerate() {
        if let Some(kind) = overlay {
            netns.ip(&laid_over(kind, index)).unwrap();
        }
    }
    for (index, node) in nodes.iter().enumerate() {
        let [v4, v6] = WIRE[index];
        let [via4, via6] = WIRE[1 - index];
        let [pod4, pod6] = pod_addresses(1 - index);
        let [client4, client6] = nodes[1 - index].client.addresses;
        let script = format!(
            "addr add {v4}/30 dev wire\naddr add {v6}/64 dev wire nodad\nlink set wire up\n\
             route add {pod4}/32 via {via4}\nroute add {pod6}/128 via {via6}\n\
             route add {client4}/32 via {via4}\nroute add {client6}/128 via {via6}\n"
        );
        node.world.node().netns().ip(&script).unwrap();
    }
    // Where each client dials the other node, too.
    for (index, node) in nodes.iter().enumerate() {
        let [via4, via6] = WIRE[1 - index];
        let [there4, there6] = nodes[1 - index].client.node;
        let routes =
            format!("route add {there4}/32 via {via4}\nroute add {there6}/128 via {via6}\n");
        node.world.node().netns().ip(&routes).unwrap();
    }
    Some(nodes)
}

/// Lines for one end of an overlay.
fn laid_over(kind: &str, index: usize) -> String {
    let [own4, own6] = UNDER[index];
    let [other4, other6] = UNDER[1 - index];
    let (family, ends) = match kind {
        "ip6tnl" => ("mode any", [own6, other6]),
        "sit" => ("mode any", [own4, other4]),
        _ => ("id 42 dstport 4789", [own4, other4]),
    };
    let [own, other] = ends;
    format!(
        "addr add {own4}/30 dev under\naddr add {own6}/64 dev under nodad\nlink set under up\n\
         link add wire type {kind} {family} local {own} remote {other} dev under\n"
    )
}

/// Both nodes, and a Service with an endpoint on each.
fn objects(nodes: &[Node; 2]) -> String {
    let endpoints =
        [0, 1].map(|family| [0, 1].map(|index| (pod_addresses(index)[family], nodes[index].name)));
    let known = nodes.iter().zip(WIRE).map(|(node, wire)| {
        let wire = wire.map(|one| one.parse().unwrap());
        objects::node(node.name, wire, node.client.node)
    });
    known.collect::<String>() + &objects::service("both", &endpoints)
}

/// To conntrack, what passes through the node goes to whom it is for: an endpoint, or the other node.
fn netfilter_translates_nothing(node: &Node) {
    let flows = flows(&node.world).into_iter();
    let of_clients = flows.filter(|flow| [8080, 5353, HTTP].contains(&flow.original[1].port()));
    let of_clients: Vec<_> = of_clients.collect();
    assert!(
        of_clients
            .iter()
            .any(|flow| flow.original[1].port() == 8080)
    );
    for flow in of_clients {
        assert_eq!(flow.reply, [flow.original[1], flow.original[0]], "{flow:?}");
    }
}

/// Endpoints of both answer clients of both, and see the node that led there.
fn both_are_served(nodes: &[Node; 2]) {
    for (index, node) in nodes.iter().enumerate() {
        let mut client = prober(&node.client);
        for (transport, to) in node.frontends() {
            let mut answered = BTreeSet::new();
            for _ in 0..ROUNDS {
                for attempt in client.send(transport, to, 5).unwrap() {
                    let endpoint = attempt.answer_as(to);
                    let endpoint = endpoint.unwrap_or_else(|error| panic!("{to}: {error}"));
                    let seen = attempt.client.unwrap();
                    assert!(node.is_seen(index, seen), "{to}: {attempt:?}");
                    answered.insert(endpoint.ip());
                }
                if answered.len() == 2 {
                    break;
                }
            }
            assert_eq!(answered.len(), 2, "{to}: {answered:?}");
        }
    }
    nodes.iter().for_each(netfilter_translates_nothing);
}

#[test]
fn endpoints_of_both_nodes_serve_clients_of_both() {
    let Some(nodes) = nodes() else {
        return;
    };
    let objects = objects(&nodes);
    let _agents = nodes.each_ref().map(|node| node.serve(&objects));
    both_are_served(&nodes);
}

/// An overlay carries less than the wires of clients and of pods, so that both sides must learn of it.
#[test]
fn endpoints_beyond_an_overlay_serve_clients_and_long_packets_find_their_way() {
    for kind in ["vxlan", "sit", "ip6tnl"] {
        let Some(nodes) = nodes_over(Some(kind)) else {
            continue;
        };
        let objects = objects(&nodes);
        let _agents = nodes.each_ref().map(|node| node.serve(&objects));
        both_are_served(&nodes);
        for node in &nodes {
            for ip in node.client.node {
                // One of two endpoints is missed once in 250 times.
                for _ in 0..8 {
                    echo_over_tcp(&node.client, ip);
                }
            }
        }
        nodes.iter().for_each(netfilter_translates_nothing);
    }
}

#[test]
fn a_client_that_dials_both_nodes_from_one_port_hears_whom_it_asked() {
    let Some(nodes) = nodes() else {
        return;
    };
    let objects = objects(&nodes);
    let _agents = nodes.each_ref().map(|node| node.serve(&objects));
    let client = &nodes[0].client;
    let mut prober = Prober::start(&client.host).unwrap();
    for round in 0..ROUNDS {
        // One port for all, and another than before, which the client remembers.
        let port = 40_000 + round;
        client.host.netns().sends_from([port, port]).unwrap();
        let mut kept = Vec::new();
        for node in &nodes {
            for (transport, to) in node.frontends() {
                if transport == Transport::Tcp {
                    kept.push((format!("{round} {to}"), to, None));
                }
            }
        }
        // All are open at once, and each goes on with its endpoint.
        for _ in 0..3 {
            for (name, to, endpoint) in &mut kept {
                let attempt = prober
                    .send_on(name, Transport::Tcp, *to, 1)
                    .unwrap()
                    .remove(0);
                let answer = attempt.answer_as(*to);
                let answer = answer.unwrap_or_else(|error| panic!("{to}: {error}"));
                assert_eq!(*endpoint.get_or_insert(answer), answer, "{to}");
            }
        }
        for (name, ..) in &kept {
            prober.close(name).unwrap();
        }
    }
    nodes.iter().for_each(netfilter_translates_nothing);
}

#[test]
fn a_node_that_starts_again_keeps_what_the_other_one_led_to_it() {
    let Some(nodes) = nodes() else {
        return;
    };
    let objects = objects(&nodes);
    let mut agents = nodes.each_ref().map(|node| node.serve(&objects));
    let mut probers = nodes.each_ref().map(|node| prober(&node.client));
    let mut ask = |before: &[SocketAddr]| -> Vec<SocketAddr> {
        let mut answers = Vec::new();
        for (node, prober) in nodes.iter().zip(&mut probers) {
            for (transport, to) in node.frontends() {
                for number in 0..8 {
                    let name = format!("{transport:?} {to} {number}");
                    let attempt = prober.send_on(&name, transport, to, 1).unwrap().remove(0);
                    let answer = attempt.answer_as(to);
                    answers.push(answer.unwrap_or_else(|error| panic!("{to}: {error}")));
                }
            }
        }
        assert!(before.is_empty() || answers == before);
        answers
    };
    let first = ask(&[]);
    for index in [0, 1] {
        agents[index].kill().unwrap();
        ask(&first);
        agents[index].launch().unwrap();
        ask(&first);
    }
    let pods = nodes.each_ref().map(|node| node.pod.addresses()[0]);
    assert!(
        pods.iter()
            .all(|pod| first.iter().any(|one| one.ip() == *pod))
    );
}
