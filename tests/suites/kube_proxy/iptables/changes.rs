//! What a change writes, against what kube-proxy 1.36.2 handed to `iptables-restore` for it.

use std::{num::NonZeroU32, sync::Arc};

use proxy_backend_iptables::change;
use proxy_model::{
    Endpoint, Frontend, FrontendKind, IpFamily, NodePortSelection, NodeState, ObjectName, Protocol,
    ServicePortKey, ServiceState, TrafficPolicy,
};

use super::{super::state_with, OPTIONS};

fn key(name: &str, port: &str, protocol: Protocol) -> ServicePortKey {
    ServicePortKey {
        service: ObjectName::new(
            if name == "kube-dns" {
                "kube-system"
            } else {
                "shop"
            },
            name,
        ),
        port: port.into(),
        protocol,
        family: IpFamily::V4,
    }
}

/// Endpoints by their addresses.
fn at(list: &str) -> Arc<[Endpoint]> {
    let addresses = list.split_whitespace();
    addresses
        .map(|one| Endpoint::at(one.parse().unwrap()))
        .collect()
}

fn edit(state: &mut NodeState, key: &ServicePortKey, change: impl FnOnce(&mut ServiceState)) {
    let mut service = (**state.services.get(key).unwrap()).clone();
    change(&mut service);
    state.services.insert(key.clone(), Arc::new(service));
}

fn endpoints(state: &mut NodeState, name: &str, port: &str, protocol: Protocol, list: &str) {
    edit(state, &key(name, port, protocol), |service| {
        service.cluster_endpoints = Some(at(list));
    });
}

const WEB: &str = "10.244.0.10:8080 10.244.1.10:8080 10.244.2.10:8081";
const WEBS: &str = "10.244.0.10:8443 10.244.1.10:8443 10.244.2.10:8443";

fn web(state: &mut NodeState, http: &str, https: &str) {
    endpoints(state, "web", "http", Protocol::Tcp, http);
    endpoints(state, "web", "https", Protocol::Tcp, https);
}

fn fresh() -> ServicePortKey {
    key("fresh", "http", Protocol::Tcp)
}

fn frontend(kind: FrontendKind, address: Option<&str>, port: u16) -> Frontend {
    Frontend {
        kind,
        address: address.map(|address| address.parse().unwrap()),
        port,
    }
}

/// A change to the state.
type Change = Box<dyn Fn(&mut NodeState)>;

fn edits(change: impl Fn(&mut ServiceState) + 'static) -> Change {
    Box::new(move |state| edit(state, &fresh(), &change))
}

/// What happens, and how many lines and bytes kube-proxy handed to `iptables-restore`.
type Recorded = (&'static str, Change, usize, usize);

/// The twenty recorded changes but for the lost canary, which is no change of the state.
fn changes() -> Vec<Recorded> {
    let all = [
        of_web(),
        of_fresh_while_served(),
        of_fresh_until_gone(),
        of_others(),
    ];
    all.into_iter().flatten().collect()
}

fn of_web() -> Vec<Recorded> {
    let web = |http: &'static str, https: &'static str| -> Change {
        Box::new(move |state| web(state, http, https))
    };
    vec![
        (
            "endpoint-added",
            web(
                "10.244.0.10:8080 10.244.0.11:8080 10.244.1.10:8080 10.244.2.10:8081",
                "10.244.0.10:8443 10.244.0.11:8443 10.244.1.10:8443 10.244.2.10:8443",
            ),
            92,
            9_553,
        ),
        ("endpoint-removed", web(WEB, WEBS), 88, 8_836),
        (
            "endpoint-terminating",
            web(
                "10.244.1.10:8080 10.244.2.10:8081",
                "10.244.1.10:8443 10.244.2.10:8443",
            ),
            80,
            7_991,
        ),
        ("endpoint-ready-again", web(WEB, WEBS), 84, 8_708),
    ]
}

fn of_fresh_while_served() -> Vec<Recorded> {
    vec![
        (
            "service-created",
            Box::new(|state| {
                let service = ServiceState {
                    frontends: vec![frontend(FrontendKind::ClusterIp, Some("10.96.20.1"), 80)],
                    cluster_endpoints: Some(at("")),
                    local_endpoints: None,
                    has_any_endpoints: false,
                    internal_policy: TrafficPolicy::Cluster,
                    external_policy: TrafficPolicy::Cluster,
                    affinity: None,
                    source_ranges: None,
                };
                state.services.insert(fresh(), Arc::new(service));
            }),
            57,
            6_025,
        ),
        (
            "slice-created",
            edits(|service| {
                service.cluster_endpoints = Some(at("10.244.0.90:8080 10.244.1.90:8080"));
                service.has_any_endpoints = true;
            }),
            67,
            7_028,
        ),
        (
            "port-changed",
            edits(|service| service.frontends[0].port = 81),
            67,
            7_028,
        ),
        (
            "to-nodeport",
            edits(|service| {
                service
                    .frontends
                    .push(frontend(FrontendKind::NodePort, None, 30_999));
            }),
            72,
            7_543,
        ),
        (
            "to-local",
            edits(|service| {
                service.external_policy = TrafficPolicy::Local;
                service.local_endpoints = Some(at("10.244.0.90:8080"));
            }),
            76,
            8_054,
        ),
    ]
}

fn of_fresh_until_gone() -> Vec<Recorded> {
    vec![
        (
            "affinity-on",
            edits(|service| service.affinity = NonZeroU32::new(60)),
            79,
            8_719,
        ),
        (
            "affinity-off",
            edits(|service| service.affinity = None),
            76,
            8_054,
        ),
        (
            "external-ip",
            edits(|service| {
                service.frontends.push(frontend(
                    FrontendKind::ExternalIp,
                    Some("198.51.100.77"),
                    81,
                ));
            }),
            77,
            8_193,
        ),
        (
            "last-endpoint-gone",
            edits(|service| {
                service.cluster_endpoints = Some(at(""));
                service.local_endpoints = Some(at(""));
                service.has_any_endpoints = false;
            }),
            69,
            6_628,
        ),
        (
            "service-deleted",
            Box::new(|state| drop(state.services.remove(&fresh()))),
            56,
            5_903,
        ),
        ("slice-deleted", Box::new(|_| {}), 56, 5_903),
    ]
}

fn of_others() -> Vec<Recorded> {
    let zonal = |list: &'static str| -> Change {
        Box::new(move |state| endpoints(state, "zonal", "http", Protocol::Tcp, list))
    };
    vec![
        (
            "source-ranges",
            Box::new(|state| {
                edit(state, &key("lb-local", "http", Protocol::Tcp), |service| {
                    let ranges = Arc::make_mut(service.source_ranges.as_mut().unwrap());
                    ranges.ranges.insert(0, "198.51.100.0/24".parse().unwrap());
                });
            }),
            74,
            7_875,
        ),
        // Both families, in full.
        (
            "node-label-zone",
            zonal("10.244.1.70:8080"),
            76 + 262,
            7_163 + 26_839,
        ),
        (
            "node-label-back",
            zonal("10.244.0.70:8080"),
            262 + 76,
            26_839 + 7_163,
        ),
        (
            "udp-endpoint-replaced",
            Box::new(|state| {
                for (port, protocol, number) in [
                    ("dns", Protocol::Udp, 53),
                    ("dns-tcp", Protocol::Tcp, 53),
                    ("metrics", Protocol::Tcp, 9153),
                ] {
                    let list = format!("10.244.0.3:{number} 10.244.1.2:{number}");
                    endpoints(state, "kube-dns", port, protocol, &list);
                }
            }),
            92,
            9_278,
        ),
    ]
}

#[test]
fn a_change_writes_less_than_kube_proxy_writes() {
    let mut before = state_with(NodePortSelection::All);
    let (mut ours, mut theirs) = ([0, 0], [0, 0]);
    for (step, make, lines, bytes) in changes() {
        let mut now = before.clone();
        make(&mut now);
        let written = change(&before, &now, OPTIONS).concat();
        let (our_lines, our_bytes) = (written.lines().count(), written.len());
        assert!(
            our_lines <= lines && our_bytes <= bytes,
            "{step}: {our_lines} lines and {our_bytes} bytes, kube-proxy {lines} and {bytes}:\n{written}"
        );
        ours = [ours[0] + our_lines, ours[1] + our_bytes];
        theirs = [theirs[0] + lines, theirs[1] + bytes];
        before = now;
    }
    // What is printed is the headline of docs/PERFORMANCE.md.
    println!(
        "{} lines and {} bytes in all, kube-proxy {} and {}",
        ours[0], ours[1], theirs[0], theirs[1]
    );
    assert!(
        ours[0] * 2 < theirs[0] && ours[1] * 2 < theirs[1],
        "{ours:?} {theirs:?}"
    );
}

/// A change of endpoints writes the chains of that Service, whatever else there is.
#[test]
fn what_a_change_of_endpoints_writes_does_not_depend_on_other_services() {
    let mut small = state_with(NodePortSelection::All);
    let web = |(key, _): &(ServicePortKey, _)| &*key.service.name == "web";
    small.services = small.services.into_iter().filter(web).collect();
    let written = |before: &NodeState| {
        let mut now = before.clone();
        endpoints(&mut now, "web", "http", Protocol::Tcp, "10.244.0.10:8080");
        change(before, &now, OPTIONS)
    };
    assert_eq!(
        written(&small),
        written(&state_with(NodePortSelection::All))
    );
}

/// In between, conntrack would take connections for such as nobody translates.
#[test]
fn what_comes_is_led_before_it_is_not_refused_any_more_and_what_goes_is_refused_first() {
    let mut before = state_with(NodePortSelection::All);
    let mut seen = 0;
    for (step, make, ..) in changes() {
        let mut now = before.clone();
        make(&mut now);
        let [written, _] = change(&before, &now, OPTIONS);
        before = now;
        let is_led_first = match step {
            "slice-created" => true,
            "last-endpoint-gone" => false,
            _ => continue,
        };
        let leads_first = written.find("*nat") < written.find("*filter");
        assert_eq!(leads_first, is_led_first, "{written}");
        seen += 1;
    }
    assert_eq!(seen, 2);
}
