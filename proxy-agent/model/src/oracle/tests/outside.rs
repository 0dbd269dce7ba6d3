//! What programs on devices take, and what they pass on.

use super::{
    external::{restricted_web, state, web},
    *,
};
use crate::Settings;

const CLIENT: &str = "198.51.100.9";
const LOCAL: TrafficPolicy = TrafficPolicy::Local;
const CLUSTER: TrafficPolicy = TrafficPolicy::Cluster;

/// `taken`, or why not.
fn ask(state: &NodeState, from: &str, to: &str) -> &'static str {
    match taken_on_device(state, &packet(from, to)) {
        Ok(()) => "taken",
        Err(passed) => passed.as_str(),
    }
}

#[test]
fn packets_to_endpoints_here_that_see_the_client_are_taken() {
    let state = state(Settings::from("here"), web(CLUSTER, LOCAL));
    for (from, to, expected) in [
        (CLIENT, "203.0.113.1:80/tcp", "taken"),
        (CLIENT, "203.0.113.2:80/tcp", "taken"),
        (CLIENT, "192.0.2.1:30080/tcp", "taken"),
        (
            CLIENT,
            "10.96.0.1:80/tcp",
            "its endpoint may be on another node",
        ),
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
    let masqueraded = "it may have to be masqueraded";
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
        (
            CLUSTER,
            CLIENT,
            "203.0.113.1:80/tcp",
            "it may have to be masqueraded",
        ),
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
