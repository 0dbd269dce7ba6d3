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

#[test]
fn an_endpoint_that_is_a_frontend_is_translated_again() {
    let cluster = |endpoints: &[(&str, &str)]| {
        let tcp = [(Protocol::Tcp, 80)];
        let mut events = Vec::from(service(
            "first",
            "10.96.0.1",
            &tcp,
            TrafficPolicy::Cluster,
            endpoints,
        ));
        // Where the endpoints of the first one would be.
        let at = [(Protocol::Tcp, 8080)];
        let pods = [("10.0.0.7", "here")];
        events.extend(service(
            "second",
            "10.96.0.9",
            &at,
            TrafficPolicy::Cluster,
            &pods,
        ));
        compute("here", events)
    };
    let state = cluster(&[("10.96.0.9", "here"), ("10.0.0.1", "here")]);
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
fn what_is_led_to_a_frontend_without_endpoints_ends_there() {
    let tcp = [(Protocol::Tcp, 80)];
    let mut events = Vec::new();
    for (name, ip, endpoints) in [
        ("first", "10.96.0.1", &[("10.96.0.9", "here")][..]),
        ("none", "10.96.0.9", &[]),
    ] {
        let ports = if name == "none" {
            [(Protocol::Tcp, 8080)]
        } else {
            tcp
        };
        let made = service(name, ip, &ports, TrafficPolicy::Cluster, endpoints);
        events.extend(made);
    }
    let state = compute("here", events);
    assert_eq!(ask(&state, "10.96.0.1:80/tcp"), "both reject");
}
