//! Stale UDP flows are removed from the kernel's table of connections, and no others: real packets
//! in a network namespace, translated by rules of the test's own. Needs root.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "conntrack/rig.rs"]
mod rig;

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use proxy_backend_nftables::{
    Keeper, NftablesBackend, NftablesOptions, cleanup, is_kept, is_there, remove,
};
use proxy_conntrack::{Cleaned, Cleaner, Expected, clean, dnat_flows};
use proxy_model::{Backend as _, ChangeSet, NodeState};

use proxy_tests::requires::{self, NFTABLES};

use self::rig::{in_namespace, load, served, socket, state};

const VIPS: [&str; 2] = ["10.96.0.10:53", "[fd01::10]:53"];
/// In each family, two addresses where endpoints may be.
const ENDPOINTS: [[&str; 2]; 2] = [
    ["10.244.0.2:5353", "10.244.0.3:5353"],
    ["[fd00::2]:5353", "[fd00::3]:5353"],
];

/// A cleaner that has seen `state` come into force.
fn cleaner(state: &NodeState) -> Cleaner {
    let mut cleaner = Cleaner::new();
    cleaner.after_sync(state, &state.as_change_set()).unwrap();
    cleaner
}

/// What is removed when `now` comes into force after `before`.
fn change(cleaner: &mut Cleaner, before: &NodeState, now: &NodeState) -> Option<usize> {
    let done = cleaner.after_sync(now, &before.changes_to(now)).unwrap();
    done.as_ref().map(Cleaned::deleted)
}

#[test]
fn a_client_that_keeps_its_port_reaches_the_endpoint_that_replaced_another() {
    in_namespace(|| {
        for (vip, endpoints) in VIPS.into_iter().zip(ENDPOINTS) {
            let [old, new] = endpoints.map(socket);
            let client = rig::client(vip);
            load(&[(vip, endpoints[0])]);
            let before = state(&[(vip, endpoints[0])]);
            let mut cleaner = cleaner(&before);
            client.send(b"1").unwrap();
            assert_eq!(served(&old), "1");

            load(&[(vip, endpoints[1])]);
            client.send(b"2").unwrap();
            assert_eq!(served(&old), "2", "without cleaning nothing changes");
            let now = state(&[(vip, endpoints[1])]);
            assert_eq!(change(&mut cleaner, &before, &now), Some(1));
            client.send(b"3").unwrap();
            assert_eq!(served(&new), "3");
            // What leads where it should is left alone.
            let all = cleaner.after_sync(&now, &now.as_change_set()).unwrap();
            assert_eq!(all, None);
            assert_eq!(clean(&Expected::of_all(&now, [])).unwrap().deleted(), 0);
        }
    });
}

#[test]
fn flows_of_a_service_that_lost_its_last_endpoint_go() {
    in_namespace(|| {
        let (vip, endpoint) = (VIPS[0], ENDPOINTS[0][0]);
        let server = socket(endpoint);
        let client = rig::client(vip);
        load(&[(vip, endpoint)]);
        let (before, now) = (state(&[(vip, endpoint)]), state(&[(vip, "")]));
        let mut cleaner = cleaner(&before);
        client.send(b"1").unwrap();
        assert_eq!(served(&server), "1");
        load(&[]);
        assert_eq!(change(&mut cleaner, &before, &now), Some(1));
        assert_eq!(dnat_flows().unwrap(), 0);

        // Sent while there is none: the kernel remembers that nobody translated it.
        client.send(b"2").unwrap();
        load(&[(vip, endpoint)]);
        client.send(b"3").unwrap();
        assert_eq!(dnat_flows().unwrap(), 0);
        assert_eq!(change(&mut cleaner, &now, &before), Some(1));
        client.send(b"4").unwrap();
        assert_eq!(served(&server), "4");
    });
}

#[test]
fn flows_of_a_service_that_is_gone_go_and_the_flows_of_others_stay() {
    in_namespace(|| {
        let (vip, endpoint) = (VIPS[0], ENDPOINTS[0][0]);
        let theirs = "10.96.0.99:53";
        let server = socket(endpoint);
        let listener = TcpListener::bind(endpoint).unwrap();
        load(&[(vip, endpoint), (theirs, endpoint)]);
        let (before, now) = (state(&[(vip, endpoint)]), state(&[]));
        let mut cleaner = cleaner(&before);

        let ours = rig::client(vip);
        let others = [theirs, endpoint].map(rig::client);
        for client in others.iter().chain([&ours]) {
            client.send(b"1").unwrap();
            assert_eq!(served(&server), "1");
        }
        // The rules translate every protocol.
        let tcp = TcpStream::connect(vip).unwrap();
        drop(listener.accept().unwrap());
        assert_eq!(dnat_flows().unwrap(), 3);

        load(&[]);
        assert_eq!(change(&mut cleaner, &before, &now), Some(1));
        assert_eq!(dnat_flows().unwrap(), 2);
        others[0].send(b"2").unwrap();
        assert_eq!(served(&server), "2");
        drop(tcp);
    });
}

#[test]
fn node_ports_are_cleaned_on_the_nodes_addresses_only() {
    in_namespace(|| {
        let [old, new] = ENDPOINTS[0];
        let servers = [old, new].map(socket);
        let ours = "192.0.2.1:30053";
        let theirs = "192.0.2.99:30053";
        load(&[(ours, old), (theirs, old)]);
        let before = state(&[("*:30053", old)]);
        let mut cleaner = cleaner(&before);
        let clients = [ours, theirs].map(rig::client);
        for client in &clients {
            client.send(b"1").unwrap();
            assert_eq!(served(&servers[0]), "1");
        }
        load(&[(ours, new), (theirs, new)]);
        let now = state(&[("*:30053", new)]);
        assert_eq!(change(&mut cleaner, &before, &now), Some(1));
        clients[0].send(b"2").unwrap();
        assert_eq!(served(&servers[1]), "2");
        clients[1].send(b"3").unwrap();
        assert_eq!(served(&servers[0]), "3");
        // And with the NodePort.
        assert_eq!(change(&mut cleaner, &now, &state(&[])), Some(1));
    });
}

#[test]
fn flows_in_zones_are_found_and_named() {
    in_namespace(|| {
        let zones = ["10.96.0.7:53", "10.96.0.9:53"];
        let [old, new] = ENDPOINTS[0];
        let server = socket(old);
        rig::nft(
            "add table inet zones
             add chain inet zones output { type filter hook output priority raw; }
             add rule inet zones output ip daddr 10.96.0.7 ct zone set 7
             add rule inet zones output ip daddr 10.96.0.9 ct original zone set 9",
        );
        let rules = |endpoint| zones.map(|vip| (vip, endpoint));
        load(&rules(old));
        for vip in zones {
            rig::client(vip).send(b"1").unwrap();
            assert_eq!(served(&server), "1");
        }
        load(&rules(new));
        let mut cleaner = cleaner(&state(&rules(old)));
        let deleted = change(&mut cleaner, &state(&rules(old)), &state(&rules(new)));
        assert_eq!(deleted, Some(2));
        assert_eq!(dnat_flows().unwrap(), 0);
    });
}

#[test]
fn thousands_of_flows_go_in_one_clean_and_are_counted() {
    const FLOWS: usize = 3_000;
    in_namespace(|| {
        let (vip, theirs) = (VIPS[0], "10.96.0.99:53");
        let [old, new] = ENDPOINTS[0];
        let server = socket(old);
        load(&[(vip, old), (theirs, old)]);
        let before = state(&[(vip, old)]);
        let mut cleaner = cleaner(&before);
        let vips: [SocketAddr; 2] = [vip, theirs].map(|vip| vip.parse().unwrap());
        for flow in 0..FLOWS {
            let client = UdpSocket::bind("10.244.0.1:0").unwrap();
            client.send_to(b"1", vips[flow % 2]).unwrap();
            assert_eq!(served(&server), "1");
        }
        // Ports may be used again by a later flow to the other address, never to the same one.
        let flows = dnat_flows().unwrap();
        assert!(flows > FLOWS / 2, "{flows}");
        let now = state(&[(vip, new)]);
        let change = before.changes_to(&now);
        let done = cleaner.after_sync(&now, &change).unwrap().unwrap();
        assert!(done.seen >= flows, "{done:?}");
        assert_eq!(dnat_flows().unwrap(), flows - done.deleted());
        assert!(done.deleted() > FLOWS / 4, "{done:?}");
        assert_eq!(done.deleted_v6, 0);
        let again = clean(&Expected::of_all(&now, [])).unwrap();
        assert_eq!(again.deleted(), 0);
        assert!(again.seen >= flows - done.deleted());

        let figures = cleaner.figures();
        let value = |name: &str, family: Option<&str>| {
            let mut matching = figures.iter().filter(|figure| {
                figure.name == name && figure.labels.first().map(|(_, label)| &**label) == family
            });
            let value = matching.next().unwrap().value;
            assert!(matching.next().is_none());
            value
        };
        let deleted = f64::from(u32::try_from(done.deleted()).unwrap());
        let name = "conntrack_deleted_entries_total";
        assert!((value(name, Some("IPv4")) - deleted).abs() < 0.5);
        assert!(value(name, Some("IPv6")) < 0.5);
        assert!((value("conntrack_cleans_total", None) - 2.0).abs() < 0.5);
        assert!(value("conntrack_clean_seconds_total", None) > 0.0);
        // A change of nothing is no reason to look.
        let nothing = cleaner.after_sync(&now, &ChangeSet::default()).unwrap();
        assert_eq!(nothing, None);
    });
}

#[test]
fn what_was_translated_goes_on_when_only_what_keeps_it_is_left() {
    if !requires::met("conntrack", NFTABLES) {
        return;
    }
    in_namespace(|| {
        let rules = [(VIPS[0], ENDPOINTS[0][0]), (VIPS[1], ENDPOINTS[1][0])];
        let now = state(&rules);
        let mut backend = NftablesBackend::open(NftablesOptions {
            mark: 0x4000,
            ..NftablesOptions::default()
        })
        .unwrap();
        backend.sync(&now, &now.as_change_set()).unwrap();
        let flows = rules.map(|(vip, endpoint)| (rig::client(vip), socket(endpoint)));
        for (client, server) in &flows {
            client.send(b"1").unwrap();
            assert_eq!(served(server), "1");
        }
        let mut keeper = Keeper::default();
        assert_eq!(keeper.keep().unwrap().len(), 2);
        // Tables of a backend that is open are not removed.
        assert!(remove().is_err() && is_there().unwrap());
        drop(backend);
        assert_eq!(remove().unwrap().len(), 2);
        assert!(is_kept().unwrap() && !is_there().unwrap());
        for (client, server) in &flows {
            client.send(b"2").unwrap();
            assert_eq!(served(server), "2");
        }
        // And nothing new is.
        rig::client(VIPS[0]).send(b"3").unwrap();
        assert_eq!(dnat_flows().unwrap(), 2);
        // Others leave that to whoever keeps them, also for a backend of another agent.
        assert!(!Keeper::default().let_go().unwrap());
        assert!(cleanup().is_err() && is_kept().unwrap());
        assert!(keeper.let_go().unwrap() && !is_kept().unwrap());
    });
}
