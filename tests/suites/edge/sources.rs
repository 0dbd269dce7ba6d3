//! From where endpoints on other nodes would be reached in the place of clients: SOURCES and PORTS as an
//! agent writes them, and as they follow the addresses and sysctls of the host.

use std::{
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

use proxy_common::{
    address,
    names::RESERVED_WORDS,
    packet::Version,
    track::{Settings, SourceKey, SourceValue},
};
use proxy_tests::{Agent, Shop, agent::LIMIT, bpf::Pinned, shop::service};

use super::rig::{FILE, Site, cluster, on_node, options, served};

/// A map of connections.
fn map(agent: &Agent<'_>, name: &str) -> Pinned {
    let directory = agent.pins().path().join("connections-v1");
    Pinned::open(&directory.join(name)).unwrap()
}

/// The addresses of a device and family in SOURCES, in their order.
fn sources(agent: &Agent<'_>, device: u32, version: Version) -> Vec<String> {
    let sources = map(agent, "SOURCES");
    let mut keys = sources.keys(size_of::<SourceKey>()).unwrap();
    keys.sort_by_key(|key| bytemuck::pod_read_unaligned::<SourceKey>(key));
    let mut told = Vec::new();
    for bytes in keys {
        let key: SourceKey = bytemuck::pod_read_unaligned(&bytes);
        if (key.device, key.family) != (device, SourceKey::new(device, version, 0).family) {
            continue;
        }
        // It may be removed meanwhile.
        let Ok(value) = sources.read(&bytes, size_of::<SourceValue>()) else {
            continue;
        };
        let value: SourceValue = bytemuck::pod_read_unaligned(&value);
        assert!(value.holds_for(&key), "{key:?}: {value:?}");
        assert_eq!(usize::from(key.index), told.len());
        let bits = u128::from_be_bytes(value.mask).leading_ones();
        told.push(format!("{}/{bits}", address::to_ip(value.address)));
    }
    told
}

/// Waits until `now` is as expected.
fn until<T: PartialEq + std::fmt::Debug>(expected: &T, mut now: impl FnMut() -> T) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let found = now();
        if found == *expected {
            return;
        }
        assert!(Instant::now() < deadline, "{found:?} is not {expected:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn ip(shop: &Shop, line: &str) {
    on_node(shop, "ip", &line.split(' ').collect::<Vec<_>>());
}

/// The number of a device of the node.
fn index(shop: &Shop, device: &str) -> u32 {
    let told = on_node(shop, "ip", &["-o", "link", "show", device]);
    let (index, _) = told.split_once(':').unwrap();
    index.parse().unwrap()
}

#[test]
fn sources_are_the_addresses_of_the_device_and_follow_them() {
    let Some(site) = Site::build() else {
        return;
    };
    let (shop, neighbour) = (&site.shop, &site.neighbour);
    let agent = site.serve(&[1]);
    let device = index(shop, "ext1");
    let [v4, v6] = neighbour.node;
    let prefix = |ip: IpAddr| if ip.is_ipv4() { 96 + 30 } else { 64 };
    let own = |ip: IpAddr| format!("{ip}/{}", prefix(ip));
    let now = |agent: &Agent<'_>| {
        [Version::V4, Version::V6].map(|version| sources(agent, device, version))
    };
    let before = [vec![own(v4)], vec![own(v6)]];
    // Before any packet.
    assert_eq!(now(&agent), before);

    for line in [
        "addr add 198.51.100.7/25 dev ext1",
        "addr add 198.51.100.8/25 dev ext1",
        "-6 addr add 2001:db8:7::1/80 dev ext1 nodad",
    ] {
        ip(shop, line);
    }
    let more = [
        vec![own(v4), "198.51.100.7/121".to_owned()],
        vec!["2001:db8:7::1/80".to_owned(), own(v6)],
    ];
    until(&more, || now(&agent));

    // What is a Service's may be another node's tomorrow.
    let held = service(2, &[1]).replace("  ports:\n", "  externalIPs: [198.51.100.7]\n  ports:\n");
    let objects = [&*cluster(neighbour, &[1]), &held].concat();
    agent.apply(FILE, &objects).unwrap();
    let without = [vec![own(v4)], more[1].clone()];
    until(&without, || now(&agent));
    agent.apply(FILE, &cluster(neighbour, &[1])).unwrap();
    until(&more, || now(&agent));

    ip(shop, "addr flush dev ext1 to 198.51.100.0/25");
    ip(shop, "-6 addr del 2001:db8:7::1/80 dev ext1");
    until(&before, || now(&agent));
    ip(shop, "link del ext1");
    until(&[vec![], vec![]], || now(&agent));
}

#[test]
fn ports_that_are_given_and_ports_that_the_host_reserves_are_known() {
    let Some(site) = Site::build() else {
        return;
    };
    let reserve = |ports: &str| {
        let setting = format!("net.ipv4.ip_local_reserved_ports={ports}");
        on_node(&site.shop, "sysctl", &["-qw", &setting]);
    };
    let reserved = |agent: &Agent<'_>| -> Vec<u32> {
        let ports = map(agent, "PORTS");
        let bits = (0..RESERVED_WORDS).flat_map(|index| {
            let word = ports.read(&index.to_ne_bytes(), 4).unwrap();
            let word: u32 = bytemuck::pod_read_unaligned(&word);
            let bits = (0..32).filter(move |bit| word & 1 << bit != 0);
            bits.map(move |bit| index * 32 + bit)
        });
        bits.collect()
    };
    reserve("40000,65534-65535");
    let objects = cluster(&site.neighbour, &[1]);
    let given = options(&["--source-ports=39990-40009"]);
    let mut agent = Agent::start(&site.shop.world, given, &[(FILE, &*objects)]).unwrap();
    served(&mut agent, "ext1");
    let settings = map(&agent, "SETTINGS");
    let settings = settings.read(&[0; 4], size_of::<Settings>()).unwrap();
    let settings: Settings = bytemuck::pod_read_unaligned(&settings);
    assert_eq!((settings.first_port, settings.last_port), (39990, 40009));
    assert_eq!(reserved(&agent), [40000, 65534, 65535]);
    reserve("40001");
    until(&vec![40001], || reserved(&agent));
    reserve("");
    until(&vec![], || reserved(&agent));
}
