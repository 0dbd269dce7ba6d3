//! Nodes as values, and what is said about each of their devices.

use std::net::IpAddr;

use proxy_netlink::route::{
    Address, Hop, Link, Route,
    numbers::{ARPHRD_ETHER, ARPHRD_IPGRE, ARPHRD_NONE, ARPHRD_TUNNEL, IFF_LOOPBACK, IFF_UP},
};

use super::{Choice, Facts, Pattern, choose, pods};

/// A node.
#[derive(Default)]
struct Node {
    links: Vec<Link>,
    addresses: Vec<Address>,
    routes: Vec<Route>,
    known_by: Vec<IpAddr>,
    patterns: Vec<Pattern>,
    /// Programs, by the name of a device.
    programs: Vec<(&'static str, &'static str)>,
}

impl Node {
    /// A device that is up.
    fn link(&mut self, name: &str, kind: Option<&str>) -> &mut Link {
        self.links.push(Link {
            index: u32::try_from(self.links.len()).unwrap() + 1,
            name: name.to_owned(),
            flags: IFF_UP,
            hardware: ARPHRD_ETHER,
            kind: kind.map(str::to_owned),
            ..Link::default()
        });
        self.links.last_mut().unwrap()
    }

    fn index(&self, name: &str) -> u32 {
        let link = self.links.iter().find(|link| link.name == name);
        link.unwrap().index
    }

    /// A port of another device.
    fn port(&mut self, name: &str, kind: Option<&str>, master: &str) {
        let master = self.index(master);
        self.link(name, kind).master = Some(master);
    }

    fn address(&mut self, device: &str, address: &str) {
        self.addresses.push(Address {
            device: self.index(device),
            address: address.parse().unwrap(),
            prefix: 24,
            scope: 0,
            flags: 0,
        });
    }

    fn route(&mut self, to: &str, table: u32, hops: &[(&str, bool)]) {
        let (destination, prefix) = to.split_once('/').unwrap();
        let hop = |(device, has_gateway): &(&str, bool)| Hop {
            device: self.index(device),
            has_gateway: *has_gateway,
        };
        let hops = hops.iter().map(hop).collect();
        self.routes.push(Route {
            table,
            destination: destination.parse().unwrap(),
            prefix: prefix.parse().unwrap(),
            hops,
        });
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            links: &self.links,
            addresses: &self.addresses,
            routes: &self.routes,
            node: &self.known_by,
            patterns: &self.patterns,
        }
    }

    /// The programs on a device, by name.
    fn programs_on(&self, link: &Link) -> Vec<String> {
        let programs = self.programs.iter();
        let there = programs.filter(|(device, _)| *device == link.name);
        there.map(|(_, program)| (*program).to_owned()).collect()
    }

    /// What is said about each device.
    fn told(&self) -> Vec<String> {
        let devices = choose(self.facts(), |link| self.programs_on(link)).into_iter();
        let told = devices.map(|device| {
            let told = format!("{}: {}", device.name, device.choice);
            assert_eq!(device.served().is_some(), told.contains(": served"));
            told
        });
        told.collect()
    }
}

/// A node with one device outwards, pods and an overlay.
fn usual() -> Node {
    let mut node = Node {
        known_by: vec!["192.0.2.1".parse().unwrap()],
        ..Node::default()
    };
    node.link("lo", None).flags = IFF_UP | IFF_LOOPBACK;
    node.link("eth0", None);
    node.link("veth1", Some("veth"));
    node.link("flannel.1", Some("vxlan"));
    node.address("lo", "127.0.0.1");
    node.address("eth0", "192.0.2.1");
    node.route("0.0.0.0/0", 254, &[("eth0", true)]);
    node.route("10.244.0.5/32", 254, &[("veth1", false)]);
    node.route("10.244.1.0/24", 254, &[("flannel.1", true)]);
    for device in ["eth0", "veth1", "flannel.1"] {
        node.route("fe80::/64", 254, &[(device, false)]);
    }
    node
}

#[test]
fn what_leads_outwards_is_served_and_pods_are_not() {
    assert_eq!(
        usual().told(),
        [
            "lo: not served: loopback",
            "eth0: served (Ethernet): carries 192.0.2.1",
            "veth1: not served: no address of the node, and no route to other hosts",
            "flannel.1: served (Ethernet): a route with a gateway goes out of it",
        ]
    );
}

#[test]
fn without_the_nodes_addresses_routes_decide() {
    let mut node = usual();
    node.known_by.clear();
    let told = node.told();
    assert_eq!(
        told[1],
        "eth0: served (Ethernet): a default route goes out of it"
    );
    assert_eq!(
        told[2],
        "veth1: not served: no address of the node, and no route to other hosts"
    );
}

#[test]
fn routes_of_every_table_and_each_of_several_ways_count() {
    let mut node = Node::default();
    node.link("eth0", None);
    node.link("eth1", None);
    node.link("eth2", None);
    node.link("eth3", None);
    node.route("0.0.0.0/0", 100, &[("eth0", false)]);
    node.route("198.51.100.0/24", 200, &[("eth1", true), ("eth2", false)]);
    node.route("203.0.113.0/24", 254, &[("eth3", false)]);
    assert_eq!(
        node.told(),
        [
            "eth0: served (Ethernet): a default route goes out of it",
            "eth1: served (Ethernet): a route with a gateway goes out of it",
            "eth2: not served: no address of the node, and no route to other hosts",
            "eth3: not served: no address of the node, and no route to other hosts",
        ]
    );
}

#[test]
fn a_port_is_left_to_its_master_unless_that_is_a_vrf() {
    let mut node = Node::default();
    node.link("bond0", Some("bond"));
    node.link("br0", Some("bridge"));
    node.link("ovs-system", Some("openvswitch"));
    node.link("blue", Some("vrf"));
    node.port("eth0", None, "bond0");
    node.port("eth1", None, "br0");
    node.port("eth2", None, "ovs-system");
    node.port("eth3", None, "blue");
    for device in ["bond0", "br0", "blue", "eth0", "eth1", "eth2", "eth3"] {
        node.route("0.0.0.0/0", 254, &[(device, true)]);
    }
    assert_eq!(
        node.told(),
        [
            "bond0: served (Ethernet): a default route goes out of it",
            "br0: served (Ethernet): a default route goes out of it",
            "ovs-system: not served: no address of the node, and no route to other hosts",
            "blue: not served: a VRF, whose devices are served",
            "eth0: not served: a port of bond0",
            "eth1: not served: a port of br0",
            "eth2: not served: a port of ovs-system",
            "eth3: served (Ethernet): a default route goes out of it",
        ]
    );
}

#[test]
fn an_overlay_is_served_for_a_route_that_it_has_of_its_own() {
    let mut node = Node::default();
    for (name, kind, hardware, to) in [
        ("wg0", "wireguard", ARPHRD_NONE, "10.1.0.0/16"),
        ("tunl0", "ipip", ARPHRD_TUNNEL, "10.2.0.0/16"),
        ("gre1", "gre", ARPHRD_IPGRE, "2001:db8::/32"),
        ("tun0", "tun", ARPHRD_NONE, "10.4.0.0/16"),
        ("tap0", "tun", ARPHRD_ETHER, "10.5.0.0/16"),
        ("vxlan0", "vxlan", ARPHRD_ETHER, "fe80::/64"),
        ("geneve0", "geneve", ARPHRD_ETHER, "ff00::/8"),
        ("macvlan0", "macvlan", ARPHRD_ETHER, "10.6.0.0/16"),
    ] {
        node.link(name, Some(kind)).hardware = hardware;
        node.route(to, 254, &[(name, false)]);
    }
    let nothing = "not served: no address of the node, and no route to other hosts";
    let served = "served (plain IP): an overlay with a route";
    let expected = [
        ("wg0", served),
        ("tunl0", served),
        ("gre1", served),
        ("tun0", served),
        ("tap0", nothing),
        ("vxlan0", nothing),
        ("geneve0", nothing),
        ("macvlan0", nothing),
    ];
    let expected = expected.map(|(name, choice)| format!("{name}: {choice}"));
    assert_eq!(node.told(), expected);
}

#[test]
fn what_cannot_or_must_not_be_served_says_why() {
    let mut node = usual();
    node.link("kube-ipvs0", Some("dummy"));
    node.link("eth1", None).flags = 0;
    node.link("ib0", None).hardware = 32;
    node.link("cilium_host", Some("veth"));
    node.link("cali123", Some("veth"));
    node.link("lxc_health", Some("veth"));
    for device in [
        "kube-ipvs0",
        "eth1",
        "ib0",
        "cilium_host",
        "cali123",
        "lxc_health",
    ] {
        node.address(device, "192.0.2.1");
    }
    node.programs = vec![
        ("eth0", "culvert_eth_in"),
        ("eth0", "cil_from_netdev"),
        ("flannel.1", "tcpdump"),
    ];
    assert_eq!(
        node.told()[1..],
        [
            "eth0: not served: Cilium's cil_from_netdev serves it",
            "veth1: not served: no address of the node, and no route to other hosts",
            "flannel.1: served (Ethernet): a route with a gateway goes out of it",
            "kube-ipvs0: not served: leads nowhere (dummy)",
            "eth1: not served: down",
            "ib0: not served: neither Ethernet nor plain IP (hardware type 32)",
            "cilium_host: not served: Cilium's device",
            "cali123: not served: Calico's device",
            "lxc_health: not served: Cilium's device",
        ]
    );
}

#[test]
fn names_that_are_given_decide_alone() {
    let mut node = usual();
    node.link("ib0", None).hardware = 32;
    node.programs = vec![("veth1", "cil_from_container")];
    node.patterns = ["lo", "veth*", "ib0"]
        .map(|one| one.parse().unwrap())
        .into();
    assert_eq!(
        node.told(),
        [
            "lo: not served: loopback",
            "eth0: not served: not named by --devices",
            "veth1: served (Ethernet): named by --devices",
            "flannel.1: not served: not named by --devices",
            "ib0: not served: neither Ethernet nor plain IP (hardware type 32)",
        ]
    );
    for (pattern, name, matches) in [
        ("eth0", "eth0", true),
        ("eth0", "eth01", false),
        ("eth*", "eth", true),
        ("*", "bond0", true),
        ("bond*", "eth0", false),
    ] {
        let one: Pattern = pattern.parse().unwrap();
        assert_eq!(one.matches(name), matches, "{pattern} {name}");
    }
}

/// The ways to pods with these addresses: a device, and those that programs are on.
fn ways(node: &Node, endpoints: &[&str]) -> Vec<String> {
    let facts = node.facts();
    let devices = choose(facts, |link| node.programs_on(link));
    let served = devices.iter().filter(|device| device.served().is_some());
    let served = served.map(|device| device.index).collect();
    let endpoints: Vec<IpAddr> = endpoints.iter().map(|one| one.parse().unwrap()).collect();
    let ways = pods::ways(facts, &served, &endpoints, |link| node.programs_on(link));
    let name = |index: u32| {
        let link = node.links.iter().find(|link| link.index == index);
        link.unwrap().name.clone()
    };
    let told = ways.into_iter().map(|(device, hooks)| {
        let hooks: Vec<_> = hooks.into_iter().map(name).collect();
        format!("{}: {}", name(device), hooks.join(" "))
    });
    told.collect()
}

#[test]
fn pods_are_reached_by_their_own_devices_or_by_ports_of_a_bridge() {
    let mut node = usual();
    node.link("vethA", Some("veth"));
    node.link("cni0", Some("bridge"));
    node.port("vethB", Some("veth"), "cni0");
    node.port("vethC", Some("veth"), "cni0");
    node.port("down", Some("veth"), "cni0");
    node.links.last_mut().unwrap().flags = 0;
    node.route("10.77.0.0/24", 254, &[("cni0", false)]);
    node.route("10.77.0.9/32", 254, &[("vethA", false)]);
    node.route("fd00:10:77::/64", 254, &[("cni0", false)]);
    node.route("10.77.0.8/32", 254, &[("eth0", true)]);
    for (endpoints, expected) in [
        (&["10.77.0.9"][..], &["vethA: vethA"][..]),
        (&["10.77.0.5"], &["cni0: vethB vethC"]),
        (&["fd00:10:77::5"], &["cni0: vethB vethC"]),
        (
            &["10.77.0.5", "10.77.0.9"],
            &["vethA: vethA", "cni0: vethB vethC"],
        ),
        // Behind another host, and by no route, or that of all the rest.
        (&["10.77.0.8", "10.250.0.1", "fe80::7", "2001:db8::7"], &[]),
        (&[], &[]),
    ] {
        assert_eq!(ways(&node, endpoints), expected, "{endpoints:?}");
    }
}

#[test]
fn devices_of_pods_that_are_somebody_elses_or_served_already_are_left() {
    type Spoil = fn(&mut Node);
    const SPOILS: [Spoil; 5] = [
        |node| node.programs.push(("vethB", "cil_from_container")),
        |node| node.programs.push(("vethB", "cali_tc_preamble")),
        |node| node.links.last_mut().unwrap().hardware = ARPHRD_NONE,
        |node| node.links.last_mut().unwrap().name = "lxc1".to_owned(),
        // A route with a gateway goes out of it: clients outside may come in by it.
        |node| node.route("10.9.0.0/16", 254, &[("cni0", true)]),
    ];
    for (number, spoil) in SPOILS.into_iter().enumerate() {
        let mut node = usual();
        node.link("cni0", Some("bridge"));
        node.port("vethB", Some("veth"), "cni0");
        node.route("10.77.0.0/24", 254, &[("cni0", false)]);
        assert_eq!(ways(&node, &["10.77.0.5"]), ["cni0: vethB"]);
        spoil(&mut node);
        assert_eq!(ways(&node, &["10.77.0.5"]), [] as [&str; 0], "{number}");
    }
}

#[test]
fn what_is_not_served_otherwise_is_served_for_pods() {
    let mut node = usual();
    node.link("vethB", Some("veth"));
    let mut devices = choose(node.facts(), |_| Vec::new());
    let on = devices.iter().map(|device| device.index).collect();
    let before: Vec<_> = devices.iter().map(|one| one.served().is_some()).collect();
    pods::add(&mut devices, &on);
    for (device, was_served) in devices.iter().zip(before) {
        assert_eq!(device.choice == Choice::Pods, !was_served, "{device:?}");
        assert_eq!(device.served().is_some(), was_served);
    }
}
