//! The harness of packets: whatever rules make of a packet is seen as just that, for every protocol,
//! family and way in. The rules are written by hand here. Needs root and nft.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    collections::BTreeSet,
    io::Write as _,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd as _,
    process::{Command, Stdio},
};

use proxy_model::Protocol;
use proxy_tests::{
    World,
    journey::{Datagram, Entry, Kind, Rig, Shot, Sighting},
    process,
    requires::{self, Need, PACKETS},
};

const SUITE: &str = "journey";

const RULES: &str = "
table inet hand {
    chain translate {
        ip daddr 10.96.0.1 meta l4proto { tcp, udp, sctp } dnat ip to 10.244.0.5:8080
        ip6 daddr fd00:10:96::1 meta l4proto { tcp, udp, sctp } dnat ip6 to [fd00:10:244::5]:8080
        ip daddr 10.96.0.2 meta mark set 0x4000 meta l4proto { tcp, udp, sctp } dnat ip to 10.244.0.5:8080
        ip6 daddr fd00:10:96::2 meta mark set 0x4000 meta l4proto { tcp, udp, sctp } dnat ip6 to [fd00:10:244::5]:8080
        ip daddr 10.96.0.6 meta l4proto { tcp, udp, sctp } dnat ip to 192.0.2.11:8080
        ip6 daddr fd00:10:96::6 meta l4proto { tcp, udp, sctp } dnat ip6 to [2001:db8::11]:8080
    }
    chain refuse {
        ip daddr 10.96.0.3 reject
        ip6 daddr fd00:10:96::3 reject
        ip daddr 10.96.0.4 drop
        ip6 daddr fd00:10:96::4 drop
        ip daddr 10.96.0.5 meta l4proto tcp reject with tcp reset
        ip6 daddr fd00:10:96::5 meta l4proto tcp reject with tcp reset
    }
    chain prerouting { type nat hook prerouting priority dstnat; jump translate; }
    chain output { type nat hook output priority -100; jump translate; }
    chain postrouting { type nat hook postrouting priority srcnat; meta mark 0x4000 masquerade fully-random; }
    chain forward { type filter hook forward priority filter; jump refuse; }
    chain local-output { type filter hook output priority filter; jump refuse; }
}
";

const NODE: [&str; 2] = ["192.0.2.11", "2001:db8::11"];
const ABROAD: [&str; 2] = ["203.0.113.9", "2001:db8:9::9"];
/// What masquerading gives.
const UPLINK: [&str; 2] = ["10.244.255.254", "fd00:10:244:ffff::1"];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn load(world: &World, rules: &str) {
    let mut command = Command::new("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped());
    process::enter(&mut command, Some(world.node().netns().as_fd()), None).unwrap();
    let mut child = process::fork(command).unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(rules.as_bytes()).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

/// What is seen, without what differs from packet to packet.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Left(IpAddr, SocketAddr),
    Delivered(IpAddr, SocketAddr),
    Refused,
    Nothing,
}

fn fate(sent: &Datagram, sighting: Sighting) -> Fate {
    match sighting {
        Sighting::Left(one) => {
            assert_eq!((one.protocol, one.token), (sent.protocol, sent.token));
            Fate::Left(one.source.ip(), one.destination)
        }
        Sighting::Delivered(one) => Fate::Delivered(one.source.ip(), one.destination),
        Sighting::Refused | Sighting::TooBig(_) => Fate::Refused,
        Sighting::Nothing => Fate::Nothing,
    }
}

/// The last number of an address of either family, and the port.
fn at(family: usize, last: &str, port: u16) -> SocketAddr {
    let address = match family {
        0 => format!("10.96.0.{last}"),
        _ => format!("fd00:10:96::{last}"),
    };
    SocketAddr::new(ip(&address), port)
}

#[test]
fn every_fate_is_seen_as_it_is() {
    let needs: Vec<_> = PACKETS.iter().copied().chain([Need::Tool("nft")]).collect();
    if !requires::met(SUITE, &needs) {
        return;
    }
    for kind in Kind::ALL {
        every_fate_is_seen_on(kind);
    }
}

fn every_fate_is_seen_on(kind: Kind) {
    let world = World::bare(&NODE.map(ip)).unwrap();
    let interfaces: BTreeSet<_> = ["veth1".into()].into();
    let mut rig = Rig::new(&world, &interfaces, kind).unwrap();
    let entries = [
        Entry::Node,
        Entry::Anywhere,
        Entry::Interface("veth1".into()),
    ];
    // First without rules, which is what it is to be untouched.
    for with_rules in [false, true] {
        if with_rules {
            load(&world, RULES);
        }
        for (family, entry) in [0, 1]
            .into_iter()
            .flat_map(|f| entries.clone().map(|e| (f, e)))
        {
            let is_node = entry == Entry::Node;
            let source = ip(if is_node {
                NODE[family]
            } else {
                ABROAD[family]
            });
            let endpoint = ["10.244.0.5:8080", "[fd00:10:244::5]:8080"][family]
                .parse()
                .unwrap();
            let own = SocketAddr::new(ip(NODE[family]), 8080);
            let uplink = ip(UPLINK[family]);
            for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
                let reset = if protocol == Protocol::Tcp {
                    Fate::Refused
                } else {
                    Fate::Left(source, at(family, "5", 80))
                };
                let cases = [
                    (at(family, "1", 80), Fate::Left(source, endpoint)),
                    (at(family, "2", 80), Fate::Left(uplink, endpoint)),
                    (at(family, "3", 80), Fate::Refused),
                    (at(family, "4", 80), Fate::Nothing),
                    (at(family, "5", 80), reset),
                    (at(family, "6", 80), Fate::Delivered(source, own)),
                    (at(family, "7", 80), Fate::Left(source, at(family, "7", 80))),
                    (own, Fate::Delivered(source, own)),
                ];
                for (destination, expected) in cases {
                    let expected = if with_rules || destination == own {
                        expected
                    } else {
                        Fate::Left(source, destination)
                    };
                    let shot = Shot {
                        entry: entry.clone(),
                        source,
                        destination,
                        protocol,
                    };
                    // More than one flight.
                    for (sent, sighting) in rig.fire(&vec![shot.clone(); 70]).unwrap() {
                        assert_eq!(fate(&sent, sighting), expected, "{kind}: {shot:?}");
                    }
                }
            }
        }
    }
}
