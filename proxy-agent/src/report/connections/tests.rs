//! What people and programs read of connections.

use std::{collections::BTreeMap, time::Duration};

use proxy_backend::connections::{Census, Flow, Room, Stage};
use proxy_model::{IpFamily, ObjectName, Protocol, ServicePortKey};

use super::{super::Form, *};

fn flow(protocol: Protocol, client: &str, stage: Stage, idle: u64) -> Flow {
    Flow {
        frontend: "172.18.0.3:30080".parse().unwrap(),
        protocol,
        client: client.parse().unwrap(),
        source: (protocol == Protocol::Udp).then(|| "10.244.0.1:40001".parse().unwrap()),
        endpoint: "10.244.0.5:8080".parse().unwrap(),
        stage,
        idle: Duration::from_secs(idle),
        service: (stage != Stage::Broken).then(|| ServicePortKey {
            service: ObjectName::new("shop", "web"),
            port: "http".into(),
            protocol,
            family: IpFamily::V4,
        }),
    }
}

fn flows() -> Vec<Flow> {
    vec![
        flow(Protocol::Tcp, "192.0.2.7:40000", Stage::Established, 3),
        flow(Protocol::Tcp, "[fd00::7]:1", Stage::Broken, 7300),
        flow(Protocol::Udp, "192.0.2.8:53", Stage::Opening, 120),
    ]
}

/// The list as it is printed.
fn listed(flows: &[Flow], form: Form) -> String {
    list(flows, form).collect()
}

#[test]
fn people_read_a_line_for_each_connection() {
    let expected = "\
PROTOCOL  CLIENT           FRONTEND          SOURCE            ENDPOINT         STATE        IDLE  SERVICE
TCP       192.0.2.7:40000  172.18.0.3:30080  -                 10.244.0.5:8080  established  3s    shop/web:http
TCP       [fd00::7]:1      172.18.0.3:30080  -                 10.244.0.5:8080  broken       2h    -
UDP       192.0.2.8:53     172.18.0.3:30080  10.244.0.1:40001  10.244.0.5:8080  opening      2m    shop/web:http
";
    assert_eq!(listed(&flows(), Form::Text), expected);
    assert_eq!(listed(&[], Form::Text), "no connections\n");
}

#[test]
fn programs_read_the_same_as_json() {
    let json: serde_json::Value = serde_json::from_str(&listed(&flows(), Form::Json)).unwrap();
    let expected = serde_json::json!({
        "protocol": "TCP",
        "client": "192.0.2.7:40000",
        "frontend": "172.18.0.3:30080",
        "source": "192.0.2.7:40000",
        "endpoint": "10.244.0.5:8080",
        "state": "established",
        "idleSeconds": 3,
        "service": "shop/web:http",
    });
    assert_eq!(json["flows"][0], expected);
    assert_eq!(json["flows"][2]["source"], "10.244.0.1:40001");
    assert_eq!(json["flows"][1]["service"], serde_json::Value::Null);
    let none: serde_json::Value = serde_json::from_str(&listed(&[], Form::Json)).unwrap();
    assert_eq!(none, serde_json::json!({"flows": []}));
}

#[test]
fn a_list_of_many_pieces_is_whole() {
    let client = |number: u16| {
        let client = format!("192.0.2.7:{number}");
        flow(Protocol::Tcp, &client, Stage::Established, 3)
    };
    let many: Vec<_> = (0..3000).map(client).collect();
    let json: serde_json::Value = serde_json::from_str(&listed(&many, Form::Json)).unwrap();
    assert_eq!(json["flows"].as_array().unwrap().len(), many.len());
    let text = listed(&many, Form::Text);
    assert_eq!(text.lines().count(), 1 + many.len());
    let last = text.lines().last().unwrap();
    assert_eq!(last.split_whitespace().nth(1), Some("192.0.2.7:2999"));
}

fn counted() -> Census {
    let eth0 = |reason| ("eth0".to_owned(), reason);
    Census {
        flows: flows(),
        kept: Room { used: 2, limit: 9 },
        passing: Room { used: 5, limit: 7 },
        beneath: 3,
        packets: Some(BTreeMap::from([(eth0("beneath"), 12), (eth0("direct"), 1)])),
    }
}

#[test]
fn connections_are_counted_by_state_and_by_service() {
    let expected = "\
3 connections, 1 of them unanswered
kept until they end: 2 of 9 (TRACK)
giving way where there is no room: 5 of 7 entries (OPENING), 3 of them for connections left to the layer beneath

STATE        CONNECTIONS
opening      1
answered     0
established  1
half-closed  0
closed       0
broken       1

SERVICE        CONNECTIONS
-              1
shop/web:http  2

DEVICE  REASON   PACKETS NOT TRANSLATED
eth0    beneath  12
eth0    direct   1
";
    assert_eq!(census(&counted(), Form::Text), expected);
    let json: serde_json::Value = serde_json::from_str(&census(&counted(), Form::Json)).unwrap();
    let expected = serde_json::json!({
        "flows": 3,
        "unanswered": 1,
        "beneath": 3,
        "track": {"used": 2, "limit": 9},
        "opening": {"used": 5, "limit": 7},
        "states": [
            {"state": "opening", "flows": 1},
            {"state": "answered", "flows": 0},
            {"state": "established", "flows": 1},
            {"state": "half-closed", "flows": 0},
            {"state": "closed", "flows": 0},
            {"state": "broken", "flows": 1},
        ],
        "services": [
            {"service": null, "flows": 1},
            {"service": "shop/web:http", "flows": 2},
        ],
        "packets": [
            {"device": "eth0", "reason": "beneath", "packets": 12},
            {"device": "eth0", "reason": "direct", "packets": 1},
        ],
    });
    assert_eq!(json, expected);
}

#[test]
fn what_cannot_be_read_is_said() {
    let unknown = Census {
        packets: None,
        ..Census::default()
    };
    let text = census(&unknown, Form::Text);
    assert!(text.ends_with("not known (map REASONS)\n"), "{text}");
    assert!(census(&unknown, Form::Json).contains("\"packets\": null"));
}

#[test]
fn what_was_ended_is_told_and_what_came_back() {
    let told = |removed, came_back| ended(&Ended { removed, came_back });
    assert_eq!(told(0, 0), "ended 0 connections\n");
    assert_eq!(told(1, 0), "ended 1 connection\n");
    let back = "ended 2 connections\n1 connection came back with each packet; run this again\n";
    assert_eq!(told(2, 1), back);
}
