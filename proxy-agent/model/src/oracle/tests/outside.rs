//! What programs on devices take, and what they pass on.

use super::{
    external::{restricted_web, state, web},
    *,
};
use crate::Settings;

const CLIENT: &str = "198.51.100.9";
const LOCAL: TrafficPolicy = TrafficPolicy::Local;
const CLUSTER: TrafficPolicy = TrafficPolicy::Cluster;

/// `taken`, `masqueraded` where endpoints see this node, or why not.
fn ask(state: &NodeState, from: &str, to: &str) -> &'static str {
    match taken_on_device(state, &packet(from, to), false) {
        Ok(taken) => {
            assert!(taken.whatever_is_chosen(), "{taken:?}");
            let mut targets = taken.verdict.targets.iter();
            if targets.all(|target| target.masquerade.is_some()) {
                "masqueraded"
            } else {
                "taken"
            }
        }
        Err(passed) => passed.as_str(),
    }
}

/// The same where clients keep their address: where they are led, with a star where the source is
/// masqueraded and brackets where the packet is passed on, or why it always is.
fn ask_kept(state: &NodeState, from: &str, to: &str) -> String {
    match taken_on_device(state, &packet(from, to), true) {
        Ok(taken) => {
            let all = taken.verdict.targets.iter().zip(&taken.leads_to);
            let told = all.map(|(target, leads)| {
                let star = if target.masquerade.is_some() { "*" } else { "" };
                let ip = target.address.ip();
                if *leads {
                    format!("{ip}{star}")
                } else {
                    format!("({ip}{star})")
                }
            });
            told.collect::<Vec<_>>().join(" ")
        }
        Err(passed) => passed.as_str().to_owned(),
    }
}

#[test]
fn packets_to_services_are_taken() {
    let state = state(Settings::from("here"), web(CLUSTER, LOCAL));
    for (from, to, expected) in [
        (CLIENT, "203.0.113.1:80/tcp", "taken"),
        (CLIENT, "203.0.113.2:80/tcp", "taken"),
        (CLIENT, "192.0.2.1:30080/tcp", "taken"),
        (CLIENT, "10.96.0.1:80/tcp", "taken"),
        (CLIENT, "203.0.113.1:81/tcp", "it is for no Service"),
        (CLIENT, "203.0.113.1:80/udp", "it is for no Service"),
        (CLIENT, "203.0.113.1:80/sctp", "it is neither TCP nor UDP"),
        (
            "192.0.2.1",
            "203.0.113.1:80/tcp",
            "it comes from this node or from a pod of it",
        ),
    ] {
        assert_eq!(ask(&state, from, to), expected, "{from} {to}");
    }
}

#[test]
fn policy_and_detector_decide_about_masquerading() {
    let with = |detector, internal, external| {
        let mut state = state(Settings::from("here"), web(internal, external));
        state.traffic.detector = detector;
        state
    };
    let masqueraded = "masqueraded";
    let of_node = || Detector::NodeCidr;
    for (state, from, to, expected) in [
        (
            with(Detector::None, LOCAL, CLUSTER),
            CLIENT,
            "203.0.113.1:80/tcp",
            masqueraded,
        ),
        (
            with(Detector::None, LOCAL, CLUSTER),
            CLIENT,
            "10.96.0.1:80/tcp",
            "taken",
        ),
        (
            with(of_node(), LOCAL, LOCAL),
            CLIENT,
            "10.96.0.1:80/tcp",
            masqueraded,
        ),
        (
            with(of_node(), LOCAL, LOCAL),
            CLIENT,
            "203.0.113.1:80/tcp",
            "taken",
        ),
        (
            with(of_node(), LOCAL, LOCAL),
            "10.0.0.9",
            "203.0.113.1:80/tcp",
            "it comes from this node or from a pod of it",
        ),
    ] {
        assert_eq!(ask(&state, from, to), expected, "{from} {to}");
    }
}

#[test]
fn ranges_and_what_ends_nowhere_are_passed_on() {
    let here: &[_] = &[("10.0.0.1", "here")];
    let refused = "its source is in none of the loadBalancerSourceRanges";
    let local = "it comes from this node or from a pod of it";
    for (policy, from, to, expected) in [
        (LOCAL, CLIENT, "203.0.113.1:80/tcp", "taken"),
        (LOCAL, "198.51.101.9", "203.0.113.1:80/tcp", refused),
        // Other addresses of the Service have no ranges.
        (LOCAL, "198.51.101.9", "203.0.113.2:80/tcp", "taken"),
        (LOCAL, "198.51.101.9", "192.0.2.1:30080/tcp", "taken"),
        // The node's own, which ranges may let in, and one that says to be the address that it dials.
        (LOCAL, "192.0.2.1", "203.0.113.1:80/tcp", local),
        (LOCAL, "203.0.113.1", "203.0.113.1:80/tcp", local),
        (LOCAL, "203.0.113.2", "203.0.113.2:80/tcp", local),
        (CLUSTER, CLIENT, "203.0.113.1:80/tcp", "masqueraded"),
        (CLUSTER, "198.51.101.9", "203.0.113.1:80/tcp", refused),
    ] {
        let ranges = ["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/28"];
        let web = restricted_web(CLUSTER, policy, &ranges, here);
        let state = state(Settings::from("here"), web);
        assert_eq!(ask(&state, from, to), expected, "{from} {to}");
    }
    let elsewhere = restricted_web(CLUSTER, LOCAL, &[], &[("10.0.1.1", "there")]);
    let elsewhere = state(Settings::from("here"), elsewhere);
    assert_eq!(
        ask(&elsewhere, CLIENT, "203.0.113.1:80/tcp"),
        "no endpoint is allowed"
    );
}

#[test]
fn where_clients_keep_their_address_endpoints_here_see_it_whatever_the_policy() {
    let with = |detector, all, internal, external| {
        let mut state = state(Settings::from("here"), web(internal, external));
        state.traffic.detector = detector;
        state.traffic.masquerade_all = all;
        state
    };
    let masqueraded = "10.0.0.1 10.0.1.1*";
    let kept = "10.0.0.1 10.0.1.1";
    let here = "10.0.0.1";
    for (state, to, expected) in [
        (
            with(Detector::None, false, LOCAL, CLUSTER),
            "203.0.113.1:80/tcp",
            masqueraded,
        ),
        (
            with(Detector::None, false, LOCAL, CLUSTER),
            "192.0.2.1:30080/tcp",
            masqueraded,
        ),
        (
            with(Detector::None, false, LOCAL, LOCAL),
            "192.0.2.1:30080/tcp",
            here,
        ),
        (
            with(Detector::None, false, CLUSTER, LOCAL),
            "10.96.0.1:80/tcp",
            kept,
        ),
        (
            with(Detector::None, false, LOCAL, CLUSTER),
            "10.96.0.1:80/tcp",
            here,
        ),
        (
            with(Detector::NodeCidr, false, CLUSTER, LOCAL),
            "10.96.0.1:80/tcp",
            masqueraded,
        ),
        (
            with(Detector::NodeCidr, false, LOCAL, LOCAL),
            "10.96.0.1:80/tcp",
            here,
        ),
        (
            with(Detector::None, true, CLUSTER, LOCAL),
            "10.96.0.1:80/tcp",
            masqueraded,
        ),
    ] {
        assert_eq!(ask_kept(&state, CLIENT, to), expected, "{to}");
    }
}

#[test]
fn where_clients_keep_their_address_the_rest_is_passed_on_as_before() {
    let of = |ranges: &[&str], endpoints: &[(&str, &str)]| {
        let mut state = state(
            Settings::from("here"),
            restricted_web(CLUSTER, CLUSTER, ranges, endpoints),
        );
        state.traffic.detector = Detector::NodeCidr;
        state
    };
    let ranged = of(&["198.51.100.0/24"], &[("10.0.0.1", "here")]);
    let elsewhere = of(&[], &[("10.0.1.1", "there"), ("10.0.1.2", "")]);
    let none = of(&[], &[]);
    let balanced = "203.0.113.1:80/tcp";
    for (state, from, expected) in [
        (&ranged, CLIENT, "10.0.0.1"),
        (
            &ranged,
            "198.51.101.9",
            "its source is in none of the loadBalancerSourceRanges",
        ),
        // Nobody knows where one of these is.
        (&elsewhere, CLIENT, "10.0.1.1* 10.0.1.2*"),
        // To the endpoint, this node is the client.
        (&elsewhere, "10.0.1.1", "10.0.1.1* 10.0.1.2*"),
        (&none, CLIENT, "no endpoint is allowed"),
        (
            &elsewhere,
            "10.0.0.9",
            "it comes from this node or from a pod of it",
        ),
        (
            &elsewhere,
            "192.0.2.1",
            "it comes from this node or from a pod of it",
        ),
    ] {
        assert_eq!(ask_kept(state, from, balanced), expected, "{from}");
    }
    // An endpoint that dials itself, where pods are not recognised.
    let mut itself = of(&[], &[("10.0.0.1", "here"), ("10.0.0.2", "here")]);
    itself.traffic.detector = Detector::None;
    assert_eq!(
        ask_kept(&itself, "10.0.0.1", balanced),
        "(10.0.0.1*) 10.0.0.2"
    );
    let mut there = of(&[], &[("10.0.1.1", "there"), ("10.0.1.2", "there")]);
    there.traffic.detector = Detector::None;
    assert_eq!(
        ask_kept(&there, "10.0.1.1", "10.96.0.1:80/tcp"),
        "(10.0.1.1*) 10.0.1.2"
    );
    let mut alone = of(&[], &[("10.0.0.1", "here")]);
    alone.traffic.detector = Detector::None;
    assert_eq!(
        ask_kept(&alone, "10.0.0.1", balanced),
        "it comes from this node or from a pod of it"
    );
}
