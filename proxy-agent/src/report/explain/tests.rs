//! Answers and stories about one small cluster.

mod of_backends;
mod of_layers;
mod state_only;

use std::num::{NonZeroU16, NonZeroU32};

use proxy_model::{
    Capability, ClusterEvent, Conditions, Diagnostic, EndpointSlice, ExternalAccess, IpFamily,
    Model, Node, NodePortSelection, Protocol, Service, ServiceCidr, ServiceName, ServicePort,
    Settings, SliceEndpoint, SliceName, SlicePort, TrafficPolicy,
    oracle::{Detector, Traffic},
};

use super::*;
use crate::backend::choice;

/// The Service `shop/{name}` on port 80, called `port`, and its slice. Endpoints are (last octet,
/// conditions r, s, t, node).
fn service(
    name: &str,
    address: &str,
    port: &str,
    policy: TrafficPolicy,
    endpoints: &[(u8, &str, &str)],
) -> [ClusterEvent; 2] {
    let service = Service {
        name: ServiceName::new("shop", name),
        cluster_ips: vec![address.parse().unwrap()],
        ports: vec![ServicePort {
            name: port.into(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: None,
        }],
        internal_policy: policy,
        ..Service::default()
    };
    let endpoint = |&(last, conditions, node): &(u8, &str, &str)| SliceEndpoint {
        address: [10, 244, 0, last].into(),
        conditions: Conditions {
            ready: conditions.contains('r'),
            serving: conditions.contains('s'),
            terminating: conditions.contains('t'),
        },
        node: Some(node.into()),
        hints: None,
    };
    let slice = EndpointSlice {
        name: SliceName::new("shop", format!("{name}-x7")),
        service: service.name.clone(),
        family: IpFamily::V4,
        ports: vec![SlicePort {
            name: port.into(),
            protocol: Protocol::Tcp,
            port: 8080,
        }],
        endpoints: endpoints.iter().map(endpoint).collect(),
    };
    [
        ClusterEvent::ServiceUpserted(service),
        ClusterEvent::SliceUpserted(slice),
    ]
}

fn diagnosed(object: &str) -> ClusterEvent {
    ClusterEvent::Diagnosed {
        object: object.into(),
        diagnostics: vec![Diagnostic {
            object: object.into(),
            field: "spec".to_owned(),
            message: "is odd".to_owned(),
        }],
    }
}

fn model(traffic: &Traffic) -> Model {
    Model::after(settings(traffic), cluster())
}

fn settings(traffic: &Traffic) -> Settings {
    Settings {
        traffic: traffic.clone(),
        ..Settings::from("node-a")
    }
}

/// `shop/lb`, with everything that is for clients outside the cluster.
fn balanced() -> [ClusterEvent; 2] {
    balanced_on("node-b")
}

/// The same with its endpoint on this node.
fn balanced_on(node: &str) -> [ClusterEvent; 2] {
    let endpoints = [(2, "rs", node)];
    let [service, slice] = service("lb", "10.96.0.6", "", TrafficPolicy::Cluster, &endpoints);
    let ClusterEvent::ServiceUpserted(mut service) = service else {
        panic!("a Service comes first")
    };
    service.ports[0].node_port = NonZeroU16::new(30081);
    service.affinity = NonZeroU32::new(600);
    service.external = Some(Box::new(ExternalAccess {
        policy: TrafficPolicy::Local,
        ips: vec!["198.51.100.9".parse().unwrap()],
        load_balancer_ips: vec!["198.51.100.7".parse().unwrap()],
        proxied_ips: vec!["198.51.100.8".parse().unwrap()],
        source_ranges: ["203.0.113.0/24", "192.0.2.0/24"]
            .map(|range| range.parse().unwrap())
            .into(),
        health_check_node_port: None,
    }));
    [ClusterEvent::ServiceUpserted(service), slice]
}

fn cluster() -> Vec<ClusterEvent> {
    use TrafficPolicy::{Cluster, Local};
    let web = [
        (1, "rs", "node-a"),
        (2, "rs", "node-b"),
        (3, "s", "node-b"),
        (4, "st", "node-b"),
        (5, "t", "node-b"),
    ];
    let mut events = vec![
        ClusterEvent::NodeUpserted(Node {
            name: "node-a".into(),
            zone: None,
            pod_cidrs: vec!["10.244.0.0/24".parse().unwrap()],
            addresses: vec!["192.0.2.1".parse().unwrap()],
            eligible: true,
        }),
        ClusterEvent::ServiceCidrUpserted(ServiceCidr {
            name: "kubernetes".into(),
            cidrs: vec!["10.96.0.0/16".parse().unwrap()],
        }),
        diagnosed("Service shop/web"),
        diagnosed("EndpointSlice shop/web-x7"),
        diagnosed("Service shop/other"),
    ];
    events.extend(service("web", "10.96.0.1", "http", Cluster, &web));
    events.extend(service("here", "10.96.0.2", "", Local, &web[..2]));
    events.extend(service("there", "10.96.0.3", "", Local, &web[1..2]));
    events.extend(service("last", "10.96.0.4", "", Cluster, &web[3..]));
    events.extend(service("none", "10.96.0.5", "", Cluster, &[]));
    let [mut open, slice] = service("open", "10.96.0.7", "", Cluster, &web[..2]);
    if let ClusterEvent::ServiceUpserted(open) = &mut open {
        open.ports[0].node_port = NonZeroU16::new(30080);
    }
    events.extend([open, slice]);
    events.extend(balanced());
    events
}

fn ask(traffic: &Traffic, from: &str, to: &str, path: Path) -> Explanation {
    explain(&model(traffic), &packet(from, to, None).unwrap(), path)
}

#[test]
fn the_json_is_as_documented() {
    let ask = |from, to| ask(&Traffic::default(), from, to, Path::Packet).to_json();
    for (from, to, json) in [
        (
            "10.244.0.2",
            "10.96.0.1:80/tcp",
            r#"{"outcome":"forward","service":"shop/web:http","endpoints":[{"address":"10.244.0.1:8080","masquerade":false},{"address":"10.244.0.2:8080","masquerade":true}]}"#,
        ),
        (
            "10.244.0.9",
            "10.96.0.2:80/tcp",
            r#"{"outcome":"forward","service":"shop/here","endpoints":[{"address":"10.244.0.1:8080","masquerade":false}]}"#,
        ),
        (
            "10.244.0.9",
            "10.96.0.3:80/tcp",
            r#"{"outcome":"drop","service":"shop/there","endpoints":[]}"#,
        ),
        (
            "10.244.0.9",
            "10.96.0.5:80/tcp",
            r#"{"outcome":"reject","service":"shop/none","endpoints":[]}"#,
        ),
        (
            "10.244.0.9",
            "10.96.0.1:81/tcp",
            r#"{"outcome":"reject","service":null,"endpoints":[]}"#,
        ),
        (
            "10.244.0.9",
            "198.51.100.1:81/tcp",
            r#"{"outcome":"pass","service":null,"endpoints":[]}"#,
        ),
    ] {
        assert_eq!(ask(from, to), json.to_owned() + "\n", "{from} to {to}");
    }
}

#[test]
fn an_explanation_travels_as_json() {
    let explanation = ask(
        &Traffic::default(),
        "10.244.0.2",
        "10.96.0.1:80/tcp",
        Path::Packet,
    );
    let sent = serde_json::to_string(&explanation).unwrap();
    assert_eq!(
        serde_json::from_str::<Explanation>(&sent).unwrap(),
        explanation
    );
}

#[test]
fn the_story_names_frontend_rule_source_and_every_endpoint() {
    let traffic = Traffic {
        detector: Detector::ClusterCidr(vec!["10.244.0.0/16".parse().unwrap()]),
        masquerade_all: false,
    };
    let told = ask(&traffic, "192.0.2.7", "10.96.0.1:80/tcp", Path::Packet);
    let expected = "\
A packet from 192.0.2.7 to 10.96.0.1:80/TCP on node node-a goes to one of 2 endpoints.

Frontend: ClusterIP 10.96.0.1:80 of shop/web:http.
Rule: internalTrafficPolicy Cluster: all usable endpoints of the cluster.
Source: becomes this node: 192.0.2.7 is outside the cluster's pod ranges 10.244.0.0/16.

ENDPOINT         NODE    USED  WHY
10.244.0.1:8080  node-a  yes   ready
10.244.0.2:8080  node-b  yes   ready
10.244.0.3:8080  node-b  no    not ready
10.244.0.4:8080  node-b  no    terminating, and others are ready
10.244.0.5:8080  node-b  no    terminating and no longer serving

Diagnostics:
  EndpointSlice shop/web-x7: spec: is odd
  Service shop/web: spec: is odd
";
    assert_eq!(told.to_text(), expected);
}

/// Configuration, source, destination, path, and what the story says.
const STORIES: &str = "\
none 10.244.0.9 10.96.0.3:80/tcp packet: is dropped
none 10.244.0.9 10.96.0.3:80/tcp socket: EHOSTUNREACH
none 10.244.0.9 10.96.0.3:80/tcp packet: every usable endpoint is on another
none 10.244.0.9 10.96.0.3:80/tcp packet: no    not on this node
none 10.244.0.9 10.96.0.4:80/tcp packet: yes   terminating but still serving
none 10.244.0.9 10.96.0.4:80/tcp packet: goes to one endpoint
none 10.244.0.9 10.96.0.5:80/tcp packet: No EndpointSlice has an endpoint
none 10.244.0.9 10.96.0.5:80/tcp socket: ECONNREFUSED
none 10.244.0.9 10.96.0.1:80/tcp packet: it is not known which sources are local
none 10.244.0.9 10.96.0.1:80/tcp socket: translated in a socket
none 10.244.0.1 10.96.0.1:80/tcp packet: (hairpin)
all 10.244.0.9 10.96.0.1:80/tcp packet: masqueradeAll is set
bridge 10.244.0.9 10.96.0.1:80/tcp packet: does not arrive on cbr0
node 10.244.0.9 10.96.0.1:80/tcp packet: 10.244.0.9 is local
none 10.244.0.9 10.96.0.1:80/udp packet: is served there for TCP, not for UDP
none 10.244.0.9 10.96.0.1:81/tcp packet: shop/web, which is served on 80/TCP only
none 10.244.0.9 10.96.0.1:81/tcp packet: but no Service has this port
none 10.244.0.9 10.96.0.1:81/tcp socket: is left alone
none 10.244.0.9 10.96.0.77:80/tcp packet: is in 10.96.0.0/16, the range
none 10.244.0.9 10.244.0.1:8080/tcp packet: endpoint of shop/here, dialled
none 10.244.0.9 192.0.2.1:30090/tcp packet: 192.0.2.1 is an address of this node, and there is no NodePort 30090
none 10.244.0.9 192.0.2.1:30080/udp packet: no NodePort 30080 for UDP
none 10.244.0.9 192.0.2.1:30080/tcp packet: NodePort *:30080 of shop/open; 192.0.2.1 is an address of this node on which NodePorts answer
none 10.244.0.9 192.0.2.1:30080/tcp packet: externalTrafficPolicy Cluster: all usable
none 10.244.0.9 192.0.2.1:30080/tcp packet: becomes this node: externalTrafficPolicy Cluster, and the reply must
none 10.244.0.9 127.0.0.1:30080/tcp packet: only processes of this node reach NodePorts through loopback addresses, when they dial (--path socket)
none 127.0.0.1 127.0.0.2:30080/tcp socket: processes of this node also reach NodePorts through 127.0.0.2
none 127.0.0.1 0.0.0.0:30080/tcp socket: also reach NodePorts through 0.0.0.0
none 127.0.0.1 127.0.0.1:30090/tcp socket: there is no NodePort 30090
none 203.0.113.5 192.0.2.1:30081/tcp packet: externalTrafficPolicy Local, and every usable endpoint is on another node
none 192.0.2.1 192.0.2.1:30081/tcp packet: Local, but the client is this node itself
none 192.0.2.1 192.0.2.1:30081/tcp packet: becomes this node, on the address that it sends from: 192.0.2.1 is its own
node 10.244.0.9 198.51.100.9:80/tcp packet: Local, but the client is a pod of this node
wide 192.0.2.1 198.51.100.9:80/tcp packet: Local, but the client is a pod of this node
node 10.244.0.9 198.51.100.9:80/tcp packet: ExternalIP 198.51.100.9:80 of shop/lb
none 10.244.0.9 198.51.100.9:80/tcp socket: Local, but the client is a process of this node
none 10.244.0.9 10.96.0.6:80/tcp packet: Affinity: a client that connects again within 600 s keeps its endpoint.
none 10.244.0.9 10.96.0.6:80/tcp socket: within 600 s
none 10.244.0.9 198.51.100.7:80/tcp packet: 10.244.0.9 is in none of the loadBalancerSourceRanges 192.0.2.0/24, 203.0.113.0/24
none 10.244.0.9 198.51.100.7:80/tcp socket: the packet path decides
none 192.0.2.1 198.51.100.7:80/tcp packet: Source ranges: 192.0.2.1 is in 192.0.2.0/24.
none 192.0.2.1 198.51.100.7:80/tcp packet: LoadBalancerIP 198.51.100.7:80 of shop/lb
none 10.244.0.9 198.51.100.8:80/tcp packet: load balancer of shop/lb with ipMode Proxy: the load
node 10.244.0.2 198.51.100.9:80/tcp packet: 10.244.0.2 sees this node as the source when it reaches itself (hairpin)
none 10.244.0.9 10.96.0.1:80/sctp socket: not intercepted
";

#[test]
fn stories_say_what_decided() {
    for line in STORIES.lines() {
        let (question, part) = line.split_once(": ").unwrap();
        let [traffic, from, to, path] = question.split(' ').collect::<Vec<_>>()[..] else {
            panic!("four words: {question}");
        };
        let detector = match traffic {
            "bridge" => Detector::BridgeInterface("cbr0".into()),
            "node" => Detector::NodeCidr,
            "wide" => Detector::ClusterCidr(vec!["192.0.2.0/24".parse().unwrap()]),
            _ => Detector::None,
        };
        let traffic = Traffic {
            detector,
            masquerade_all: traffic == "all",
        };
        let path = if path == "socket" {
            Path::Socket
        } else {
            Path::Packet
        };
        let told = ask(&traffic, from, to, path);
        assert!(told.to_text().contains(part), "{line}\n{}", told.story);
    }
}

#[test]
fn a_node_port_that_does_not_answer_on_an_address_is_told() {
    let settings = Settings {
        node_ports: NodePortSelection::Cidrs(vec!["198.51.100.0/24".parse().unwrap()]),
        localhost_node_ports: false,
        ..settings(&Traffic::default())
    };
    let model = Model::after(settings, cluster());
    for (to, path, part) in [
        (
            "192.0.2.1:30080/tcp",
            Path::Packet,
            "NodePort 30080 of shop/open does not answer on 192.0.2.1: nodePortAddresses leave it \
             out.",
        ),
        (
            "127.0.0.1:30080/tcp",
            Path::Socket,
            "NodePort 30080 of shop/open does not answer on 127.0.0.1: a pod's loopback addresses \
             are its own.",
        ),
    ] {
        let told = explain(&model, &packet("10.244.0.9", to, None).unwrap(), path);
        assert_eq!(told.answer.outcome, "pass", "{to}");
        assert!(told.story.contains(part), "{}", told.story);
    }
}

#[test]
fn a_client_that_is_the_load_balancer_ip_itself_may_come() {
    let told = ask(
        &Traffic::default(),
        "198.51.100.7",
        "198.51.100.7:80/tcp",
        Path::Packet,
    );
    let part = "Local, and every usable endpoint is on another node";
    assert!(told.story.contains(part), "{}", told.story);
    // With an endpoint here it is let in, and it is said why.
    let mut events = cluster();
    events.extend(balanced().map(|event| match event {
        ClusterEvent::SliceUpserted(mut slice) => {
            slice.endpoints[0].node = Some("node-a".into());
            ClusterEvent::SliceUpserted(slice)
        }
        other => other,
    }));
    let model = Model::after("node-a", events);
    let packet = packet("198.51.100.7", "198.51.100.7:80/tcp", None).unwrap();
    let told = explain(&model, &packet, Path::Packet);
    let part = "Source ranges: 198.51.100.7 is the load-balancer IP itself, and this node is in one \
                of 192.0.2.0/24, 203.0.113.0/24.";
    assert!(told.story.contains(part), "{}", told.story);
}

#[test]
fn an_agent_says_what_its_backend_does_not_do_of_it() {
    let lacks = &[Capability::ExternalTraffic, Capability::SourceRanges];
    let backend = choice::fixtures::lacking(lacks);
    let traffic = Traffic {
        detector: Detector::NodeCidr,
        masquerade_all: false,
    };
    let model = model(&traffic);
    for (from, to, path, expected) in [
        (
            "203.0.113.9",
            "192.0.2.1:30080/tcp",
            Path::Packet,
            &lacks[..1],
        ),
        ("203.0.113.9", "198.51.100.7:80/tcp", Path::Packet, lacks),
        (
            "10.244.0.9",
            "198.51.100.7:80/tcp",
            Path::Packet,
            &lacks[1..],
        ),
        ("192.0.2.1", "192.0.2.1:30080/tcp", Path::Packet, &[]),
        ("203.0.113.9", "192.0.2.1:30080/tcp", Path::Socket, &[]),
        ("203.0.113.9", "10.96.0.6:80/tcp", Path::Packet, &[]),
        ("203.0.113.9", "192.0.2.9:80/tcp", Path::Packet, &[]),
    ] {
        let packet = packet(from, to, None).unwrap();
        let told = explain_served(&model, &packet, path, &backend.clone().into());
        let plain = explain(&model, &packet, path);
        assert_eq!(told.answer.endpoints, plain.answer.endpoints);
        let rest = told.story.strip_prefix(&plain.story).unwrap();
        let lines = expected.iter();
        let lines = lines.map(|one| format!("  {one}: {}\n", one.without()));
        let mut lines = lines.collect::<Vec<_>>().concat();
        if !lines.is_empty() {
            lines = format!("\nWhat ebpf cannot do of this:\n{lines}");
        }
        assert_eq!(rest, lines, "{from} to {to}");
    }
}

#[test]
fn only_the_nearest_miss_is_told() {
    let none = Traffic::default();
    let told = ask(&none, "10.244.0.9", "10.96.0.1:80/udp", Path::Packet);
    let expected = "\
A packet from 10.244.0.9 to 10.96.0.1:80/UDP on node node-a is rejected: the sender gets an error, as for a closed port.

Frontend: none.
shop/web:http is served there for TCP, not for UDP.
Rule: 10.96.0.1 is a ClusterIP, but no Service has this port.
";
    assert_eq!(told.story, expected);
}

#[test]
fn of_very_many_endpoints_the_used_ones_are_shown_first() {
    let many: Vec<_> = (0..=255)
        .map(|last| (last, if last == 200 { "rs" } else { "s" }, "node-b"))
        .collect();
    let events = service("web", "10.96.0.1", "", TrafficPolicy::Cluster, &many);
    let model = Model::after("node-a", events);
    let packet = packet("10.244.0.9", "10.96.0.1:80/tcp", None).unwrap();
    let told = explain(&model, &packet, Path::Packet);
    assert!(
        told.story.contains("10.244.0.200:8080  node-b  yes"),
        "{}",
        told.story
    );
    assert!(told.story.ends_with("and 206 more\n"), "{}", told.story);
}
