//! Random cluster states: a small universe of names and addresses, so that walks meet the same
//! objects again and conflicts are common.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use proptest::{prelude::*, sample::select};
use proxy_model::{
    ClusterEvent, Conditions, Diagnostic, EndpointSlice, IpFamily, Node, ObjectName, Protocol,
    Service, ServiceCidr, ServicePort, SliceEndpoint, SlicePort, TrafficPolicy,
};

/// The node that states are computed for.
pub const NODE: &str = "node-a";

/// One step of a walk.
#[derive(Debug, Clone)]
pub enum Step {
    Service(Service),
    DeleteService(ObjectName),
    Slice(EndpointSlice),
    DeleteSlice(ObjectName),
    /// Moves all endpoints of one slice into another, the target first or last.
    Move {
        from: ObjectName,
        to: ObjectName,
        target_first: bool,
    },
    Node(Node),
    DeleteNode(Arc<str>),
    ServiceCidr(ServiceCidr),
    DeleteServiceCidr(Arc<str>),
    Diagnose(Arc<str>, Vec<Diagnostic>),
}

/// The objects that are there.
#[derive(Debug, Default)]
pub struct Objects {
    pub services: BTreeMap<ObjectName, Service>,
    pub slices: BTreeMap<ObjectName, EndpointSlice>,
    pub nodes: BTreeMap<Arc<str>, Node>,
    pub service_cidrs: BTreeMap<Arc<str>, ServiceCidr>,
    pub diagnosed: BTreeMap<Arc<str>, Vec<Diagnostic>>,
}

impl Objects {
    /// Takes one step; returns the events that a source would send.
    pub fn take(&mut self, step: Step) -> Vec<ClusterEvent> {
        match step {
            Step::Service(service) => {
                self.services.insert(service.name.clone(), service.clone());
                vec![ClusterEvent::ServiceUpserted(service)]
            }
            Step::DeleteService(name) => {
                self.services.remove(&name);
                vec![ClusterEvent::ServiceDeleted(name)]
            }
            Step::Slice(slice) => {
                self.slices.insert(slice.name.clone(), slice.clone());
                vec![ClusterEvent::SliceUpserted(slice)]
            }
            Step::DeleteSlice(name) => {
                self.slices.remove(&name);
                vec![ClusterEvent::SliceDeleted(name)]
            }
            Step::Move {
                from,
                to,
                target_first,
            } => self.move_endpoints(&from, &to, target_first),
            Step::Node(node) => {
                self.nodes.insert(Arc::clone(&node.name), node.clone());
                vec![ClusterEvent::NodeUpserted(node)]
            }
            Step::DeleteNode(name) => {
                self.nodes.remove(&name);
                vec![ClusterEvent::NodeDeleted(name)]
            }
            Step::ServiceCidr(cidr) => {
                self.service_cidrs
                    .insert(Arc::clone(&cidr.name), cidr.clone());
                vec![ClusterEvent::ServiceCidrUpserted(cidr)]
            }
            Step::DeleteServiceCidr(name) => {
                self.service_cidrs.remove(&name);
                vec![ClusterEvent::ServiceCidrDeleted(name)]
            }
            Step::Diagnose(object, diagnostics) => {
                self.diagnosed
                    .insert(Arc::clone(&object), diagnostics.clone());
                vec![ClusterEvent::Diagnosed {
                    object,
                    diagnostics,
                }]
            }
        }
    }

    fn move_endpoints(
        &mut self,
        from: &ObjectName,
        to: &ObjectName,
        target_first: bool,
    ) -> Vec<ClusterEvent> {
        if from == to || !self.slices.contains_key(to) {
            return Vec::new();
        }
        let Some(source) = self.slices.get_mut(from) else {
            return Vec::new();
        };
        let moved = std::mem::take(&mut source.endpoints);
        let source = ClusterEvent::SliceUpserted(source.clone());
        let target = self.slices.get_mut(to).unwrap();
        target.endpoints.extend(moved);
        let target = ClusterEvent::SliceUpserted(target.clone());
        if target_first {
            vec![target, source]
        } else {
            vec![source, target]
        }
    }

    /// Events that lead from an empty cluster to these objects.
    pub fn events(&self) -> Vec<ClusterEvent> {
        let services = self
            .services
            .values()
            .cloned()
            .map(ClusterEvent::ServiceUpserted);
        let slices = self
            .slices
            .values()
            .cloned()
            .map(ClusterEvent::SliceUpserted);
        let nodes = self.nodes.values().cloned().map(ClusterEvent::NodeUpserted);
        let service_cidrs = self
            .service_cidrs
            .values()
            .cloned()
            .map(ClusterEvent::ServiceCidrUpserted);
        let diagnosed =
            self.diagnosed
                .iter()
                .map(|(object, diagnostics)| ClusterEvent::Diagnosed {
                    object: Arc::clone(object),
                    diagnostics: diagnostics.clone(),
                });
        services
            .chain(slices)
            .chain(nodes)
            .chain(service_cidrs)
            .chain(diagnosed)
            .collect()
    }

    /// Events that lead from these objects to an empty cluster.
    pub fn deletions(&self) -> Vec<ClusterEvent> {
        let services = self
            .services
            .keys()
            .cloned()
            .map(ClusterEvent::ServiceDeleted);
        let slices = self.slices.keys().cloned().map(ClusterEvent::SliceDeleted);
        let nodes = self.nodes.keys().cloned().map(ClusterEvent::NodeDeleted);
        let service_cidrs = self
            .service_cidrs
            .keys()
            .cloned()
            .map(ClusterEvent::ServiceCidrDeleted);
        let diagnosed = self.diagnosed.keys().map(|object| ClusterEvent::Diagnosed {
            object: Arc::clone(object),
            diagnostics: Vec::new(),
        });
        services
            .chain(slices)
            .chain(nodes)
            .chain(service_cidrs)
            .chain(diagnosed)
            .collect()
    }
}

/// Shuffles by a small generator of its own: the order must come from the test case alone.
pub fn shuffle<T>(items: &mut [T], mut seed: u64) {
    for last in (1..items.len()).rev() {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let other = usize::try_from(seed >> 33).unwrap() % (last + 1);
        items.swap(last, other);
    }
}

pub fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => service().prop_map(Step::Service),
        2 => service_name().prop_map(Step::DeleteService),
        8 => slice().prop_map(Step::Slice),
        2 => slice_name().prop_map(Step::DeleteSlice),
        3 => (slice_name(), slice_name(), any::<bool>())
            .prop_map(|(from, to, target_first)| Step::Move { from, to, target_first }),
        1 => node().prop_map(Step::Node),
        1 => node_name().prop_map(Step::DeleteNode),
        1 => service_cidr().prop_map(Step::ServiceCidr),
        1 => service_cidr_name().prop_map(Step::DeleteServiceCidr),
        1 => diagnose(),
    ]
}

fn namespace() -> impl Strategy<Value = &'static str> {
    select(&["blue", "red"][..])
}

fn service_name() -> impl Strategy<Value = ObjectName> {
    (namespace(), select(&["api", "web"][..]))
        .prop_map(|(namespace, name)| ObjectName::new(namespace, name))
}

fn slice_name() -> impl Strategy<Value = ObjectName> {
    (namespace(), select(&["s1", "s2", "s3"][..]))
        .prop_map(|(namespace, name)| ObjectName::new(namespace, name))
}

fn node_name() -> impl Strategy<Value = Arc<str>> {
    select(&[NODE, "node-b"][..]).prop_map(Into::into)
}

fn node() -> impl Strategy<Value = Node> {
    (
        node_name(),
        prop::option::of(select(&["zone-a", "zone-b"][..])),
        prop::option::of(select(&["10.0.0.0/24", "10.0.1.0/24"][..])),
        prop::option::of(select(&["192.0.2.1", "2001:db8::1"][..])),
        any::<bool>(),
    )
        .prop_map(|(name, zone, pods, address, eligible)| Node {
            name,
            zone: zone.map(Into::into),
            pod_cidrs: pods.into_iter().map(|cidr| cidr.parse().unwrap()).collect(),
            addresses: address.into_iter().map(|ip| ip.parse().unwrap()).collect(),
            eligible,
        })
}

fn service_cidr_name() -> impl Strategy<Value = Arc<str>> {
    select(&["kubernetes", "more"][..]).prop_map(Into::into)
}

fn service_cidr() -> impl Strategy<Value = ServiceCidr> {
    // Ranges that overlap, within one object and between two.
    let cidrs = select(&["10.96.0.0/24", "10.96.0.0/16", "fd00:96::/112"][..]);
    (service_cidr_name(), prop::collection::vec(cidrs, 0..3)).prop_map(|(name, cidrs)| {
        ServiceCidr {
            name,
            cidrs: cidrs
                .into_iter()
                .map(|cidr| cidr.parse().unwrap())
                .collect(),
        }
    })
}

fn port_name() -> impl Strategy<Value = Arc<str>> {
    select(&["", "dns", "http"][..]).prop_map(Into::into)
}

fn protocol() -> impl Strategy<Value = Protocol> {
    select(&[Protocol::Tcp, Protocol::Udp][..])
}

fn service() -> impl Strategy<Value = Service> {
    let v4 = prop::option::weighted(0.9, select(&["10.96.0.1", "10.96.0.2"][..]));
    let v6 = prop::option::weighted(0.5, select(&["fd00:96::1", "fd00:96::2"][..]));
    let port =
        (port_name(), protocol(), select(&[53, 80][..])).prop_map(|(name, protocol, port)| {
            ServicePort {
                name,
                protocol,
                port,
                node_port: None,
            }
        });
    let policy = select(&[TrafficPolicy::Cluster, TrafficPolicy::Local][..]);
    (
        service_name(),
        v4,
        v6,
        prop::collection::vec(port, 0..4),
        policy,
    )
        .prop_map(|(name, v4, v6, mut ports, internal_policy)| {
            // Unique by name and protocol, as the type promises.
            ports.sort_by(|a, b| (&a.name, a.protocol).cmp(&(&b.name, b.protocol)));
            ports.dedup_by(|a, b| (&a.name, a.protocol) == (&b.name, b.protocol));
            let cluster_ips = v4
                .into_iter()
                .chain(v6)
                .map(|ip| ip.parse().unwrap())
                .collect();
            Service {
                name,
                cluster_ips,
                ports,
                internal_policy,
                ..Service::default()
            }
        })
}

fn slice() -> impl Strategy<Value = EndpointSlice> {
    let port =
        (port_name(), protocol(), select(&[8080, 9090][..])).prop_map(|(name, protocol, port)| {
            SlicePort {
                name,
                protocol,
                port,
            }
        });
    let family = select(&[IpFamily::V4, IpFamily::V6][..]);
    (
        slice_name(),
        select(&["api", "web"][..]),
        family,
        prop::collection::vec(port, 0..3),
        prop::collection::vec(endpoint(), 0..5),
    )
        .prop_map(|(name, service, family, ports, mut endpoints)| {
            for endpoint in &mut endpoints {
                if let (IpFamily::V6, IpAddr::V4(v4)) = (family, endpoint.address) {
                    let last = u16::from(v4.octets()[3]);
                    endpoint.address = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last]);
                }
            }
            let service = ObjectName::new(Arc::clone(&name.namespace), service);
            EndpointSlice {
                name,
                service,
                family,
                ports,
                endpoints,
            }
        })
}

fn endpoint() -> impl Strategy<Value = SliceEndpoint> {
    let node = select(&[None, Some(NODE), Some("node-b")][..]);
    let conditions =
        (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(ready, serving, terminating)| {
            Conditions {
                ready,
                serving,
                terminating,
            }
        });
    (1..4_u8, conditions, node).prop_map(|(last, conditions, node)| SliceEndpoint {
        address: IpAddr::from([10, 0, 0, last]),
        conditions,
        node: node.map(Into::into),
        hints: None,
    })
}

fn diagnose() -> impl Strategy<Value = Step> {
    let object = select(&["Service blue/web", "EndpointSlice red/s1"][..]);
    (object, select(vec![vec![], vec!["a"], vec!["b", "a"]])).prop_map(|(object, fields)| {
        let object: Arc<str> = object.into();
        let diagnostics = fields
            .iter()
            .map(|field| Diagnostic {
                object: Arc::clone(&object),
                field: (*field).to_owned(),
                message: "is odd".to_owned(),
            })
            .collect();
        Step::Diagnose(object, diagnostics)
    })
}
