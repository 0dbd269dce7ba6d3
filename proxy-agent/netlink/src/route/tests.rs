//! What the kernel lists, read: routes as bytes, and, as root, devices and filters of a real kernel.

use std::{
    io::Write as _,
    net::IpAddr,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sched::{CloneFlags, unshare},
    unistd::geteuid,
};

use super::{
    BpfFilter, Changes, Direction, Filter, FilterPlace, Hop, RouteSocket, filters,
    numbers::{
        IFA_F_DEPRECATED, IFA_F_SECONDARY, IFA_F_TENTATIVE, RT_SCOPE_LINK, RT_SCOPE_UNIVERSE,
        RTA_DST, RTA_MULTIPATH, RTA_TABLE, TCA_BPF_FLAGS, TCA_BPF_ID, TCA_BPF_NAME, TCA_CHAIN,
        TCA_KIND, TCA_OPTIONS,
    },
    routes,
};
use crate::attributes::{Attributes, Read};

/// Runs `test` in a network namespace of its own, if this process may make one.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !geteuid().is_root() {
        eprintln!("SKIPPED: a network namespace takes root");
        return;
    }
    let ran = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        test();
    });
    ran.join().expect("what is asserted");
}

fn ip(line: &str) {
    let status = Command::new("ip").args(line.split(' ')).status();
    assert!(status.expect("ip is there").success(), "ip {line}");
}

#[test]
fn each_way_out_of_a_route_is_read_and_a_damaged_one_ends_them() {
    let mut hops = Vec::new();
    for (device, gateway) in [(3_u32, true), (4, false)] {
        let mut hop = [&[0; 4][..], &device.to_ne_bytes()].concat();
        if gateway {
            Attributes::new(&mut hop).bytes(super::numbers::RTA_GATEWAY, &[192, 0, 2, 1]);
        }
        let length = u16::try_from(hop.len()).unwrap();
        hop[..2].copy_from_slice(&length.to_ne_bytes());
        hops.extend(hop);
    }
    let read = |hops: &[u8]| {
        let mut bytes = Vec::new();
        let mut attributes = Attributes::new(&mut bytes);
        attributes.native(RTA_TABLE, 300);
        attributes.bytes(RTA_DST, &[198, 51, 100, 0]);
        attributes.bytes(RTA_MULTIPATH, hops);
        let head = [2, 24, 0, 0, 252, 4, 0, 1, 0, 0, 0, 0];
        routes::route(2, &head, Read(&bytes)).unwrap().0
    };
    let route = read(&hops);
    assert_eq!((route.table, route.prefix), (300, 24));
    assert_eq!(route.destination, IpAddr::from([198, 51, 100, 0]));
    let [first, second] = [(3, true), (4, false)].map(|(device, has_gateway)| Hop {
        device,
        has_gateway,
    });
    assert_eq!(route.hops, [first, second]);
    for cut in 0..hops.len() {
        assert!(read(&hops[..cut]).hops.len() <= 1, "cut at {cut}");
    }
}

#[test]
fn devices_addresses_and_routes_are_as_they_were_made() {
    in_namespace(|| {
        for line in [
            "link add br0 type bridge",
            "link add br1 type bridge nf_call_ip6tables 1",
            "link add va type veth peer name vb",
            "link set vb master br0",
            "link add vx0 type vxlan id 7 dstport 4789",
            "link set va up",
            "link set vb up",
            "link set br0 up",
            "addr add 192.0.2.7/24 dev va",
            "-6 addr add 2001:db8::7/64 dev va nodad",
            "route add default via 192.0.2.1 table 77",
            "route add 198.51.100.0/24 nexthop via 192.0.2.1 dev va nexthop dev br0",
            "-6 route add default via 2001:db8::1",
            "nexthop add id 5 via 192.0.2.9 dev va",
            "nexthop add id 6 dev br0",
            "nexthop add id 9 group 5",
            "route add 203.0.113.0/24 nhid 9",
            "route add unreachable 10.0.0.0/8",
        ] {
            ip(line);
        }
        let mut socket = RouteSocket::default();
        let links = socket.links().unwrap();
        let named = |name: &str| links.iter().find(|link| link.name == name).unwrap();
        let (a, b, bridge) = (named("va"), named("vb"), named("br0"));
        assert!(named("lo").is_loopback() && !named("lo").is_up());
        assert_eq!(b.master, Some(bridge.index));
        assert_eq!(bridge.kind.as_deref(), Some("bridge"));
        assert_eq!(bridge.calls_netfilter, [false; 2]);
        assert_eq!(named("br1").calls_netfilter, [false, true]);
        assert_eq!((a.lower, a.lower_is_elsewhere), (Some(b.index), false));
        assert!(a.is_up() && a.hardware == super::numbers::ARPHRD_ETHER && a.mtu == 1500);
        assert_eq!(named("vx0").kind.as_deref(), Some("vxlan"));
        let addresses = socket.addresses().unwrap();
        for (address, prefix) in [("192.0.2.7", 24), ("2001:db8::7", 64)] {
            let address: IpAddr = address.parse().unwrap();
            let there = addresses.iter().find(|there| there.address == address);
            let there = there.unwrap();
            assert_eq!((there.device, there.prefix), (a.index, prefix));
        }
        for expanded in ["1", "0"] {
            compat(expanded);
            routes_are_right(&mut socket, a.index, bridge.index);
        }
    });
}

/// Whether the kernel tells what nexthop objects mean with each route.
fn compat(expanded: &str) {
    let set = Command::new("sysctl")
        .arg("-qw")
        .arg(format!("net.ipv4.nexthop_compat_mode={expanded}"))
        .status();
    assert!(set.expect("sysctl is there").success());
}

fn routes_are_right(socket: &mut RouteSocket, a: u32, bridge: u32) {
    let routes = socket.routes().unwrap();
    let hop = |device, has_gateway| Hop {
        device,
        has_gateway,
    };
    let to = |destination: &str| {
        let destination: IpAddr = destination.parse().unwrap();
        let one = routes.iter().find(|one| one.destination == destination);
        one.unwrap_or_else(|| panic!("{destination} in {routes:?}"))
    };
    let default = to("0.0.0.0");
    assert_eq!((default.table, default.prefix), (77, 0));
    assert_eq!(default.hops, [hop(a, true)]);
    assert_eq!(to("198.51.100.0").hops, [hop(a, true), hop(bridge, false)]);
    assert_eq!(to("203.0.113.0").hops, [hop(a, true)], "by an object");
    assert_eq!(to("::").hops, [hop(a, true)]);
    assert_eq!(to("192.0.2.0").hops, [hop(a, false)]);
    let absent: IpAddr = "10.0.0.0".parse().unwrap();
    assert!(routes.iter().all(|route| route.destination != absent));
}

/// What a test looks at of the flags of an address.
const SAID: u32 = IFA_F_SECONDARY | IFA_F_TENTATIVE | IFA_F_DEPRECATED;

#[test]
fn addresses_come_in_the_kernels_order_with_what_is_said_of_them() {
    in_namespace(|| {
        for line in [
            "link add va type veth peer name vb",
            "link set va up",
            "link set vb up",
            "addr add 192.0.2.1/24 dev va",
            "addr add 192.0.2.2/24 dev va",
            "addr add 198.51.100.1/25 dev va scope link",
            "addr add 203.0.113.1 peer 203.0.113.9/32 dev va",
            "-6 addr add 2001:db8::1/64 dev va nodad",
            "-6 addr add 2001:db8::2/80 dev va nodad preferred_lft 0",
            // Nobody answers for a second.
            "-6 addr add 2001:db8::3/64 dev va",
            "-6 addr add 2001:db8::4 peer 2001:db8::9/128 dev va nodad",
        ] {
            ip(line);
        }
        let all = RouteSocket::default().addresses().unwrap();
        let ours = all.iter().filter(|one| match one.address {
            IpAddr::V4(_) => true,
            IpAddr::V6(address) => !address.is_unicast_link_local(),
        });
        let said: Vec<_> = ours
            .map(|one| {
                let network = format!("{}/{}", one.address, one.prefix);
                (network, one.scope, one.flags & SAID)
            })
            .collect();
        let expected = [
            // The narrowest scope comes first, and secondary addresses after all others.
            ("198.51.100.1/25", RT_SCOPE_LINK, 0),
            ("192.0.2.1/24", RT_SCOPE_UNIVERSE, 0),
            ("203.0.113.1/32", RT_SCOPE_UNIVERSE, 0),
            ("192.0.2.2/24", RT_SCOPE_UNIVERSE, IFA_F_SECONDARY),
            // Of IPv6 the last one comes first.
            ("2001:db8::4/128", RT_SCOPE_UNIVERSE, 0),
            ("2001:db8::3/64", RT_SCOPE_UNIVERSE, IFA_F_TENTATIVE),
            ("2001:db8::2/80", RT_SCOPE_UNIVERSE, IFA_F_DEPRECATED),
            ("2001:db8::1/64", RT_SCOPE_UNIVERSE, 0),
        ];
        assert_eq!(
            said,
            expected.map(|(one, scope, flags)| (one.to_owned(), scope, flags))
        );
    });
}

#[test]
fn a_change_ends_a_wait_and_so_does_another_thread() {
    in_namespace(|| {
        let mut changes = Changes::subscribe().unwrap();
        assert!(!changes.wait(Duration::from_millis(20)).unwrap());
        for line in [
            "link add va type veth peer name vb",
            "link set va up",
            "addr add 192.0.2.1/24 dev va",
            "route add 198.51.100.0/24 via 192.0.2.9",
            "rule add pref 9 lookup 9",
        ] {
            ip(line);
            assert!(changes.wait(Duration::from_secs(5)).unwrap(), "{line}");
            // An address comes with several notifications, some of them later.
            while changes.wait(Duration::from_millis(100)).unwrap() {}
        }
        let waker = changes.waker();
        let other = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            waker.wake();
        });
        let begun = Instant::now();
        assert!(!changes.wait(Duration::from_mins(1)).unwrap());
        assert!(begun.elapsed() < Duration::from_secs(10));
        other.join().unwrap();
    });
}

#[test]
fn more_changes_than_there_is_room_for_are_a_change() {
    in_namespace(|| {
        ip("link set lo up");
        let mut changes = Changes::subscribe().unwrap();
        let routes =
            (0..4000).map(|n| format!("route add 10.0.{}.{}/32 dev lo\n", n / 200, n % 200));
        let mut child = Command::new("ip");
        let mut child = child
            .args(["-b", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input
            .write_all(routes.collect::<String>().as_bytes())
            .unwrap();
        drop(input);
        assert!(child.wait().unwrap().success());
        assert!(changes.wait(Duration::from_secs(5)).unwrap());
        while changes.wait(Duration::from_millis(100)).unwrap() {}
        ip("link set lo down");
        assert!(changes.wait(Duration::from_secs(5)).unwrap());
    });
}

#[test]
fn a_filter_is_read_as_it_was_written_and_a_priority_as_a_whole_is_none() {
    let read = |handle: u32, kind: &str| {
        let mut bytes = Vec::new();
        let mut attributes = Attributes::new(&mut bytes);
        attributes.text(TCA_KIND, kind);
        attributes.native(TCA_CHAIN, 4);
        attributes.nested(TCA_OPTIONS, |options| {
            options.text(TCA_BPF_NAME, "cil_from_netdev");
            options.native(TCA_BPF_ID, 42);
            options.native(TCA_BPF_FLAGS, 1);
        });
        let info = 7 << 16 | u32::from(0x800_u16.to_be());
        let head = super::qdiscs::head(3, handle, 0, info);
        filters::filter(3, Direction::Egress, &head, Read(&bytes))
    };
    let expected = Filter {
        place: FilterPlace {
            device: 3,
            direction: Direction::Egress,
            priority: 7,
            handle: 1,
        },
        kind: "bpf".to_owned(),
        protocol: 0x800,
        chain: 4,
        bpf: Some(BpfFilter {
            name: Some("cil_from_netdev".to_owned()),
            program: 42,
            is_direct: true,
        }),
    };
    assert_eq!(read(1, "bpf"), Some(expected));
    assert_eq!(read(1, "flower").unwrap().bpf, None);
    assert_eq!(read(0, "bpf"), None);
}

#[test]
fn what_hangs_on_a_device_is_listed_and_the_qdisc_is_made_and_removed() {
    in_namespace(|| {
        ip("link add va type veth peer name vb");
        let mut socket = RouteSocket::default();
        let index = socket.links().unwrap();
        let index = index.iter().find(|link| link.name == "va").unwrap().index;
        assert_eq!(socket.qdiscs().unwrap(), []);
        assert_eq!(socket.filters(index, Direction::Ingress).unwrap(), []);
        socket.add_clsact(index).unwrap();
        let again = socket.add_clsact(index).unwrap_err();
        assert_eq!(again.raw_os_error(), Some(libc::EEXIST));
        let qdiscs = socket.qdiscs().unwrap();
        assert!(qdiscs.len() == 1 && qdiscs[0].device == index && qdiscs[0].is_clsact());
        let none = FilterPlace {
            device: index,
            direction: Direction::Ingress,
            priority: 1,
            handle: 1,
        };
        assert!(socket.delete_filter(none).is_err());
        socket.delete_clsact(index).unwrap();
        assert_eq!(socket.qdiscs().unwrap(), []);
        // After errors that the kernel answered, the socket is of use.
        assert!(socket.links().is_ok());
    });
}
