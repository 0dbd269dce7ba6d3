//! Socket hooks over a packet backend.

use super::*;

/// Who decides, and what becomes of it: `above forward 10.0.0.1:8080`.
fn ask(state: &NodeState, to: &str) -> String {
    let all = layered(state, &packet(POD, to));
    let by = match &all.beneath {
        Beneath::Nothing => "above",
        Beneath::Decides(_) => "beneath",
        Beneath::Again(_) => "both",
    };
    format!("{by} {}", told(&all.verdict()))
}

#[test]
fn the_hooks_decide_what_they_understand_and_the_rest_is_decided_beneath() {
    let state = cluster();
    for (to, expected) in [
        (
            "10.96.0.1:80/tcp",
            "above forward 10.0.0.1:8080 10.0.1.1:8080",
        ),
        ("10.96.0.3:80/tcp", "above drop"),
        ("10.96.0.4:80/tcp", "above reject"),
        // What hooks never see, or leave alone because it is no frontend.
        (
            "10.96.0.6:9/sctp",
            "beneath forward 10.0.0.1:8009 10.0.1.1:8009",
        ),
        ("10.96.0.1:81/tcp", "beneath reject"),
        ("10.96.0.77:80/tcp", "beneath drop"),
        ("192.0.2.1:80/tcp", "beneath pass"),
    ] {
        assert_eq!(ask(&state, to), expected, "{to}");
    }
}

#[test]
fn with_masquerade_all_cluster_ips_are_left_to_packets() {
    let mut state = cluster();
    state.traffic.masquerade_all = true;
    for (to, expected) in [
        (
            "10.96.0.1:80/tcp",
            "beneath forward 10.0.0.1:8080+all 10.0.1.1:8080+all",
        ),
        ("10.96.0.3:80/tcp", "beneath drop"),
        ("10.96.0.4:80/tcp", "beneath reject"),
    ] {
        assert_eq!(ask(&state, to), expected, "{to}");
    }
    let all = layered(&state, &packet(POD, "10.96.0.1:80/tcp"));
    assert_eq!(all.above.reason, Reason::MasqueradedBeneath);
    assert_eq!(all.above.targets, []);
}

/// A Service with the endpoints `first`, and another one with `second`, whose frontend is where an
/// endpoint of the first may be.
fn chained(first: &[(&str, &str)], policy: TrafficPolicy, second: &[(&str, &str)]) -> NodeState {
    let tcp = [(Protocol::Tcp, 80)];
    let cluster = TrafficPolicy::Cluster;
    let mut events = Vec::from(service("first", "10.96.0.1", &tcp, cluster, first));
    let at = [(Protocol::Tcp, 8080)];
    events.extend(service("second", "10.96.0.9", &at, policy, second));
    compute("here", events)
}

#[test]
fn an_endpoint_that_is_a_frontend_is_translated_again() {
    let first = [("10.96.0.9", "here"), ("10.0.0.1", "here")];
    let state = chained(&first, TrafficPolicy::Cluster, &[("10.0.0.7", "here")]);
    assert_eq!(
        ask(&state, "10.96.0.1:80/tcp"),
        "both forward 10.0.0.1:8080 10.0.0.7:16080"
    );
    // Alone, each layer translates once.
    let once = "forward 10.0.0.1:8080 10.96.0.9:8080";
    for path in [Path::Socket, Path::Packet] {
        let verdict = verdict(&state, &packet(POD, "10.96.0.1:80/tcp"), path);
        assert_eq!(told(&verdict), once);
    }
}

#[test]
fn an_endpoint_that_is_a_frontend_ends_as_that_one_does() {
    let first = [("10.96.0.9", "here")];
    let none = chained(&first, TrafficPolicy::Cluster, &[]);
    assert_eq!(ask(&none, "10.96.0.1:80/tcp"), "both reject");
    let elsewhere = [("10.0.1.7", "there")];
    let elsewhere = chained(&first, TrafficPolicy::Local, &elsewhere);
    assert_eq!(ask(&elsewhere, "10.96.0.1:80/tcp"), "both drop");
}
