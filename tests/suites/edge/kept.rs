//! `--keep-client-address`: what would be masqueraded is led to endpoints on this node all the same, which
//! see the client; and what goes to others by a device that is not served is masqueraded beneath.

use std::net::{IpAddr, SocketAddr};

use proxy_model::Protocol;
use proxy_tests::{
    Agent, Shop,
    pod::{Attempt, Transport},
    requires::{self, PRIVILEGED},
    shop::{balanced, frontend, frontend6, service},
    world::{Host, Neighbour},
};

use super::SUITE;
use super::journeys::explained;
use super::rig::{DNS, FILE, HTTP, can_run, node, options, prober, served};
use crate::layers::tracked::seen_from;

/// External IPs of the Service.
const EXTERNAL: [&str; 2] = ["203.0.113.201", "2001:db8:aa::c9"];

/// Pods, so that clients outside are masqueraded on their way to ClusterIPs too.
pub const PODS: &str = "--cluster-cidr=10.244.0.0/16,fd00:10:244::/64";

/// Rounds of requests within which both endpoints must have answered. Few are needed.
const ROUNDS: usize = 40;

/// A node with a neighbour outside, and a Service with every kind of frontend and policy Cluster.
pub struct Site {
    pub shop: Shop,
    pub neighbour: Neighbour,
}

impl Site {
    /// `None` if this cannot run here.
    pub fn build() -> Option<Self> {
        can_run().then(Self::new)
    }

    /// The same, for agents without a layer beneath.
    pub fn build_alone() -> Option<Self> {
        requires::met(SUITE, PRIVILEGED).then(Self::new)
    }

    fn new() -> Self {
        let shop = Shop::routed().unwrap();
        let neighbour = shop.world.neighbour(1).unwrap();
        Self { shop, neighbour }
    }

    /// The objects: two endpoints, of which the second is on this node or not.
    pub fn objects(&self, second_is_here: bool) -> String {
        let [v4, v6] = balanced(1);
        let [client4, client6] = self.neighbour.addresses;
        let [external4, external6] = EXTERNAL;
        let spec = format!(
            "  type: LoadBalancer\n  externalIPs: [{external4}, \"{external6}\"]\n  \
             loadBalancerSourceRanges: [{client4}/32, \"{client6}/128\"]\n  ports:\n"
        );
        let status = format!(
            "port: 53, protocol: UDP, nodePort: {DNS}}}\nstatus: {{loadBalancer: {{ingress: [{{ip: \
             {v4}}}, {{ip: \"{v6}\"}}]}}}}\n"
        );
        let mut service = service(1, &[1, 2])
            .replacen("  ports:\n", &spec, 1)
            .replacen(
                "port: 80, protocol: TCP}",
                &format!("port: 80, protocol: TCP, nodePort: {HTTP}}}"),
                1,
            )
            .replacen("port: 53, protocol: UDP}\n", &status, 1);
        if !second_is_here {
            for address in ["10.244.0.2", "fd00:10:244::2"] {
                let here = format!("[\"{address}\"], nodeName: node-a");
                assert!(service.contains(&here), "{service}");
                service = service.replace(&here, &here.replace("node-a", "node-b"));
            }
        }
        [node(&self.neighbour), service].concat()
    }

    fn serve(&self) -> Agent<'_> {
        self.serve_objects(&self.objects(false))
    }

    /// With both endpoints on this node.
    pub fn serve_from_here(&self) -> Agent<'_> {
        self.serve_objects(&self.objects(true))
    }

    /// With both endpoints on this node, which are to see it in the place of the client.
    pub fn serve_masqueraded(&self) -> Agent<'_> {
        self.serve_these(&self.objects(true))
    }

    /// The same, with these objects.
    pub fn serve_these(&self, objects: &str) -> Agent<'_> {
        self.serve_with(&[PODS], objects)
    }

    /// Both endpoints are at the addresses of this host.
    pub fn objects_at(&self, host: &Host) -> String {
        let [v4, v6] = host.addresses() else {
            panic!("an address of each family");
        };
        let mut objects = self.objects(true);
        for number in [1, 2] {
            objects = objects
                .replace(&format!("[\"10.244.0.{number}\"]"), &format!("[\"{v4}\"]"))
                .replace(
                    &format!("[\"fd00:10:244::{number}\"]"),
                    &format!("[\"{v6}\"]"),
                );
        }
        objects
    }

    fn serve_objects(&self, objects: &str) -> Agent<'_> {
        self.serve_with(&["--keep-client-address", PODS], objects)
    }

    fn serve_with(&self, arguments: &[&str], objects: &str) -> Agent<'_> {
        let options = options(arguments);
        let mut agent = Agent::start(&self.shop.world, options, &[(FILE, objects)]).unwrap();
        served(&mut agent, "ext1");
        agent
    }

    /// Everything that the client may dial.
    pub fn all(&self) -> Vec<(Transport, SocketAddr)> {
        let external = EXTERNAL.map(|ip| ip.parse().unwrap());
        let own = [frontend(1, 80).ip(), frontend6(1, 80).ip()];
        let ips = [external, own, balanced(1)].concat();
        let ports = |ip: IpAddr, [http, dns]: [u16; 2]| {
            [(Transport::Tcp, http), (Transport::Udp, dns)]
                .map(|(transport, port)| (transport, SocketAddr::new(ip, port)))
        };
        let of_service = ips.into_iter().flat_map(|ip| ports(ip, [80, 53]));
        let nodes = self.neighbour.node.into_iter();
        of_service
            .chain(nodes.flat_map(|ip| ports(ip, [HTTP, DNS])))
            .collect()
    }

    /// Whether the endpoint saw the client itself.
    fn saw_client(&self, to: SocketAddr, attempt: &Attempt) -> bool {
        attempt
            .answer_as(to)
            .unwrap_or_else(|error| panic!("{to}: {error}"));
        let client = attempt.client.unwrap();
        self.neighbour.addresses.contains(&client.ip())
    }

    /// Conntrack must hold the connection as it should be: from client to endpoint, if that saw the
    /// client, or else as the layer beneath translated it.
    fn is_tracked(&self, transport: Transport, to: SocketAddr, attempt: &Attempt) {
        let (endpoint, client) = (attempt.answer.unwrap(), attempt.client.unwrap());
        let protocol = if transport == Transport::Udp {
            Protocol::Udp
        } else {
            Protocol::Tcp
        };
        let flow = seen_from(&self.shop.world, protocol, client, endpoint);
        let flow = flow.unwrap_or_else(|| panic!("{to}: no flow from {client} to {endpoint}"));
        if self.saw_client(to, attempt) {
            assert_eq!(flow.original, [client, endpoint], "{to}");
        } else {
            assert!(self.neighbour.addresses.contains(&flow.original[0].ip()));
            assert_eq!(flow.original[1], to);
        }
    }
}

/// The number of the endpoint that answered.
fn number(attempt: &Attempt) -> u8 {
    match attempt.answer.unwrap().ip() {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(ip) => ip.octets()[15],
    }
}

#[test]
fn endpoints_here_see_the_client_and_others_the_node() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve();
    let mut client = prober(&site.neighbour);
    for (transport, to) in site.all() {
        let (mut here, mut elsewhere) = (None, None);
        for _ in 0..ROUNDS {
            for attempt in client.send(transport, to, 5).unwrap() {
                let saw = site.saw_client(to, &attempt);
                match number(&attempt) {
                    // The layer beneath chooses again: what it gets may come here, too.
                    1 if saw => here = Some(attempt),
                    1 => {}
                    _ => {
                        assert!(!saw, "{to}: {attempt:?}");
                        elsewhere = Some(attempt);
                    }
                }
            }
            if here.is_some() && elsewhere.is_some() {
                break;
            }
        }
        site.is_tracked(transport, to, &here.expect("one here saw the client"));
        site.is_tracked(transport, to, &elsewhere.expect("one elsewhere answered"));
    }
    let [from, _] = site.neighbour.addresses;
    let told = explained(&agent, from, frontend(1, 80), "ext1");
    let part = "ebpf decides: its programs are on ext1. It leads to endpoints that see this node by devices that it serves; \
                nftables decides about the rest.";
    assert!(told.contains(part), "{told}");

    agent.apply_and_sync(FILE, &site.objects(true)).unwrap();
    for (transport, to) in site.all() {
        for attempt in client.send(transport, to, 5).unwrap() {
            assert!(site.saw_client(to, &attempt), "{to}: {attempt:?}");
        }
    }
}

#[test]
fn a_connection_stays_with_its_layer_wherever_endpoints_turn_out_to_be() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve();
    let mut prober = prober(&site.neighbour);
    let mut ask = |transport, to: SocketAddr, socket: usize| {
        let name = format!("{to} {socket}");
        let attempts = prober.send_on(&name, transport, to, 3).unwrap();
        let last = attempts.last().unwrap();
        last.answer_as(to)
            .unwrap_or_else(|error| panic!("{to}: {error}"));
        (last.answer, last.client)
    };
    let all = site.all();
    let sockets = || {
        all.iter()
            .flat_map(|(transport, to)| (0..8).map(|n| (*transport, *to, n)))
    };
    let mut asked = || {
        sockets()
            .map(|(transport, to, n)| ask(transport, to, n))
            .collect::<Vec<_>>()
    };
    let before = asked();
    let seen =
        |client: &Option<SocketAddr>| site.neighbour.addresses.contains(&client.unwrap().ip());
    let kept = before.iter().filter(|(_, client)| seen(client)).count();
    assert!(
        kept > 0 && kept < before.len(),
        "{kept} of {}",
        before.len()
    );
    for second_is_here in [true, false] {
        agent
            .apply_and_sync(FILE, &site.objects(second_is_here))
            .unwrap();
        assert_eq!(asked(), before, "{second_is_here}");
    }
}
