//! A node with one of each kind of client, a pod that serves, and a Service of each kind.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use proxy_model::Protocol;
use proxy_tests::{
    Server, World,
    journey::tun::Tun,
    pod::Listen,
    world::{Host, NODE_ADDRESSES},
};

use super::packets::Ears;

/// The node's address.
pub const NODE: IpAddr = NODE_ADDRESSES[0];
/// A pod's.
pub const POD: IpAddr = v4(10, 244, 254, 1);
/// That of a host elsewhere, which is routed through the node.
pub const OUTSIDE: IpAddr = v4(203, 0, 113, 7);
/// That of a virtual machine, which the node knows as a device of frames.
pub const MACHINE: IpAddr = v4(10, 244, 253, 1);
/// Where all is served.
const ENDPOINT: IpAddr = v4(10, 244, 0, 1);

/// The node's end of the wire of the machine, and the other one.
pub const WIRE: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

/// What a client dials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dials {
    ClusterIp,
    NodePort,
    /// The NodePort on 127.0.0.1.
    Loopback,
    ExternalIp,
    LoadBalancer,
    /// A load-balancer IP with source ranges: the pod is in one.
    Ranged,
    /// A ClusterIP without endpoints.
    Empty,
    /// A ClusterIP whose policy allows none of the endpoints here.
    Elsewhere,
    UnknownPort,
    Unallocated,
    /// A ClusterIP whose endpoint is the node on the number of a NodePort.
    ToNodePort,
    /// A ClusterIP whose endpoint is a ClusterIP.
    ToClusterIp,
    /// A ClusterIP whose endpoint is a ClusterIP without endpoints.
    ToEmpty,
}

impl Dials {
    /// The address with the port of that protocol.
    pub fn address(self, protocol: Protocol) -> SocketAddr {
        let [port, node_port] = match protocol {
            Protocol::Tcp => [80, 30080],
            Protocol::Udp => [53, 30053],
            Protocol::Sctp => [99, 30099],
        };
        match self {
            Self::ClusterIp => (v4(10, 96, 0, 1), port),
            Self::NodePort => (NODE, node_port),
            Self::Loopback => (Ipv4Addr::LOCALHOST.into(), node_port),
            Self::ExternalIp => (v4(198, 51, 100, 1), port),
            Self::LoadBalancer => (v4(198, 51, 100, 2), port),
            Self::Ranged => (v4(198, 51, 100, 3), port),
            Self::Empty => (v4(10, 96, 0, 3), port),
            Self::Elsewhere => (v4(10, 96, 0, 4), port),
            Self::UnknownPort => (v4(10, 96, 0, 1), 9999),
            Self::Unallocated => (v4(10, 96, 9, 9), port),
            Self::ToNodePort => (v4(10, 96, 0, 5), port),
            Self::ToClusterIp => (v4(10, 96, 0, 6), port),
            Self::ToEmpty => (v4(10, 96, 0, 7), port),
        }
        .into()
    }
}

/// A Service on the ClusterIP `10.96.0.NUMBER` with its endpoints, of three protocols.
fn service(number: u8, spec: &str, status: &str, endpoints: &str, ports: [u16; 3]) -> String {
    let [tcp, udp, sctp] = ports;
    let node_ports = match number {
        1 => [
            ", nodePort: 30080",
            ", nodePort: 30053",
            ", nodePort: 30099",
        ],
        _ => [""; 3],
    };
    let [tcp_node, udp_node, sctp_node] = node_ports;
    format!(
        "---
apiVersion: v1
kind: Service
metadata: {{name: s{number}, namespace: shop}}
spec:
  clusterIP: 10.96.0.{number}
  clusterIPs: [10.96.0.{number}]
{spec}  ports:
  - {{name: tcp, port: 80, protocol: TCP{tcp_node}}}
  - {{name: udp, port: 53, protocol: UDP{udp_node}}}
  - {{name: sctp, port: 99, protocol: SCTP{sctp_node}}}
{status}---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: s{number}-1
  namespace: shop
  labels: {{kubernetes.io/service-name: s{number}}}
addressType: IPv4
ports:
- {{name: tcp, port: {tcp}, protocol: TCP}}
- {{name: udp, port: {udp}, protocol: UDP}}
- {{name: sctp, port: {sctp}, protocol: SCTP}}
endpoints: {endpoints}
"
    )
}

/// All Services, and which addresses are ClusterIPs.
pub fn cluster() -> String {
    const SERVED: [u16; 3] = [8080, 5353, 9999];
    let here = format!("[{{addresses: [\"{ENDPOINT}\"], nodeName: node-a}}]");
    let balanced = |ip: &str| format!("status: {{loadBalancer: {{ingress: [{{ip: {ip}}}]}}}}\n");
    let ranges = "  type: LoadBalancer\n  allocateLoadBalancerNodePorts: false\n  \
                  loadBalancerSourceRanges: [10.244.254.0/24]\n";
    let cidr = "---
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [10.96.0.0/16]}
";
    [
        service(
            1,
            "  type: LoadBalancer\n  externalIPs: [198.51.100.1]\n",
            &balanced("198.51.100.2"),
            &here,
            SERVED,
        ),
        service(2, ranges, &balanced("198.51.100.3"), &here, SERVED),
        service(3, "", "", "[]", SERVED),
        service(
            4,
            "  internalTrafficPolicy: Local\n",
            "",
            "[{addresses: [\"10.244.1.1\"], nodeName: node-b}]",
            SERVED,
        ),
        service(
            5,
            "",
            "",
            &format!("[{{addresses: [\"{NODE}\"], nodeName: node-a}}]"),
            [30080, 30053, 30099],
        ),
        service(
            6,
            "",
            "",
            "[{addresses: [\"10.96.0.1\"], nodeName: node-a}]",
            [80, 53, 99],
        ),
        service(
            7,
            "",
            "",
            "[{addresses: [\"10.96.0.3\"], nodeName: node-a}]",
            [80, 53, 99],
        ),
        cidr.to_owned(),
    ]
    .concat()
}

/// The node and those around it.
pub struct Stage {
    pub world: World,
    pub pod: Host,
    pub outside: Host,
    /// What reaches the endpoint.
    pub arrivals: Ears,
    _endpoint: Host,
    _server: Server,
}

impl Stage {
    /// Builds it, and the wire of a virtual machine.
    pub fn new() -> (Self, Tun) {
        let world = World::routed(&[], &[OUTSIDE]).unwrap();
        let pod = world.pod("client", &[POD]).unwrap();
        let outside = world.pod("outside", &[OUTSIDE]).unwrap();
        let endpoint = world.pod("endpoint", &[ENDPOINT]).unwrap();
        let arrivals = Ears::at(&endpoint);
        let listen = [
            Listen::tcp((ENDPOINT, 8080).into()),
            Listen::udp((ENDPOINT, 5353).into()),
        ];
        let server = Server::start(&endpoint, &listen).unwrap();
        let node = world.node().netns();
        let wire = node.run(|| Tun::of_frames("tap0")).unwrap().unwrap();
        let [own, theirs] = WIRE.map(|address| address.map(|byte| format!("{byte:02x}")).join(":"));
        node.ip(&format!(
            "link set tap0 address {own} up\n\
             route add {MACHINE}/32 dev tap0 src {NODE}\n\
             neigh add {MACHINE} lladdr {theirs} dev tap0 nud permanent\n"
        ))
        .unwrap();
        let stage = Self {
            world,
            pod,
            outside,
            arrivals,
            _endpoint: endpoint,
            _server: server,
        };
        (stage, wire)
    }
}
