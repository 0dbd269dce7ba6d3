//! A namespace with the addresses of clients, endpoints and a node, rules that translate, and
//! states that say the same.

use std::{
    fmt::Write as _,
    io::Write as _,
    net::{SocketAddr, UdpSocket},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use proxy_model::{
    Endpoint, Frontend, FrontendKind, IpFamily, NodeState, ObjectName, Protocol, ServicePortKey,
    ServiceState, TrafficPolicy,
};
use proxy_tests::{
    netns::NetNs,
    requires::{self, Need},
};

const NEEDS: &[Need] = &[Need::Root, Need::Tool("ip"), Need::Tool("nft")];

/// Long enough for a busy machine: no test waits this long unless it fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs `test` on a thread in a namespace of its own. Packets to Services leave by a device whose
/// other end nobody listens at, if nobody translates them.
pub fn in_namespace(test: impl FnOnce() + Send) {
    if !requires::met("conntrack", NEEDS) {
        return;
    }
    let netns = NetNs::new().unwrap();
    netns
        .ip("link set lo up\n\
             link add d0 type veth peer name d1\n\
             link set d1 up\n\
             link set d0 up\n\
             address add 10.244.0.1/16 dev d0\n\
             address add 10.244.0.2/16 dev d0\n\
             address add 10.244.0.3/16 dev d0\n\
             address add 192.0.2.1/24 dev d0\n\
             address add fd00::1/64 dev d0\n\
             address add fd00::2/64 dev d0\n\
             address add fd00::3/64 dev d0\n\
             route add 10.96.0.0/16 dev d0\n\
             route add fd01::/64 dev d0\n\
             neighbor add 10.96.0.10 lladdr 02:00:00:00:00:01 dev d0\n")
        .unwrap();
    netns.run(test).unwrap();
}

/// Runs nft with these commands, in one transaction.
pub fn nft(commands: &str) {
    let mut nft = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = nft.stdin.take().unwrap();
    input.write_all(commands.as_bytes()).unwrap();
    drop(input);
    assert!(nft.wait().unwrap().success(), "nft: {commands}");
}

/// Puts rules into force that lead from each address to another, whatever the protocol, and takes
/// those of before out of force. One rule always asks conntrack for something: without any that
/// does, the kernel stops to look flows up, and translates none.
pub fn load(rules: &[(&str, &str)]) {
    let mut commands = String::from(
        "add table inet test\n\
         add chain inet test output { type nat hook output priority -100; }\n\
         flush chain inet test output\n\
         add rule inet test output ct state established accept\n",
    );
    for (from, to) in rules {
        let from: SocketAddr = from.parse().unwrap();
        let family = if from.is_ipv4() { "ip" } else { "ip6" };
        let (address, port) = (from.ip(), from.port());
        writeln!(
            commands,
            "add rule inet test output {family} daddr {address} meta l4proto {{ tcp, udp }} \
             th dport {port} dnat {family} to {to}"
        )
        .unwrap();
    }
    nft(&commands);
}

/// A state with a UDP Service for each frontend, which leads to one endpoint, or none if `""`. The
/// address `*` makes a NodePort.
pub fn state(services: &[(&str, &str)]) -> NodeState {
    let mut state = NodeState {
        node_port_addresses: ["192.0.2.1".parse().unwrap(), "127.0.0.1".parse().unwrap()].into(),
        ..NodeState::default()
    };
    for (frontend, endpoint) in services {
        let frontend = match frontend.strip_prefix("*:") {
            Some(port) => Frontend {
                kind: FrontendKind::NodePort,
                address: None,
                port: port.parse().unwrap(),
            },
            None => cluster_ip(frontend.parse().unwrap()),
        };
        let family = frontend.address.map_or(IpFamily::V4, IpFamily::of);
        let key = ServicePortKey {
            service: ObjectName::new("shop", frontend.to_string()),
            port: "".into(),
            protocol: Protocol::Udp,
            family,
        };
        let endpoints = endpoint.split_whitespace();
        let endpoints: Vec<_> = endpoints
            .map(|address| Endpoint::at(address.parse().unwrap()))
            .collect();
        let service = ServiceState {
            frontends: vec![frontend],
            has_any_endpoints: !endpoints.is_empty(),
            cluster_endpoints: Some(endpoints.into()),
            local_endpoints: None,
            internal_policy: TrafficPolicy::Cluster,
            external_policy: TrafficPolicy::Cluster,
            affinity: None,
            source_ranges: None,
        };
        state.services.insert(key, Arc::new(service));
    }
    state
}

fn cluster_ip(address: SocketAddr) -> Frontend {
    Frontend {
        kind: FrontendKind::ClusterIp,
        address: Some(address.ip()),
        port: address.port(),
    }
}

/// A socket at an endpoint's address.
pub fn socket(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// A socket that sends to a frontend, always from the same port.
pub fn client(frontend: &str) -> UdpSocket {
    let frontend: SocketAddr = frontend.parse().unwrap();
    let own = if frontend.is_ipv4() {
        "10.244.0.1:0"
    } else {
        "[fd00::1]:0"
    };
    let client = UdpSocket::bind(own).unwrap();
    client.connect(frontend).unwrap();
    client
}

/// The next datagram at an endpoint.
pub fn served(endpoint: &UdpSocket) -> String {
    let mut buffer = [0; 16];
    let length = endpoint.recv(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}
