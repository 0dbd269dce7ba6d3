//! Which flows are stale, and when to look, by states in a few words. What the kernel does with
//! that is shown by the suite `conntrack`.

mod changes;
mod messages;

use std::{net::SocketAddr, sync::Arc};

use proxy_model::{
    Endpoint, Frontend, FrontendKind, IpFamily, NodeState, ObjectName, Protocol, ServicePortKey,
    ServiceState, TrafficPolicy,
};

use super::{Expected, Flow};

fn addresses<T: From<SocketAddr>>(list: &str) -> Vec<T> {
    let addresses = list.split_whitespace();
    addresses
        .map(|one| one.parse::<SocketAddr>().unwrap().into())
        .collect()
}

fn key(name: &str, protocol: Protocol, family: IpFamily) -> ServicePortKey {
    ServicePortKey {
        service: ObjectName::new("shop", name),
        port: "".into(),
        protocol,
        family,
    }
}

/// `frontends` as `ClusterIp 10.96.0.1:53`, `NodePort 30053`, …
fn frontend(text: &str) -> Frontend {
    let (kind, rest) = text.split_once(' ').unwrap();
    let kind = match kind {
        "ClusterIp" => FrontendKind::ClusterIp,
        "ExternalIp" => FrontendKind::ExternalIp,
        "NodePort" => {
            return Frontend {
                kind: FrontendKind::NodePort,
                address: None,
                port: rest.parse().unwrap(),
            };
        }
        other => panic!("{other}"),
    };
    let address: SocketAddr = rest.parse().unwrap();
    Frontend {
        kind,
        address: Some(address.ip()),
        port: address.port(),
    }
}

fn endpoints(list: &str) -> Arc<[Endpoint]> {
    let addresses: Vec<SocketAddr> = addresses(list);
    addresses.into_iter().map(Endpoint::at).collect()
}

/// A UDP Service port with policy Cluster.
fn serving(frontends: &[&str], cluster: &str) -> ServiceState {
    ServiceState {
        frontends: frontends.iter().map(|text| frontend(text)).collect(),
        cluster_endpoints: Some(endpoints(cluster)),
        local_endpoints: None,
        has_any_endpoints: true,
        internal_policy: TrafficPolicy::Cluster,
        external_policy: TrafficPolicy::Cluster,
        affinity: None,
        source_ranges: None,
    }
}

/// A node with these addresses and UDP Service ports.
fn node(services: &[(&str, ServiceState)]) -> NodeState {
    let mut state = NodeState {
        node_port_addresses: ["127.0.0.1", "192.0.2.1", "::1", "2001:db8::1"]
            .map(|address| address.parse().unwrap())
            .into(),
        ..NodeState::default()
    };
    for (name, service) in services {
        let key = key(name, Protocol::Udp, IpFamily::V4);
        state.services.insert(key, Arc::new(service.clone()));
    }
    state
}

fn flow(destination: &str, answerer: &str) -> Flow {
    let destination = destination.parse().unwrap();
    let answerer = answerer.parse().unwrap();
    Flow {
        protocol: 17,
        source: "10.244.0.9:40000".parse().unwrap(),
        destination,
        answerer,
        translated: destination != answerer,
    }
}

#[track_caller]
fn assert_stale(expected: &Expected, stale: bool, destination: &str, answerer: &str) {
    let flow = flow(destination, answerer);
    assert_eq!(
        expected.is_stale(&flow),
        stale,
        "{destination} by {answerer}"
    );
}

#[test]
fn a_flow_is_stale_if_it_leads_to_no_endpoint_of_its_frontend() {
    let dns = serving(
        &["ClusterIp 10.96.0.10:53", "NodePort 30053"],
        "10.244.0.1:53 10.244.0.2:53",
    );
    let expected = Expected::of_all(&node(&[("dns", dns)]), []);
    for frontend in ["10.96.0.10:53", "192.0.2.1:30053"] {
        assert_stale(&expected, false, frontend, "10.244.0.1:53");
        assert_stale(&expected, false, frontend, "10.244.0.2:53");
        assert_stale(&expected, true, frontend, "10.244.0.2:54");
        assert_stale(&expected, true, frontend, "10.244.0.3:53");
        // Made while there was no endpoint.
        assert_stale(&expected, true, frontend, frontend);
    }
    // Nobody's frontends: another port, another address, and what reaches no packet filter.
    for other in ["10.96.0.10:54", "192.0.2.2:30053", "127.0.0.1:30053"] {
        assert_stale(&expected, false, other, "10.244.0.3:53");
    }
    assert!(expected.names(IpFamily::V4));
    assert!(!expected.names(IpFamily::V6));
}

#[test]
fn no_endpoint_is_a_set_too() {
    let expected = Expected::of_all(
        &node(&[("dns", serving(&["ClusterIp 10.96.0.10:53"], ""))]),
        [],
    );
    assert_stale(&expected, true, "10.96.0.10:53", "10.244.0.1:53");
    assert_stale(&expected, true, "10.96.0.10:53", "10.96.0.10:53");
}

#[test]
fn only_udp_is_looked_at() {
    let dns = serving(&["ClusterIp 10.96.0.10:53"], "10.244.0.1:53");
    let mut state = node(&[]);
    state.services.insert(
        key("dns", Protocol::Tcp, IpFamily::V4),
        Arc::new(dns.clone()),
    );
    let expected = Expected::of_all(&state, []);
    assert_stale(&expected, false, "10.96.0.10:53", "10.244.0.2:53");
    assert!(!expected.names(IpFamily::V4));

    let expected = Expected::of_all(&node(&[("dns", dns)]), []);
    let tcp = Flow {
        protocol: 6,
        ..flow("10.96.0.10:53", "10.244.0.2:53")
    };
    assert!(!expected.is_stale(&tcp));
}

#[test]
fn each_frontend_allows_the_sets_that_its_policy_leads_to() {
    let mut dns = serving(
        &[
            "ClusterIp 10.96.0.10:53",
            "ExternalIp 198.51.100.1:53",
            "NodePort 30053",
        ],
        "10.244.0.1:53 10.244.1.1:53",
    );
    dns.local_endpoints = Some(endpoints("10.244.0.1:53 10.244.0.2:53"));
    dns.internal_policy = TrafficPolicy::Local;
    let expected = Expected::of_all(&node(&[("dns", dns.clone())]), []);
    assert_stale(&expected, true, "10.96.0.10:53", "10.244.1.1:53");
    assert_stale(&expected, false, "10.96.0.10:53", "10.244.0.2:53");
    assert_stale(&expected, true, "198.51.100.1:53", "10.244.0.2:53");
    assert_stale(&expected, true, "192.0.2.1:30053", "10.244.0.2:53");

    // Clients on this node are led to all endpoints, others to those here.
    dns.external_policy = TrafficPolicy::Local;
    let expected = Expected::of_all(&node(&[("dns", dns)]), []);
    for frontend in ["198.51.100.1:53", "192.0.2.1:30053"] {
        for endpoint in ["10.244.0.1:53", "10.244.0.2:53", "10.244.1.1:53"] {
            assert_stale(&expected, false, frontend, endpoint);
        }
        assert_stale(&expected, true, frontend, "10.244.1.2:53");
    }
}

#[test]
fn flows_to_what_is_no_frontend_any_more_are_stale_while_somebody_translates_them() {
    let gone = addresses::<SocketAddr>("10.96.0.10:53 192.0.2.1:30053 10.96.0.11:53");
    let elsewhere = serving(&["ClusterIp 10.96.0.11:53"], "10.244.0.1:53");
    let expected = Expected::of_all(&node(&[("other", elsewhere)]), gone);
    assert_stale(&expected, true, "10.96.0.10:53", "10.244.0.1:53");
    assert_stale(&expected, true, "192.0.2.1:30053", "10.244.0.1:53");
    // Those of whoever has the address now.
    assert_stale(&expected, false, "192.0.2.1:30053", "192.0.2.1:30053");
    assert_stale(&expected, false, "10.96.0.11:53", "10.244.0.1:53");
    assert_stale(&expected, true, "10.96.0.11:53", "10.244.0.2:53");
}

#[test]
fn a_node_port_that_another_service_took_is_served() {
    let gone = addresses::<SocketAddr>("192.0.2.1:30053");
    let other = serving(&["NodePort 30053"], "10.244.0.2:53");
    let expected = Expected::of_all(&node(&[("other", other)]), gone);
    assert_stale(&expected, false, "192.0.2.1:30053", "10.244.0.2:53");
    assert_stale(&expected, true, "192.0.2.1:30053", "10.244.0.1:53");
    assert_stale(&expected, true, "192.0.2.1:30053", "192.0.2.1:30053");
}
