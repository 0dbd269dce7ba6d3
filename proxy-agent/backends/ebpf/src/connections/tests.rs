//! Entries as programs write them, and the flows that are told of them.

use std::{collections::BTreeMap, io};

use proxy_backend::connections::Ended;
use proxy_model::{IpFamily, ObjectName};

use super::{
    end::{Entries, end},
    *,
};

const CLIENT: &str = "192.0.2.7:40000";
const FRONTEND: &str = "172.18.0.3:30080";
const ENDPOINT: &str = "10.244.0.5:8080";

fn identity(protocol: Protocol, client: &str, serial: u32) -> Identity {
    Identity {
        protocol,
        client: client.parse().unwrap(),
        frontend: FRONTEND.parse().unwrap(),
        endpoint: ENDPOINT.parse().unwrap(),
        serial,
    }
}

/// Both entries of a flow, as programs make them: `DIALLED`, then `INSIDE`.
fn entries(flow: &Identity) -> [(ConnectionKey, ConnectionValue); 2] {
    let keys: Vec<_> = flow.keys(None).collect();
    [flow.endpoint, flow.frontend].map(|put| {
        let dialled = put == flow.endpoint;
        let key = keys[usize::from(!dialled)];
        let mut value = ConnectionValue {
            address: address::from_ip(put.ip()),
            port: put.port(),
            owner: proxy_common::track::TRANSLATED,
            service: 3,
            serial: flow.serial,
            last: 100,
            ..bytemuck::Zeroable::zeroed()
        };
        value.seal(&key);
        (key, value)
    })
}

/// The flow with these entries in these tables, each with what it has seen: the only one.
fn told(flow: &Identity, parts: &[(Table, usize, u32)]) -> Flow {
    let mut joined = Joined::default();
    for (table, entry, seen) in parts {
        let (key, mut value) = entries(flow)[*entry];
        value.state = value.state_of(*seen);
        joined.add(*table, &key, &value);
    }
    let mut flows = joined.list(&Which::default(), 107, |_, _| None);
    assert_eq!(flows.len(), 1, "{flows:?}");
    flows.remove(0)
}

#[test]
fn either_entry_tells_who_is_connected_with_whom_and_both_are_one_flow() {
    for client in [CLIENT, "[fd00::7]:40000"] {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let flow = identity(protocol, client, 9);
            for parts in [&[(Table::Track, 0, 0)][..], &[(Table::Track, 1, 0)]] {
                let both = [parts, &[(Table::Track, 0, 0), (Table::Track, 1, 0)]].concat();
                for parts in [parts, &both] {
                    let told = told(&flow, parts);
                    assert_eq!(told.client, flow.client);
                    assert_eq!(told.frontend, flow.frontend);
                    assert_eq!(told.endpoint, flow.endpoint);
                    assert_eq!(told.protocol, protocol);
                    assert_eq!(told.idle, Duration::from_secs(7));
                }
            }
        }
    }
}

/// Both entries for which the endpoint of a flow sees `source`.
fn masqueraded(flow: &Identity, source: SocketAddr) -> [(ConnectionKey, ConnectionValue); 2] {
    let keys = [2, 3].map(|entry| flow.keys(Some(source)).nth(entry).unwrap());
    [(keys[0], source), (keys[1], flow.client)].map(|(key, put)| {
        let mut value = ConnectionValue {
            address: address::from_ip(put.ip()),
            port: put.port(),
            owner: SNAT,
            serial: flow.serial,
            ..bytemuck::Zeroable::zeroed()
        };
        value.seal(&key);
        (key, value)
    })
}

#[test]
fn either_entry_of_the_second_translation_tells_whom_the_endpoint_sees() {
    let source = "172.18.0.3:50000".parse().unwrap();
    let flow = identity(Protocol::Tcp, CLIENT, 9);
    let told = |serial, seconds: &[usize]| {
        let mut joined = Joined::default();
        let other = Identity { serial, ..flow };
        for entry in seconds {
            let (key, value) = masqueraded(&other, source)[*entry];
            joined.add(Table::Track, &key, &value);
        }
        for (key, value) in entries(&flow) {
            joined.add(Table::Track, &key, &value);
        }
        let flows = joined.list(&Which::default(), 107, |_, _| None);
        assert_eq!(flows.len(), 1, "{flows:?}");
        flows[0].source
    };
    for seconds in [&[0][..], &[1], &[0, 1]] {
        assert_eq!(told(9, seconds), Some(source));
        // What is left of another one.
        assert_eq!(told(10, seconds), None);
    }
    assert_eq!(told(9, &[]), None);
}

#[test]
fn a_flow_whose_endpoint_sees_this_node_ends_with_all_of_its_entries() {
    let source = "172.18.0.3:50000".parse().unwrap();
    let flow = identity(Protocol::Tcp, CLIENT, 9);
    let mut world = world(&[flow]);
    for (key, _) in masqueraded(&flow, source) {
        world.there.insert((true, key), 9);
    }
    assert_eq!(end(&mut world, &[(flow, Some(source))]).unwrap().removed, 1);
    assert!(world.there.is_empty(), "{:?}", world.there);
}

#[test]
fn a_flow_has_got_as_far_as_its_entries_say() {
    let (fin, rst, answered) = (seen::FIN, seen::RST, seen::ANSWERED);
    let opening = |entry, seen| (Table::Opening, entry, seen);
    let track = |entry, seen| (Table::Track, entry, seen);
    let cases = [
        (vec![opening(0, 0), opening(1, 0)], Stage::Opening),
        (vec![opening(0, 0), opening(1, answered)], Stage::Answered),
        (vec![track(0, 0), track(1, 0)], Stage::Established),
        (vec![opening(1, answered), track(1, 0)], Stage::Established),
        (vec![track(0, fin), track(1, 0)], Stage::HalfClosed),
        (vec![track(0, 0), track(1, fin)], Stage::HalfClosed),
        (vec![track(0, fin), track(1, fin)], Stage::Closed),
        (vec![track(0, rst), track(1, fin)], Stage::Broken),
        (vec![track(0, fin), track(1, rst | fin)], Stage::Broken),
    ];
    for (parts, stage) in cases {
        let told = told(&identity(Protocol::Tcp, CLIENT, 9), &parts);
        assert_eq!(told.stage, stage, "{parts:?}");
    }
    let datagrams = told(&identity(Protocol::Udp, CLIENT, 9), &[track(0, 0)]);
    assert_eq!(datagrams.stage, Stage::Established);
}

#[test]
fn what_is_no_whole_entry_of_a_translated_flow_is_not_told() {
    let flow = identity(Protocol::Tcp, CLIENT, 9);
    let [(key, value), (other, _)] = entries(&flow);
    let mut joined = Joined::default();
    // Caught while it was given to another key.
    joined.add(Table::Opening, &other, &value);
    let mut beneath = ConnectionValue {
        owner: BENEATH,
        ..value
    };
    beneath.seal(&key);
    joined.add(Table::Opening, &key, &beneath);
    assert_eq!(joined.list(&Which::default(), 100, |_, _| None), []);
    let census = joined.census(Vec::new(), [10, 20]);
    assert_eq!((census.beneath, census.passing.used), (1, 2));
}

#[test]
fn flows_are_ordered_named_and_chosen() {
    let web = ServicePortKey {
        service: ObjectName::new("shop", "web"),
        port: "http".into(),
        protocol: Protocol::Tcp,
        family: IpFamily::V4,
    };
    let clients = ["192.0.2.9:1", "192.0.2.7:2", "192.0.2.7:1", "10.0.0.1:7"];
    let listed = |which: &Which| {
        let mut joined = Joined::new(which);
        for (serial, client) in (1..).zip(clients) {
            for (key, value) in entries(&identity(Protocol::Tcp, client, serial)) {
                joined.add(Table::Track, &key, &value);
            }
        }
        let known = |flow: &Identity, number| {
            assert_eq!(number, 3);
            (flow.serial != 4).then(|| web.clone())
        };
        let flows = joined.list(which, 100, known).into_iter();
        flows
            .map(|flow| flow.client.to_string())
            .collect::<Vec<_>>()
    };
    let ordered = ["10.0.0.1:7", "192.0.2.7:1", "192.0.2.7:2", "192.0.2.9:1"];
    assert_eq!(listed(&Which::default()), ordered);
    let of_client = Which {
        client: Some([192, 0, 2, 7].into()),
        service: None,
    };
    assert_eq!(listed(&of_client), ordered[1..3]);
    let for_service = Which {
        service: Some(web.service.clone()),
        client: None,
    };
    assert_eq!(listed(&for_service), ordered[1..]);
}

/// Maps whose programs put entries back in the first rounds.
struct World {
    there: BTreeMap<(bool, ConnectionKey), u32>,
    put_back: Vec<(bool, ConnectionKey, u32)>,
    stubborn: bool,
    settled: usize,
}

fn is_track(table: Table) -> bool {
    table == Table::Track
}

impl Entries for World {
    fn serial(&self, table: Table, key: &ConnectionKey) -> io::Result<Option<u32>> {
        Ok(self.there.get(&(is_track(table), *key)).copied())
    }

    fn remove(&mut self, table: Table, key: &ConnectionKey) -> io::Result<()> {
        self.there.remove(&(is_track(table), *key));
        Ok(())
    }

    fn settle(&mut self) {
        self.settled += 1;
        let back = if self.stubborn {
            self.put_back.first().copied()
        } else {
            self.put_back.pop()
        };
        if let Some((track, key, serial)) = back {
            self.there.insert((track, key), serial);
        }
    }
}

fn world(flows: &[Identity]) -> World {
    let entries = flows
        .iter()
        .flat_map(|flow| flow.keys(None).map(move |key| (flow, key)));
    World {
        there: entries
            .map(|(flow, key)| ((true, key), flow.serial))
            .collect(),
        put_back: Vec::new(),
        stubborn: false,
        settled: 0,
    }
}

#[test]
fn what_packets_put_back_is_removed_again_and_what_began_since_stays() {
    let flow = identity(Protocol::Tcp, CLIENT, 9);
    let [dialled, inside] = [0, 1].map(|entry| entries(&flow)[entry].0);
    let mut world = world(&[flow]);
    world.put_back = vec![(false, inside, 9), (true, inside, 9), (true, dialled, 9)];
    let ended = end(&mut world, &[(flow, None)]).unwrap();
    let (removed, came_back) = (1, 0);
    assert_eq!(ended, Ended { removed, came_back });
    assert!(world.there.is_empty(), "{:?}", world.there);
    assert_eq!(world.settled, 4, "until a round finds nothing");

    world.there.insert((true, dialled), 10);
    assert_eq!(end(&mut world, &[(flow, None)]).unwrap(), Ended::default());
    assert_eq!(world.there.len(), 1, "another flow's by now");
}

#[test]
fn a_flow_that_comes_back_each_time_is_told() {
    let (flow, other) = (
        identity(Protocol::Tcp, CLIENT, 9),
        identity(Protocol::Udp, CLIENT, 10),
    );
    let mut world = world(&[flow, other]);
    world.put_back = vec![(true, entries(&flow)[0].0, 9)];
    world.stubborn = true;
    let ended = end(&mut world, &[(flow, None), (other, None)]).unwrap();
    let (removed, came_back) = (1, 1);
    assert_eq!(ended, Ended { removed, came_back });
}
