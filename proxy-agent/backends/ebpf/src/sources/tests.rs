//! Hosts as values, and what SOURCES holds for them.

use proxy_netlink::route::numbers::{IFA_F_DADFAILED, RT_SCOPE_LINK};

use super::*;

/// `RT_SCOPE_SITE`.
const SITE: u8 = 200;

/// A host.
#[derive(Default)]
struct Host {
    links: Vec<Link>,
    addresses: Vec<Address>,
    node: Vec<IpAddr>,
    virtual_addresses: OrdSet<IpAddr>,
    bridges_call: [bool; 2],
}

impl Host {
    fn link(&mut self, index: u32, kind: Option<&str>, master: Option<u32>) {
        self.links.push(Link {
            index,
            name: format!("dev{index}"),
            kind: kind.map(str::to_owned),
            master,
            ..Link::default()
        });
    }

    /// An address such as 192.0.2.1/24.
    fn add(&mut self, device: u32, address: &str, flags: u32, scope: u8) {
        let (address, prefix) = address.split_once('/').unwrap();
        self.addresses.push(Address {
            device,
            address: address.parse().unwrap(),
            prefix: prefix.parse().unwrap(),
            scope,
            flags,
        });
    }

    fn entries(&self, served: &[u32]) -> BTreeMap<SourceKey, SourceValue> {
        let facts = Facts {
            links: &self.links,
            addresses: &self.addresses,
            node: &self.node,
            virtual_addresses: &self.virtual_addresses,
            bridges_call: self.bridges_call,
        };
        choose(facts, served.iter().copied(), [])
    }

    /// The addresses of a device and family, in their order.
    fn sources(&self, device: u32, version: Version) -> Vec<String> {
        let entries = self.entries(&[device]);
        let family = SourceKey::new(device, version, 0).family;
        let of_family = entries.iter().filter(|(key, _)| key.family == family);
        let told = of_family.enumerate().map(|(at, (key, value))| {
            assert_eq!((key.device, usize::from(key.index)), (device, at));
            assert!(value.holds_for(key));
            address::to_ip(value.address).to_string()
        });
        told.collect()
    }

    fn v4(&self, device: u32) -> Vec<String> {
        self.sources(device, Version::V4)
    }

    fn v6(&self, device: u32) -> Vec<String> {
        self.sources(device, Version::V6)
    }
}

fn ips<T: FromIterator<IpAddr>>(all: &[&str]) -> T {
    all.iter().map(|one| one.parse().unwrap()).collect()
}

#[test]
fn of_ipv4_primary_addresses_with_global_scope_count_in_the_kernels_order() {
    let mut host = Host::default();
    host.add(1, "127.0.0.1/8", 0, 254);
    host.add(2, "169.254.0.9/16", 0, RT_SCOPE_LINK);
    host.add(2, "198.51.100.9/24", 0, 0);
    host.add(2, "192.0.2.1/24", 0, 0);
    host.add(2, "203.0.113.1/24", 0, SITE);
    host.add(3, "203.0.113.7/24", 0, 0);
    host.add(2, "192.0.2.2/24", IFA_F_SECONDARY, 0);
    assert_eq!(host.v4(2), ["198.51.100.9", "192.0.2.1"]);
    assert_eq!(host.v4(3), ["203.0.113.7"]);
    assert_eq!(host.v4(1), [] as [&str; 0]);
    assert_eq!(host.v6(2), [] as [&str; 0]);
    let entries = host.entries(&[3, 2]);
    let keys: Vec<_> = entries.keys().map(|key| (key.device, key.index)).collect();
    assert_eq!(keys, [(2, 0), (2, 1), (3, 0)]);
    assert_eq!(host.entries(&[]), BTreeMap::new());
}

#[test]
fn of_ipv6_temporary_and_deprecated_addresses_come_last() {
    let mut host = Host::default();
    host.add(2, "2001:db8::1/64", IFA_F_TEMPORARY, 0);
    host.add(2, "2001:db8::2/64", 0, 0);
    host.add(2, "2001:db8::3/64", IFA_F_DEPRECATED, 0);
    host.add(2, "2001:db8::4/64", IFA_F_TENTATIVE, 0);
    host.add(2, "2001:db8::5/64", IFA_F_DADFAILED | IFA_F_TENTATIVE, 0);
    host.add(2, "2001:db8::5a/64", IFA_F_DADFAILED, 0);
    host.add(2, "fd00::6/64", 0, 0);
    host.add(2, "fe80::7/64", 0, RT_SCOPE_LINK);
    host.add(2, "fec0::8/64", 0, SITE);
    host.add(2, "192.0.2.1/24", 0, 0);
    assert_eq!(host.v6(2), ["2001:db8::2", "fd00::6", "2001:db8::1"]);
    assert_eq!(host.v4(2), ["192.0.2.1"]);
    host.addresses
        .retain(|one| one.flags & IFA_F_DEPRECATED != 0);
    assert_eq!(host.v6(2), ["2001:db8::3"]);
}

#[test]
fn a_device_without_an_address_has_the_one_by_which_the_cluster_knows_the_node() {
    let mut host = Host::default();
    for (index, kind, master) in [
        (1, None, None),
        (2, None, None),
        (3, None, None),
        (4, Some("vrf"), None),
        (5, None, Some(4)),
        (6, Some("bridge"), None),
        (7, None, Some(6)),
    ] {
        host.link(index, kind, master);
    }
    host.add(3, "198.51.100.1/24", 0, 0);
    host.add(3, "2001:db8:1::1/64", 0, 0);
    host.add(1, "192.0.2.1/32", 0, 0);
    host.add(1, "2001:db8::1/128", 0, 0);
    // Nobody knows the node yet.
    assert_eq!((host.v4(2), host.v6(2)), (vec![], vec![]));
    host.node = ips(&["192.0.2.9", "192.0.2.1", "2001:db8::1"]);
    assert_eq!(host.v4(2), ["192.0.2.1"]);
    assert_eq!(host.v6(2), ["2001:db8::1"]);
    // A port of a bridge is no world of its own; a VRF is, to itself as well.
    assert_eq!(host.v4(7), ["192.0.2.1"]);
    assert_eq!(host.v4(5), [] as [&str; 0]);
    assert_eq!(host.v4(4), [] as [&str; 0]);
    host.add(4, "192.0.2.9/32", 0, 0);
    assert_eq!(host.v4(5), ["192.0.2.9"]);
    assert_eq!(host.v4(2), ["192.0.2.1"]);
    // Load balancers of small clusters give Services the addresses of nodes.
    host.virtual_addresses = ips(&["192.0.2.1"]);
    assert_eq!(host.v4(2), ["192.0.2.1"]);
    host.addresses.retain(|one| one.prefix != 128);
    assert_eq!(host.v6(2), [] as [&str; 0]);
}

#[test]
fn an_address_that_clients_dial_is_none() {
    let mut host = Host::default();
    host.link(2, None, None);
    host.add(2, "192.0.2.100/24", 0, 0);
    host.add(2, "198.51.100.1/24", 0, 0);
    host.add(2, "192.0.2.1/24", IFA_F_SECONDARY, 0);
    host.add(2, "2001:db8::100/64", 0, 0);
    host.virtual_addresses = ips(&["192.0.2.100", "2001:db8::100", "203.0.113.1"]);
    assert_eq!(host.v4(2), ["198.51.100.1"]);
    assert_eq!(host.v6(2), [] as [&str; 0]);
    // What is left is no primary address, but the node's.
    host.virtual_addresses
        .insert("198.51.100.1".parse().unwrap());
    host.node = ips(&["192.0.2.1"]);
    assert_eq!(host.v4(2), ["192.0.2.1"]);
}

#[test]
fn of_too_many_the_nodes_own_are_kept_and_the_order_stays() {
    let mut host = Host::default();
    for n in 1..=7 {
        host.add(2, &format!("192.0.{n}.1/24"), 0, 0);
    }
    let told = |host: &Host| host.v4(2).join(" ");
    assert_eq!(told(&host), "192.0.1.1 192.0.2.1 192.0.3.1 192.0.4.1");
    host.node = ips(&["192.0.7.1", "192.0.2.1", "192.0.5.1"]);
    assert_eq!(told(&host), "192.0.1.1 192.0.2.1 192.0.5.1 192.0.7.1");
    host.node = ips(&[
        "192.0.7.1",
        "192.0.6.1",
        "192.0.5.1",
        "192.0.4.1",
        "192.0.3.1",
    ]);
    assert_eq!(told(&host), "192.0.3.1 192.0.4.1 192.0.5.1 192.0.6.1");
}

#[test]
fn neighbours_are_those_of_the_network() {
    let words = |ip: &str| address::to_words(&address::from_ip(ip.parse().unwrap()));
    for (own, near, far) in [
        ("192.0.2.1/24", "192.0.2.254", "192.0.3.1"),
        ("192.0.2.1/32", "192.0.2.1", "192.0.2.0"),
        ("192.0.2.1/0", "203.0.113.1", "2001:db8::1"),
        ("2001:db8::1/64", "2001:db8::ffff:0:0:1", "2001:db8:0:1::1"),
        ("2001:db8::1/127", "2001:db8::", "2001:db8::2"),
        ("2001:db8::1/128", "2001:db8::1", "2001:db8::"),
    ] {
        let mut host = Host::default();
        host.add(2, own, 0, 0);
        let entries = host.entries(&[2]);
        let (_, value) = entries.first_key_value().unwrap();
        assert!(value.is_near(&words(near)), "{own} {near}");
        assert!(!value.is_near(&words(far)), "{own} {far}");
    }
    let mut host = Host::default();
    host.add(2, "2001:db8::1/0", 0, 0);
    let entries = host.entries(&[2]);
    let (_, value) = entries.first_key_value().unwrap();
    assert!(value.is_near(&words("fd00::1")));
}

#[test]
fn bridges_of_whose_packets_netfilter_is_told_have_none() {
    let told = |all, [own, others]: [[bool; 2]; 2]| {
        let mut host = Host {
            bridges_call: all,
            ..Host::default()
        };
        host.link(1, Some("bridge"), None);
        host.link(2, Some("vlan"), None);
        host.link(3, Some("veth"), None);
        host.link(4, Some("bridge"), None);
        // A VLAN of the bridge, and one end of a pair.
        host.links[1].lower = Some(1);
        host.links[2].lower = Some(3);
        host.links[0].calls_netfilter = own;
        host.links[3].calls_netfilter = others;
        for device in 1..=4 {
            host.add(
                device,
                &format!("192.0.2.{device}/24"),
                0,
                RT_SCOPE_UNIVERSE,
            );
            host.add(
                device,
                &format!("2001:db8::{device}/64"),
                0,
                RT_SCOPE_UNIVERSE,
            );
        }
        [Version::V4, Version::V6].map(|version| {
            let has_one = |device: &u32| !host.sources(*device, version).is_empty();
            (1..=4).filter(has_one).collect::<Vec<u32>>()
        })
    };
    let no = [false; 2];
    let all = || vec![1, 2, 3, 4];
    assert_eq!(told(no, [no, no]), [all(), all()]);
    assert_eq!(told([true, false], [no, no]), [vec![3], all()]);
    assert_eq!(told(no, [[false, true], no]), [all(), vec![3, 4]]);
    // The other end may be another device of the same number.
    let mut host = Host {
        bridges_call: [true; 2],
        ..Host::default()
    };
    host.link(1, Some("bridge"), None);
    host.link(2, Some("veth"), None);
    host.links[1].lower = Some(1);
    host.links[1].lower_is_elsewhere = true;
    host.add(2, "192.0.2.2/24", 0, RT_SCOPE_UNIVERSE);
    assert_eq!(host.sources(2, Version::V4), ["192.0.2.2"]);
}

#[test]
fn what_is_no_devices_alone_is_the_hosts_own() {
    let mut host = Host::default();
    host.add(1, "192.0.2.1/24", IFA_F_SECONDARY, RT_SCOPE_UNIVERSE);
    host.add(2, "192.0.2.1/24", 0, RT_SCOPE_UNIVERSE);
    host.add(2, "2001:db8::1/64", IFA_F_DEPRECATED, RT_SCOPE_UNIVERSE);
    host.add(2, "fe80::1/64", 0, RT_SCOPE_LINK);
    let own = own(&host.addresses);
    let own = own.iter().map(ToString::to_string);
    assert_eq!(own.collect::<Vec<_>>(), ["192.0.2.1", "2001:db8::1"]);
}
