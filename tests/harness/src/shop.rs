//! A small cluster for tests that are about something else: Services with the same two ports,
//! and one pod that carries every endpoint address.
//!
//! Each Service has `http` (80/TCP, on endpoints 8080) and `dns` (53/UDP, on endpoints 5353).

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Result, anyhow};

use crate::{
    pod::{Listen, Load, Prober, Server, Transport},
    world::{Host, World},
};

/// Endpoint addresses of each family that have servers.
const ENDPOINTS: u8 = 8;

/// A world with a pod that serves and a pod to probe from.
#[derive(Debug)]
pub struct Shop {
    /// The node.
    pub world: World,
    /// A pod without servers.
    pub client: Host,
    _endpoints: Host,
    _server: Server,
}

impl Shop {
    /// Builds it.
    pub fn new() -> Result<Self> {
        Self::on(World::new()?)
    }

    /// Builds it on a node that everything passes through as packets.
    pub fn routed() -> Result<Self> {
        Self::on(World::routed(&[], &[])?)
    }

    fn on(world: World) -> Result<Self> {
        let client = [Ipv4Addr::new(10, 244, 254, 1).into(), v6(0xfe01).into()];
        let client = world.pod("client", &client)?;
        let addresses: Vec<IpAddr> = (1..=ENDPOINTS)
            .flat_map(|number| [v4(number).into(), v6(number.into()).into()])
            .collect();
        let endpoints = world.pod("endpoints", &addresses)?;
        let listen: Vec<_> = addresses
            .iter()
            .flat_map(|ip| {
                let (http, dns) = (SocketAddr::new(*ip, 8080), SocketAddr::new(*ip, 5353));
                [Listen::tcp(http), Listen::udp(dns)]
            })
            .collect();
        let server = Server::start(&endpoints, &listen)?;
        Ok(Self {
            world,
            client,
            _endpoints: endpoints,
            _server: server,
        })
    }
}

fn v4(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 244, 0, number)
}

fn v6(number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0x10, 0x244, 0, 0, 0, 0, number)
}

/// Where HTTP is served on the IPv4 endpoint `number`, from 1 to 8.
pub fn http(number: u8) -> SocketAddr {
    (v4(number), 8080).into()
}

/// Where UDP is served on the IPv4 endpoint `number`.
pub fn dns(number: u8) -> SocketAddr {
    (v4(number), 5353).into()
}

/// Where UDP is served on the IPv6 endpoint `number`.
pub fn dns6(number: u8) -> SocketAddr {
    (v6(number.into()), 5353).into()
}

/// The ClusterIP of the Service `number`, with a port.
pub fn frontend(number: u8, port: u16) -> SocketAddr {
    (Ipv4Addr::new(10, 96, 0, number), port).into()
}

/// The IPv6 ClusterIP of the Service `number`, with a port.
pub fn frontend6(number: u8, port: u16) -> SocketAddr {
    (
        Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, number.into()),
        port,
    )
        .into()
}

/// The name of a load, what it sends, whether always from the same socket, and whether over IPv6.
pub type LoadKind = (&'static str, Transport, bool, bool);

/// Such loads, of one thread each, to the Service `number`.
pub fn loads(number: u8, kinds: &[LoadKind]) -> Vec<Load> {
    let one = |(name, transport, keep, over_v6): &LoadKind| {
        let port = if transport.is_udp() { 53 } else { 80 };
        let frontend = if *over_v6 { frontend6 } else { frontend };
        Load {
            name: (*name).to_owned(),
            transport: *transport,
            to: frontend(number, port),
            threads: 1,
            pause: Duration::from_micros(500),
            keep: *keep,
        }
    };
    kinds.iter().map(one).collect()
}

/// So many that one of eight endpoints, chosen at random, is missed once in 10^13 times.
const ATTEMPTS: u32 = 250;

/// Which endpoints answer at `to`; every attempt must be answered, and as `to`.
pub fn answers(
    prober: &mut Prober,
    transport: Transport,
    to: SocketAddr,
) -> Result<BTreeSet<SocketAddr>> {
    let attempts = prober.send(transport, to, ATTEMPTS)?;
    let answers = attempts.iter().map(|attempt| attempt.answer_as(to));
    answers
        .collect::<Result<_, _>>()
        .map_err(|error| anyhow!("{to}: {error}"))
}

/// The error of one attempt, by name, if it failed.
pub fn errno(prober: &mut Prober, transport: Transport, to: SocketAddr) -> Result<Option<String>> {
    let attempts = prober.send(transport, to, 1)?;
    Ok(attempts[0].errno().map(str::to_owned))
}

/// Manifest of the dual-stack Service `shop/s<number>` with these endpoints of each family.
pub fn service(number: u8, endpoints: &[u8]) -> String {
    let (ip, ip6) = (frontend(number, 80).ip(), frontend6(number, 80).ip());
    let mut text = format!(
        "---
apiVersion: v1
kind: Service
metadata: {{name: s{number}, namespace: shop}}
spec:
  clusterIP: {ip}
  clusterIPs: [{ip}, \"{ip6}\"]
  ipFamilies: [IPv4, IPv6]
  ports:
  - {{name: http, port: 80, protocol: TCP}}
  - {{name: dns, port: 53, protocol: UDP}}
"
    );
    slice(
        &mut text,
        number,
        "IPv4",
        endpoints.iter().map(|number| v4(*number).into()),
    );
    slice(
        &mut text,
        number,
        "IPv6",
        endpoints.iter().map(|number| v6((*number).into()).into()),
    );
    text
}

/// Addresses of the load balancer of the Service `number`. No interface has them.
pub fn balanced(number: u8) -> [IpAddr; 2] {
    let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0xaa, 0, 0, 0, 0, number.into());
    [Ipv4Addr::new(203, 0, 113, number).into(), v6.into()]
}

/// [`service`] behind a load balancer, with external policy Local, and these source ranges (a list in
/// YAML, without its brackets).
pub fn ranged_service(number: u8, endpoints: &[u8], ranges: &str) -> String {
    let [v4, v6] = balanced(number);
    let spec = format!(
        "  type: LoadBalancer\n  externalTrafficPolicy: Local\n  \
         allocateLoadBalancerNodePorts: false\n  loadBalancerSourceRanges: [{ranges}]\n  ports:\n"
    );
    let status = format!(
        "protocol: UDP}}\nstatus: {{loadBalancer: {{ingress: [{{ip: {v4}}}, {{ip: \"{v6}\"}}]}}}}\n"
    );
    service(number, endpoints)
        .replacen("  ports:\n", &spec, 1)
        .replacen("protocol: UDP}\n", &status, 1)
}

/// Manifest of the Service `shop/s<number>` with one IPv4 port (`http`) only: one Service port,
/// one frontend, one set.
pub fn small_service(number: u8, endpoints: &[u8]) -> String {
    let ip = frontend(number, 80).ip();
    let mut text = format!(
        "---
apiVersion: v1
kind: Service
metadata: {{name: s{number}, namespace: shop}}
spec:
  clusterIP: {ip}
  clusterIPs: [{ip}]
  ports:
  - {{name: http, port: 80, protocol: TCP}}
"
    );
    slice(
        &mut text,
        number,
        "IPv4",
        endpoints.iter().map(|number| v4(*number).into()),
    );
    text
}

fn slice(text: &mut String, service: u8, family: &str, addresses: impl Iterator<Item = IpAddr>) {
    let endpoints: Vec<_> = addresses
        .map(|ip| format!("{{addresses: [\"{ip}\"], nodeName: node-a}}"))
        .collect();
    write!(
        text,
        "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: s{service}-{}
  namespace: shop
  labels: {{kubernetes.io/service-name: s{service}}}
addressType: {family}
ports:
- {{name: http, port: 8080, protocol: TCP}}
- {{name: dns, port: 5353, protocol: UDP}}
endpoints: [{}]
",
        family.to_lowercase(),
        endpoints.join(", ")
    )
    .expect("writing to a String cannot fail");
}
