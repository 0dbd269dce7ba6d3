//! Without `--keep-client-address`, endpoints on this node see it in the place of clients outside, where Kubernetes
//! has them masqueraded: programs on the devices of pods do that, and netfilter translates nothing.

use std::net::SocketAddr;

use proxy_tests::{
    Prober, Server,
    pod::{Listen, Transport},
    requires::{self, Need},
    world::Host,
};

use super::{
    SUITE,
    bridged::STRICT,
    elsewhere::local::Own,
    kept::Site,
    rig::{on_node, prober, served, tell_netfilter},
};
use crate::layers::tracked::flows;

fn is_nodes(site: &Site, seen: SocketAddr) -> bool {
    let usual = site.shop.world.node().addresses();
    usual.contains(&seen.ip()) || site.neighbour.node.contains(&seen.ip())
}

/// The endpoint saw an address and a port of this node.
fn is_nodes_port(site: &Site, to: SocketAddr, seen: SocketAddr) {
    assert!(is_nodes(site, seen), "{to}: {seen}");
    assert!(seen.port() >= 32768, "{to}: {seen}");
}

/// What the client asked each of these, and whom endpoints saw. Each request has a port of its own: two from one
/// port to two frontends may have one place behind the translation, and the later one is netfilter's.
fn asked(site: &Site, all: &[(Transport, SocketAddr)]) -> Vec<(SocketAddr, SocketAddr)> {
    let ask = || {
        let requests = all.iter().flat_map(|asked| std::iter::repeat_n(asked, 5));
        let each = (20_000..).zip(requests).map(|(port, (transport, to))| {
            let client = site.neighbour.addresses[usize::from(to.is_ipv6())];
            let ends = [SocketAddr::new(client, port), *to];
            let seen = Own::connect(*transport, ends).and_then(|mut own| own.echo("hello"));
            let seen = seen.unwrap_or_else(|error| panic!("{transport} {to}: {error}"));
            (*to, seen)
        });
        each.collect()
    };
    site.neighbour.host.netns().run(ask).unwrap()
}

/// The endpoints at the addresses of a host.
fn serves(host: &Host) -> Server {
    let listen = host.addresses().iter().flat_map(|ip| {
        let [http, dns] = [8080, 5353].map(|port| SocketAddr::new(*ip, port));
        [Listen::tcp(http), Listen::udp(dns)]
    });
    Server::start(host, &listen.collect::<Vec<_>>()).unwrap()
}

/// Each connection of clients is one to an endpoint, for all that conntrack knows.
fn netfilter_translates_nothing(site: &Site) {
    let clients = site.neighbour.addresses;
    let all = flows(&site.shop.world).into_iter();
    let of_clients: Vec<_> = all
        .filter(|flow| clients.contains(&flow.original[0].ip()))
        .filter(|flow| flow.original[1].port() != 0)
        .collect();
    assert!(!of_clients.is_empty());
    for flow in of_clients {
        assert!([8080, 5353].contains(&flow.original[1].port()), "{flow:?}");
        assert_eq!(flow.reply, [flow.original[1], flow.original[0]], "{flow:?}");
    }
}

#[test]
fn endpoints_here_see_the_node_and_netfilter_translates_nothing() {
    for is_told in [false, true] {
        if !requires::met(SUITE, &[Need::BridgeNetfilter]) {
            return;
        }
        let Some(site) = Site::build() else {
            return;
        };
        tell_netfilter(&site.shop, is_told);
        on_node(&site.shop, "nft", &[STRICT]);
        let _agent = site.serve_masqueraded();
        for (to, seen) in asked(&site, &site.all()) {
            is_nodes_port(&site, to, seen);
        }
        netfilter_translates_nothing(&site);
    }
}

#[test]
fn a_pod_with_a_route_of_its_own_sees_the_node_too() {
    let Some(site) = Site::build() else {
        return;
    };
    // The pod of all endpoints, without the bridge. Of IPv6, nobody would answer it for the node's address.
    let routes = "link set pod1 nomaster\n\
                  route add 10.244.0.1/32 dev pod1\n\
                  route add 10.244.0.2/32 dev pod1\n";
    site.shop.world.node().netns().ip(routes).unwrap();
    let _agent = site.serve_masqueraded();
    let mut all = site.all();
    all.retain(|(_, to)| to.is_ipv4());
    for (to, seen) in asked(&site, &all) {
        is_nodes_port(&site, to, seen);
    }
    netfilter_translates_nothing(&site);
}

/// Open connections, and whom their endpoints saw.
struct Kept {
    prober: Prober,
    seen: Vec<SocketAddr>,
}

impl Kept {
    fn begin(site: &Site) -> Self {
        let mut kept = Self {
            prober: prober(&site.neighbour),
            seen: Vec::new(),
        };
        kept.seen = kept.ask(site);
        kept
    }

    fn ask(&mut self, site: &Site) -> Vec<SocketAddr> {
        let mut seen = Vec::new();
        for (transport, to) in site.all() {
            let name = format!("{transport:?} {to}");
            for attempt in self.prober.send_on(&name, transport, to, 3).unwrap() {
                attempt
                    .answer_as(to)
                    .unwrap_or_else(|error| panic!("{to}: {error}"));
                seen.push(attempt.client.unwrap());
            }
        }
        seen
    }

    #[track_caller]
    fn go_on(&mut self, site: &Site) {
        assert_eq!(self.ask(site), self.seen);
    }
}

#[test]
fn connections_to_pods_outlive_agents_and_what_these_are_told() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve_masqueraded();
    let mut kept = Kept::begin(&site);
    assert!(kept.seen.iter().all(|seen| is_nodes(&site, *seen)));
    agent.kill().unwrap();
    kept.go_on(&site);
    agent.launch().unwrap();
    served(&mut agent, "ext1");
    kept.go_on(&site);
    // From now on, endpoints here see the client.
    agent.terminate().unwrap();
    agent
        .options()
        .arguments
        .push("--keep-client-address".to_owned());
    agent.launch().unwrap();
    served(&mut agent, "ext1");
    kept.go_on(&site);
    let clients = site.neighbour.addresses;
    let mut anew = Kept::begin(&site);
    assert!(anew.seen.iter().all(|seen| clients.contains(&seen.ip())));
    // And as before.
    agent.terminate().unwrap();
    agent.options().arguments.pop();
    agent.launch().unwrap();
    served(&mut agent, "ext1");
    kept.go_on(&site);
    anew.go_on(&site);
}

#[test]
fn an_endpoint_in_the_network_of_this_host_sees_the_client() {
    let Some(site) = Site::build() else {
        return;
    };
    let objects = site.objects_at(site.shop.world.node());
    let _agent = site.serve_these(&objects);
    let node = site.shop.world.node();
    let _server = serves(node);
    let clients = site.neighbour.addresses;
    for (to, seen) in asked(&site, &site.all()) {
        assert!(clients.contains(&seen.ip()), "{to}: {seen}");
    }
    netfilter_translates_nothing(&site);
}

/// As a virtual machine: no hook sees what it dials, and packets that it sends itself come from its device.
#[test]
fn a_machine_reaches_itself_by_each_address_of_its_service() {
    let Some(site) = Site::build() else {
        return;
    };
    let machine = &site.shop.client;
    let objects = site.objects_at(machine);
    let ranges = |line: &&str| line.contains("loadBalancerSourceRanges");
    let ranges = objects.lines().find(ranges).unwrap();
    let objects = objects.replace(&format!("{ranges}\n"), "");
    let _agent = site.serve_these(&objects);
    let _server = serves(machine);
    let place = site.shop.world.unseen(machine).unwrap();
    let mut own = Prober::start_with(|command| place.spawn(command)).unwrap();
    for (transport, to) in site.all() {
        for attempt in own.send(transport, to, 5).unwrap() {
            attempt
                .answer_as(to)
                .unwrap_or_else(|error| panic!("{to}: {error}"));
            let seen = attempt.client.unwrap().ip();
            assert!(!machine.addresses().contains(&seen), "{to}: {attempt:?}");
        }
    }
    for (to, seen) in asked(&site, &site.all()) {
        is_nodes_port(&site, to, seen);
    }
}
