//! What one Service port needs of the table: elements, chains, ranges. Pure, and of that Service
//! port alone.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use proxy_model::{
    Endpoint, Frontend, FrontendKind, IpFamily, ServicePortKey, ServiceState, TrafficPolicy,
};

use super::{
    chains::{At, Choice, ServiceChain, Sticky, StickyEndpoint},
    fixed::REFUSE,
    key::Key,
    names, ranges,
    ruleset::{Ranges, Value, Verdict},
    sets::Set,
};

/// What one Service port needs.
#[derive(Debug, Default)]
pub struct Compiled {
    /// Elements, each key once.
    pub elements: Vec<(Set, Key, Value)>,
    /// Chains, each once.
    pub chains: Vec<ServiceChain>,
    /// Named ranges.
    pub ranges: Option<Ranges>,
}

/// What `service` needs.
pub fn compile(key: &ServicePortKey, service: &ServiceState) -> Compiled {
    let mut service_port = Compiler {
        key,
        service,
        cluster: set(key.family, service.cluster_endpoints.as_deref()),
        local: set(key.family, service.local_endpoints.as_deref()),
        compiled: Compiled::default(),
    };
    let mut cluster_ips = BTreeSet::new();
    for frontend in &service.frontends {
        if frontend
            .address
            .is_some_and(|address| IpFamily::of(address) != key.family)
        {
            continue;
        }
        service_port.serve(frontend);
        if let (FrontendKind::ClusterIp, Some(address)) = (frontend.kind, frontend.address) {
            cluster_ips.insert(address);
        }
        if let (FrontendKind::LoadBalancerIp, Some(address)) = (frontend.kind, frontend.address) {
            service_port.restrict(address, frontend.port);
        }
    }
    let both = service_port.cluster.iter().chain(&service_port.local);
    let endpoints: BTreeSet<IpAddr> = both.map(SocketAddr::ip).collect();
    let mut compiled = service_port.compiled;
    let cluster_ips = cluster_ips.into_iter();
    compiled
        .elements
        .extend(cluster_ips.map(|ip| (Set::ClusterIps, Key::new().address(ip), Value::None)));
    compiled.elements.extend(endpoints.into_iter().map(|ip| {
        let pair = Key::new().address(ip).address(ip);
        (Set::Hairpin, pair, Value::None)
    }));
    compiled
}

/// The addresses of a set. Of another family would be none that the table can hold.
fn set(family: IpFamily, endpoints: Option<&[Endpoint]>) -> Vec<SocketAddr> {
    let addresses = endpoints.into_iter().flatten().map(|one| one.address);
    addresses
        .filter(|address| IpFamily::of(address.ip()) == family)
        .collect()
}

struct Compiler<'a> {
    key: &'a ServicePortKey,
    service: &'a ServiceState,
    cluster: Vec<SocketAddr>,
    local: Vec<SocketAddr>,
    compiled: Compiled,
}

impl Compiler<'_> {
    /// Elements and chains of one frontend.
    fn serve(&mut self, frontend: &Frontend) {
        let at = match frontend.address {
            Some(_) => At::Address,
            None => At::NodePort,
        };
        let policy = if frontend.kind.is_external() {
            self.service.external_policy
        } else {
            self.service.internal_policy
        };
        let (chain, choices) = match (frontend.kind.is_external(), policy) {
            (false, policy) => {
                let choice = self.choice(policy, 0);
                (choice.clone().map(ServiceChain::ClusterIp), [choice, None])
            }
            (true, TrafficPolicy::Cluster) => {
                let choice = self.choice(policy, 0);
                let chain = choice.clone();
                (
                    chain.map(|choice| ServiceChain::External(at, choice)),
                    [choice, None],
                )
            }
            (true, TrafficPolicy::Local) => {
                let cluster = self.choice(TrafficPolicy::Cluster, 0);
                let local = self.choice(TrafficPolicy::Local, self.cluster.len());
                let any = cluster.is_some() || local.is_some();
                let chain = any.then(|| ServiceChain::Local(at, cluster.clone(), local.clone()));
                (chain, [cluster, local])
            }
        };
        let numbered = match (frontend.kind.is_external(), policy) {
            (true, TrafficPolicy::Local) => [&self.cluster, &self.local],
            (_, TrafficPolicy::Cluster) => [&self.cluster, &Vec::new()],
            (false, TrafficPolicy::Local) => [&self.local, &Vec::new()],
        };
        let base = self.base(frontend);
        if self.service.affinity.is_none() {
            let (_, into) = sets(at);
            let numbered = numbered.into_iter().flatten().zip(0..);
            let elements = numbered.map(|(address, number)| {
                let value = Value::Endpoint(Key::new().endpoint(*address));
                (into, base.number(number), value)
            });
            self.compiled.elements.extend(elements);
        }
        let (frontends, _) = sets(at);
        let decides_for_all = match (&chain, policy) {
            (Some(ServiceChain::Local(_, cluster, _)), _) => cluster.is_some(),
            (chain, _) => chain.is_some(),
        };
        match &chain {
            Some(chain) => {
                let value = Value::Verdict(Verdict::Goto(chain.name()));
                self.compiled.elements.push((frontends, base, value));
            }
            // Not for a NodePort of the same number on the same address.
            None if at == At::Address => {
                let value = Value::Verdict(Verdict::Accept);
                self.compiled.elements.push((frontends, base, value));
            }
            None => {}
        }
        if !decides_for_all {
            let unserved = match at {
                At::Address => Set::Unserved,
                At::NodePort => Set::UnservedNodePorts,
            };
            // A load balancer that tries another node must not take it for a refusal.
            let verdict = if self.service.has_any_endpoints {
                Verdict::Drop
            } else {
                Verdict::Goto(REFUSE.into())
            };
            let element = (unserved, base, Value::Verdict(verdict));
            self.compiled.elements.push(element);
        }
        for choice in choices.into_iter().flatten() {
            self.choosing(at, choice);
        }
        if let Some(chain) = chain {
            self.chain(chain);
        }
    }

    fn base(&self, frontend: &Frontend) -> Key {
        let key = match frontend.address {
            Some(address) => Key::new().address(address),
            None => Key::new(),
        };
        key.protocol(self.key.protocol).port(frontend.port)
    }

    /// How an endpoint of the set for `policy` is chosen, where `before` others are numbered before
    /// it; `None` without one.
    fn choice(&self, policy: TrafficPolicy, before: usize) -> Option<Choice> {
        let endpoints = match policy {
            TrafficPolicy::Cluster => &self.cluster,
            TrafficPolicy::Local => &self.local,
        };
        if endpoints.is_empty() {
            return None;
        }
        let Some(seconds) = self.service.affinity else {
            return Some(Choice::Random {
                count: u32::try_from(endpoints.len()).ok()?,
                offset: u32::try_from(before).ok()?,
            });
        };
        let timeout = Duration::from_secs(seconds.get().into());
        let sticky = endpoints.iter().map(|&address| {
            let hash = names::hash(&[self.key, &address]);
            let timed = names::hash(&[self.key, &address, &seconds]);
            Arc::new(StickyEndpoint {
                name: names::of_service(ServiceChain::STICKY_ENDPOINT, timed, self.key),
                number: names::number(hash),
                protocol: self.key.protocol,
                address,
                timeout,
            })
        });
        let sticky: Vec<_> = sticky.collect();
        let all: Vec<_> = sticky.iter().map(|one| &*one.name).collect();
        let hash = names::hash(&[&all.join(" ")]);
        Some(Choice::Sticky(Arc::new(Sticky {
            name: names::of_service("sticky", hash, self.key),
            hash,
            number: names::number(hash),
            endpoints: sticky,
        })))
    }

    /// The chains that choose, and for session affinity the elements that they choose from.
    fn choosing(&mut self, at: At, choice: Choice) {
        // Those of Services with session affinity are the same for all frontends.
        let at = match choice {
            Choice::Sticky(_) => At::Address,
            Choice::Random { .. } => at,
        };
        if let Choice::Sticky(sticky) = &choice {
            let sticky = Arc::clone(sticky);
            for (endpoint, number) in sticky.endpoints.iter().zip(0_u32..) {
                self.chain(ServiceChain::StickyEndpoint(Arc::clone(endpoint)));
                let key = Key::new().number(number).number(sticky.number);
                let goto = Value::Verdict(Verdict::Goto(Arc::clone(&endpoint.name)));
                let element = (Set::StickyEndpoints, key, goto);
                if !self.compiled.elements.contains(&element) {
                    self.compiled.elements.push(element);
                }
            }
        }
        self.chain(ServiceChain::Choose(at, choice));
    }

    fn chain(&mut self, chain: ServiceChain) {
        if !self.compiled.chains.contains(&chain) {
            self.compiled.chains.push(chain);
        }
    }

    /// Who may dial a load-balancer IP.
    fn restrict(&mut self, address: IpAddr, port: u16) {
        let Some(allowed) = &self.service.source_ranges else {
            return;
        };
        let ranges = ranges::named(self.key.family, &allowed.ranges);
        let chain = ServiceChain::Restricted(
            Arc::clone(&ranges.name),
            allowed.own_address.then_some(address),
        );
        let key = Key::new()
            .address(address)
            .protocol(self.key.protocol)
            .port(port);
        let value = Value::Verdict(Verdict::Goto(chain.name()));
        self.compiled.elements.push((Set::Restricted, key, value));
        self.compiled.ranges = Some(ranges);
        self.chain(chain);
    }
}

/// Where the frontends, and where the endpoints are found.
const fn sets(at: At) -> (Set, Set) {
    match at {
        At::Address => (Set::Services, Set::Endpoints),
        At::NodePort => (Set::NodePorts, Set::NodeEndpoints),
    }
}
