//! Packets that go nowhere: who may not come, and what is said when there is no endpoint.

use super::{
    external::{restricted_web, state},
    *,
};
use crate::Settings;

const CLUSTER_IP: &str = "10.96.0.1:80";
const EXTERNAL: [&str; 3] = ["192.0.2.1:30080", "203.0.113.1:80", "203.0.113.2:80"];

/// A Service with every kind of frontend and these endpoints.
fn open(
    external: TrafficPolicy,
    internal: TrafficPolicy,
    ranges: &[&str],
    endpoints: &[(&str, &str)],
) -> NodeState {
    let settings = Settings {
        traffic: Traffic {
            detector: Detector::NodeCidr,
            masquerade_all: false,
        },
        ..Settings::from("here")
    };
    state(
        settings,
        restricted_web(internal, external, ranges, endpoints),
    )
}

fn outcome(state: &NodeState, from: &str, to: &str, path: Path) -> (Outcome, Reason) {
    let verdict = verdict(state, &packet(from, &format!("{to}/tcp")), path);
    (verdict.outcome, verdict.reason)
}

#[test]
fn source_ranges_are_for_load_balancer_ips_alone() {
    use TrafficPolicy::Cluster;

    let endpoints = [("10.0.0.1", "here")];
    // Source, ranges, whether it may come.
    for (from, ranges, may) in [
        ("198.51.100.7", &["198.51.100.0/24"][..], true),
        ("198.51.101.7", &["198.51.100.0/24"], false),
        (
            "198.51.101.7",
            &["198.51.100.0/24", "198.51.101.0/24"],
            true,
        ),
        // Pods and this node are no exception.
        (POD, &["198.51.100.0/24"], false),
        ("192.0.2.1", &["198.51.100.0/24"], false),
        // Unless this node is in a range: then it may send from the address itself.
        ("203.0.113.1", &["198.51.100.0/24"], false),
        ("203.0.113.1", &["192.0.2.0/24"], true),
        ("203.0.113.2", &["192.0.2.0/24"], false),
        ("192.0.2.1", &["192.0.2.0/24"], true),
        // What restricts nobody.
        ("198.51.101.7", &[], true),
        ("198.51.101.7", &["2001:db8::/32"], true),
        ("198.51.101.7", &["198.51.100.0/24", "0.0.0.0/0"], true),
        ("198.51.101.7", &["198.51.100.0/24", "::/0"], false),
    ] {
        for policy in [Cluster, TrafficPolicy::Local] {
            let state = open(policy, Cluster, ranges, &endpoints);
            let said = format!("{policy:?} {ranges:?}: {from}");
            let ask = |to, path| outcome(&state, from, to, path);
            let (at, reason) = ask("203.0.113.1:80", Path::Packet);
            if may {
                assert_eq!(at, Outcome::Forward, "{said}");
            } else {
                assert_eq!((at, reason), (Outcome::Drop, Reason::SourceRange), "{said}");
            }
            for to in ["10.96.0.1:80", "192.0.2.1:30080", "203.0.113.2:80"] {
                assert_eq!(ask(to, Path::Packet).0, Outcome::Forward, "{said} to {to}");
                assert_eq!(ask(to, Path::Socket).0, Outcome::Forward, "{said} to {to}");
            }
            // A socket has no source yet.
            let restricted = !ranges.is_empty()
                && !ranges.contains(&"0.0.0.0/0")
                && !ranges.contains(&"2001:db8::/32");
            let on_socket = if restricted {
                Outcome::Pass
            } else {
                Outcome::Forward
            };
            assert_eq!(ask("203.0.113.1:80", Path::Socket).0, on_socket, "{said}");
        }
    }
}

/// Two tiers: *reject* without an endpoint anywhere, *drop* where policy forbids those that are.
#[test]
fn without_an_endpoint_a_client_is_refused_or_left_to_try_again() {
    use Outcome::{Drop, Forward, Reject};
    use TrafficPolicy::{Cluster, Local};

    let there = [("10.0.1.1", "there")];
    for policy in [Cluster, Local] {
        let nobody = open(policy, policy, &[], &[]);
        for to in EXTERNAL.iter().chain(&[CLUSTER_IP]) {
            for from in [POD, "192.0.2.1", "198.51.100.7"] {
                for path in [Path::Packet, Path::Socket] {
                    let expected = (Reject, Reason::NoEndpoints);
                    let said = format!("{policy:?}: {from} to {to} on {path:?}");
                    assert_eq!(outcome(&nobody, from, to, path), expected, "{said}");
                }
            }
        }
    }

    let elsewhere = open(Local, Local, &[], &there);
    for path in [Path::Packet, Path::Socket] {
        let expected = (Drop, Reason::NoneByPolicy);
        assert_eq!(
            outcome(&elsewhere, POD, CLUSTER_IP, path),
            expected,
            "{path:?}"
        );
    }
    for to in EXTERNAL {
        for (from, path, expected) in [
            ("198.51.100.7", Path::Packet, (Drop, Reason::NoneByPolicy)),
            ("10.0.1.9", Path::Packet, (Drop, Reason::NoneByPolicy)),
            // Clients on this node are led elsewhere.
            (POD, Path::Packet, (Forward, Reason::LocalClient)),
            ("192.0.2.1", Path::Packet, (Forward, Reason::LocalClient)),
            ("127.0.0.1", Path::Packet, (Forward, Reason::LocalClient)),
            ("198.51.100.7", Path::Socket, (Forward, Reason::LocalClient)),
        ] {
            let said = format!("{from} to {to} on {path:?}");
            assert_eq!(outcome(&elsewhere, from, to, path), expected, "{said}");
        }
    }

    // Who may not come is not even told that nobody is there.
    let closed = open(Cluster, Cluster, &["198.51.100.0/24"], &[]);
    let ask = |from| outcome(&closed, from, "203.0.113.1:80", Path::Packet);
    assert_eq!(ask("198.51.100.7"), (Reject, Reason::NoEndpoints));
    assert_eq!(ask("198.51.101.7"), (Drop, Reason::SourceRange));
}
