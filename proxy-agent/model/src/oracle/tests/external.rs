//! Who gets where from where, and who is masqueraded: a table of flows for each traffic policy and
//! each way of telling sources apart. What kube-proxy's `TestInternalExternalMasquerade` is to it.

use std::num::NonZeroU16;

use super::*;
use crate::{ExternalAccess, IpNet, Model, Settings};

/// A Service with every kind of frontend: an endpoint here, one elsewhere.
pub(super) fn web(internal: TrafficPolicy, external: TrafficPolicy) -> [ClusterEvent; 2] {
    let endpoints = [("10.0.0.1", "here"), ("10.0.1.1", "there")];
    restricted_web(internal, external, &[], &endpoints)
}

/// The same with these source ranges and endpoints.
pub(super) fn restricted_web(
    internal: TrafficPolicy,
    external: TrafficPolicy,
    ranges: &[&str],
    endpoints: &[(&str, &str)],
) -> [ClusterEvent; 2] {
    let ports = [(Protocol::Tcp, 80)];
    let [mut service, slice] = service("web", "10.96.0.1", &ports, internal, endpoints);
    if let ClusterEvent::ServiceUpserted(service) = &mut service {
        service.ports[0].node_port = NonZeroU16::new(30080);
        service.external = Some(Box::new(ExternalAccess {
            policy: external,
            ips: vec!["203.0.113.2".parse().unwrap()],
            load_balancer_ips: vec!["203.0.113.1".parse().unwrap()],
            source_ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(),
            ..ExternalAccess::default()
        }));
    }
    [service, slice]
}

fn here() -> ClusterEvent {
    ClusterEvent::NodeUpserted(Node {
        name: "here".into(),
        zone: None,
        pod_cidrs: vec!["10.0.0.0/24".parse().unwrap()],
        addresses: vec!["192.0.2.1".parse().unwrap()],
        eligible: true,
    })
}

pub(super) fn state(
    settings: Settings,
    events: impl IntoIterator<Item = ClusterEvent>,
) -> NodeState {
    let events = events.into_iter().chain([here()]);
    Model::after(settings, events).state().clone()
}

/// Where packets come from: a pod here that is no endpoint, one elsewhere, this node by each of
/// its addresses, another node, a client on the internet, and a load balancer that keeps its own
/// address as the source.
const SOURCES: &[(&str, &str)] = &[
    ("pod", "10.0.0.9"),
    ("other pod", "10.0.1.9"),
    ("node", "192.0.2.1"),
    ("loopback", "127.0.0.1"),
    ("other node", "192.0.2.9"),
    ("client", "198.51.100.7"),
    ("balancer", "203.0.113.1"),
];

const EXTERNAL: [&str; 3] = ["192.0.2.1:30080", "203.0.113.2:80", "203.0.113.1:80"];

/// Endpoints by their place, with a star where the source is masqueraded: `here* there*`.
fn places(verdict: &Verdict) -> String {
    let place = |target: &Target| {
        let place = match target.address.to_string().as_str() {
            "10.0.0.1:8080" => "here",
            "10.0.1.1:8080" => "there",
            other => panic!("{other} is no endpoint"),
        };
        let star = if target.masquerade.is_some() { "*" } else { "" };
        format!("{place}{star}")
    };
    let places: Vec<_> = verdict.targets.iter().map(place).collect();
    places.join(" ")
}

struct Config {
    name: &'static str,
    detector: Detector,
    masquerade_all: bool,
    /// Sources whose packets to a ClusterIP are masqueraded.
    foreign: &'static [&'static str],
    /// Sources that are led to the cluster set of policy Local as they are.
    own_pods: &'static [&'static str],
}

const NOT_PODS: &[&str] = &["node", "loopback", "other node", "client", "balancer"];

const NOT_POD: &[&str] = &[
    "other pod",
    "node",
    "loopback",
    "other node",
    "client",
    "balancer",
];

const ALL: &[&str] = &[
    "pod",
    "other pod",
    "node",
    "loopback",
    "other node",
    "client",
    "balancer",
];

fn configs() -> [Config; 6] {
    let all_pods: Vec<IpNet> = vec!["10.0.0.0/16".parse().unwrap()];
    [
        Config {
            name: "base",
            detector: Detector::ClusterCidr(all_pods.clone()),
            masquerade_all: false,
            foreign: NOT_PODS,
            own_pods: &["pod", "other pod"],
        },
        Config {
            name: "no detector",
            detector: Detector::None,
            masquerade_all: false,
            foreign: &[],
            own_pods: &[],
        },
        Config {
            name: "masqueradeAll",
            detector: Detector::ClusterCidr(all_pods),
            masquerade_all: true,
            foreign: ALL,
            own_pods: &["pod", "other pod"],
        },
        Config {
            name: "masqueradeAll, no detector",
            detector: Detector::None,
            masquerade_all: true,
            foreign: ALL,
            own_pods: &[],
        },
        Config {
            name: "node CIDR",
            detector: Detector::NodeCidr,
            masquerade_all: false,
            foreign: NOT_POD,
            own_pods: &["pod"],
        },
        Config {
            name: "bridge",
            detector: Detector::BridgeInterface("cbr0".into()),
            masquerade_all: false,
            foreign: NOT_POD,
            own_pods: &["pod"],
        },
    ]
}

/// Where a packet goes by the rules alone.
fn expected(config: &Config, from: &str, is_external: bool, policy: TrafficPolicy) -> &'static str {
    let own_pod = config.own_pods.contains(&from);
    let host = matches!(from, "node" | "loopback");
    match (is_external, policy) {
        (false, TrafficPolicy::Cluster) if config.foreign.contains(&from) => "here* there*",
        (false, TrafficPolicy::Cluster) => "here there",
        (false, TrafficPolicy::Local) if config.foreign.contains(&from) => "here*",
        // The pods of this node as well.
        (true, TrafficPolicy::Cluster) => "here* there*",
        // Clients on this node do not depend on an endpoint here.
        (true, TrafficPolicy::Local) if own_pod => "here there",
        (true, TrafficPolicy::Local) if host => "here* there*",
        (_, TrafficPolicy::Local) => "here",
    }
}

#[test]
fn flows_of_every_source_to_every_kind_of_frontend() {
    use TrafficPolicy::{Cluster, Local};

    for config in configs() {
        for (internal, external) in [
            (Cluster, Cluster),
            (Cluster, Local),
            (Local, Cluster),
            (Local, Local),
        ] {
            let settings = Settings {
                traffic: Traffic {
                    detector: config.detector.clone(),
                    masquerade_all: config.masquerade_all,
                },
                ..Settings::from("here")
            };
            let state = state(settings, web(internal, external));
            for (from, source) in SOURCES {
                for to in ["10.96.0.1:80"].iter().chain(&EXTERNAL) {
                    let is_external = EXTERNAL.contains(to);
                    let policy = if is_external { external } else { internal };
                    let mut packet = packet(source, &format!("{to}/tcp"));
                    packet.interface = match *from {
                        "pod" => Some("cbr0".into()),
                        "node" | "loopback" => None,
                        _ => Some("eth0".into()),
                    };
                    let said = format!(
                        "{}, internal {internal:?}, external {external:?}: {from} to {to}",
                        config.name
                    );
                    let by_packet = verdict(&state, &packet, Path::Packet);
                    let rule = expected(&config, from, is_external, policy);
                    assert_eq!(places(&by_packet), rule, "{said}");
                    // A socket is always this node's, and keeps its source.
                    let by_socket = places(&verdict(&state, &packet, Path::Socket));
                    let on_socket = match (is_external, policy) {
                        (false, Local) => "here",
                        _ => "here there",
                    };
                    assert_eq!(by_socket, on_socket, "{said}, socket");
                }
            }
        }
    }
}

/// The rows that a person would look up, written out.
#[test]
fn each_masquerade_has_its_reason() {
    use TrafficPolicy::{Cluster, Local};

    let traffic = |masquerade_all| Traffic {
        detector: Detector::ClusterCidr(vec!["10.0.0.0/16".parse().unwrap()]),
        masquerade_all,
    };
    for (external, all, from, to, expected) in [
        (
            Cluster,
            false,
            "10.0.0.9",
            "10.96.0.1:80",
            "10.0.0.1:8080 10.0.1.1:8080",
        ),
        (
            Cluster,
            false,
            "198.51.100.7",
            "10.96.0.1:80",
            "10.0.0.1:8080+foreign 10.0.1.1:8080+foreign",
        ),
        (
            Cluster,
            true,
            "10.0.0.9",
            "10.96.0.1:80",
            "10.0.0.1:8080+all 10.0.1.1:8080+all",
        ),
        (
            Cluster,
            false,
            "10.0.0.1",
            "10.96.0.1:80",
            "10.0.0.1:8080+hairpin 10.0.1.1:8080",
        ),
        (
            Cluster,
            false,
            "10.0.0.9",
            "192.0.2.1:30080",
            "10.0.0.1:8080+external 10.0.1.1:8080+external",
        ),
        // `masqueradeAll` is about ClusterIPs; these are masqueraded anyway, and for Local never.
        (
            Cluster,
            true,
            "10.0.0.9",
            "203.0.113.1:80",
            "10.0.0.1:8080+external 10.0.1.1:8080+external",
        ),
        (
            Local,
            true,
            "198.51.100.7",
            "203.0.113.1:80",
            "10.0.0.1:8080",
        ),
        (
            Local,
            false,
            "10.0.0.9",
            "203.0.113.1:80",
            "10.0.0.1:8080 10.0.1.1:8080",
        ),
        (
            Local,
            false,
            "192.0.2.1",
            "203.0.113.1:80",
            "10.0.0.1:8080+host 10.0.1.1:8080+host",
        ),
        (
            Local,
            false,
            "10.0.0.1",
            "203.0.113.2:80",
            "10.0.0.1:8080+hairpin 10.0.1.1:8080",
        ),
    ] {
        let settings = Settings {
            traffic: traffic(all),
            ..Settings::from("here")
        };
        let state = state(settings, web(Cluster, external));
        let packet = packet(from, &format!("{to}/tcp"));
        let told = told(&verdict(&state, &packet, Path::Packet));
        let said = format!("external {external:?}, all {all}: {from} to {to}");
        assert_eq!(told, format!("forward {expected}"), "{said}");
    }
}
