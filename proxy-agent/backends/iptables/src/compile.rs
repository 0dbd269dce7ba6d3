//! What one Service port needs: rules in chains that all share, and chains of its own. Pure, and of that
//! Service port alone.

mod chains;

use std::{net::SocketAddr, sync::Arc};

use ipnet::IpNet;
use proxy_model::{
    Endpoint, Frontend, FrontendKind, IpFamily, ServicePortKey, ServiceState, TrafficPolicy,
};

use crate::{
    facts::{Facts, of_pods},
    names::Names,
    rule::{Match, Rule},
    table::Index,
};

/// What one Service port needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Compiled {
    /// Rules in chains that all share.
    pub index: Vec<(Index, Rule)>,
    /// Chains of its own in the table nat, each once, those first that lead to others.
    pub chains: Vec<(Arc<str>, Vec<Rule>)>,
}

/// What `service` needs.
pub fn compile(facts: &Facts, key: &ServicePortKey, service: &ServiceState) -> Compiled {
    let mut compiler = Compiler::new(facts, key, service);
    compiler.index();
    compiler.chains();
    compiler.compiled
}

/// Only the rules in chains that all share.
pub fn index(facts: &Facts, key: &ServicePortKey, service: &ServiceState) -> Vec<(Index, Rule)> {
    let mut compiler = Compiler::new(facts, key, service);
    compiler.index();
    compiler.compiled.index
}

/// What is known of the Service port, and what it needs as far as that is known.
struct Compiler<'a> {
    facts: &'a Facts,
    key: &'a ServicePortKey,
    service: &'a ServiceState,
    names: Names,
    cluster: Vec<SocketAddr>,
    local: Vec<SocketAddr>,
    /// Those of the family.
    frontends: Vec<Frontend>,
    compiled: Compiled,
}

impl<'a> Compiler<'a> {
    fn new(facts: &'a Facts, key: &'a ServicePortKey, service: &'a ServiceState) -> Self {
        let addresses = |set: &Option<Arc<[Endpoint]>>| -> Vec<SocketAddr> {
            let all = set.iter().flat_map(|set| set.iter()).map(|one| one.address);
            let of_family = all.filter(|one| IpFamily::of(one.ip()) == key.family);
            let mut addresses: Vec<_> = of_family.collect();
            // As kube-proxy does it, so that nothing is written for another order.
            addresses.sort_by_cached_key(SocketAddr::to_string);
            addresses
        };
        let mut frontends = service.frontends.clone();
        frontends.retain(|one| {
            one.address
                .is_none_or(|address| IpFamily::of(address) == key.family)
        });
        Self {
            facts,
            key,
            service,
            names: Names::of(key),
            cluster: addresses(&service.cluster_endpoints),
            local: addresses(&service.local_endpoints),
            frontends,
            compiled: Compiled::default(),
        }
    }

    fn set(&self, policy: TrafficPolicy) -> &[SocketAddr] {
        match policy {
            TrafficPolicy::Cluster => &self.cluster,
            TrafficPolicy::Local => &self.local,
        }
    }

    fn chain_of(&self, policy: TrafficPolicy) -> Arc<str> {
        match policy {
            TrafficPolicy::Cluster => self.names.cluster(),
            TrafficPolicy::Local => self.names.local(),
        }
    }

    fn externals(&self) -> impl Iterator<Item = &Frontend> {
        self.frontends.iter().filter(|one| one.kind.is_external())
    }

    /// Whether what is dialled from outside is led anywhere.
    fn is_led(&self) -> bool {
        let local = self.service.external_policy == TrafficPolicy::Local && !self.local.is_empty();
        self.externals().next().is_some() && (local || !self.cluster.is_empty())
    }

    /// Where what is dialled from outside finds no endpoint, in part at least.
    fn is_unserved(&self) -> bool {
        self.set(self.service.external_policy).is_empty()
    }

    fn add(&mut self, index: Index, rule: Rule) {
        self.compiled.index.push((index, rule));
    }

    /// What dials `frontend`.
    fn to(&self, frontend: &Frontend) -> Match {
        self.narrowed(Match::all(), frontend)
    }

    fn narrowed(&self, packets: Match, frontend: &Frontend) -> Match {
        let packets = packets.protocol(self.key.protocol);
        match frontend.address {
            Some(address) => packets.destination(false, address.into()),
            None => packets,
        }
    }

    /// What is done with what has no endpoint, and why.
    fn refusal(&self) -> (String, &'static str) {
        let name = self.names.text();
        if self.service.has_any_endpoints {
            // A load balancer that tries another node must not take it for a refusal.
            (format!("{name} has no local endpoints"), "DROP")
        } else {
            (format!("{name} has no endpoints"), "REJECT")
        }
    }

    fn index(&mut self) {
        for frontend in self.frontends.clone() {
            match frontend.kind {
                FrontendKind::ClusterIp => self.cluster_ip(&frontend),
                FrontendKind::LoadBalancerIp | FrontendKind::ExternalIp => self.external(&frontend),
                FrontendKind::NodePort => self.node_port(&frontend),
            }
        }
    }

    fn cluster_ip(&mut self, frontend: &Frontend) {
        let policy = self.service.internal_policy;
        if self.set(policy).is_empty() {
            let (why, target) = self.refusal();
            let rule = self
                .to(frontend)
                .comment(&why)
                .port(frontend.port)
                .jump(target);
            self.add(Index::Unserved, rule);
            self.keep_from_node_ports(frontend);
        } else {
            let rule = self.dialled(frontend, "cluster IP");
            self.add(Index::Services, rule.jump(&self.chain_of(policy)));
        }
    }

    fn dialled(&self, frontend: &Frontend, what: &str) -> Match {
        let comment = format!("{} {what}", self.names.text());
        self.to(frontend).comment(&comment).port(frontend.port)
    }

    fn external(&mut self, frontend: &Frontend) {
        let is_balanced = frontend.kind == FrontendKind::LoadBalancerIp;
        let what = if is_balanced {
            "loadbalancer IP"
        } else {
            "external IP"
        };
        let ranges = self.service.source_ranges.clone().filter(|_| is_balanced);
        if self.is_led() {
            let chain = match ranges {
                Some(_) => self.names.firewall(),
                None => self.names.external(),
            };
            let rule = self.dialled(frontend, what).jump(&chain);
            self.add(Index::Services, rule);
        }
        if !self.is_led() || ranges.is_some() {
            self.keep_from_node_ports(frontend);
        }
        if let Some(ranges) = ranges {
            if self.is_unserved() {
                // Those that may come are refused as others are.
                let own = frontend
                    .address
                    .filter(|_| ranges.own_address)
                    .map(IpNet::from);
                for net in ranges.ranges.iter().copied().chain(own) {
                    let rule = self.to(frontend).source(false, net);
                    let comment = format!("{} {what}", self.names.text());
                    let rule = rule.comment(&comment).port(frontend.port).jump("RETURN");
                    self.add(Index::Firewall, rule);
                }
            }
            let comment = format!(
                "{} traffic not accepted by {}",
                self.names.text(),
                self.names.firewall()
            );
            let rule = self
                .to(frontend)
                .comment(&comment)
                .port(frontend.port)
                .jump("DROP");
            self.add(Index::Firewall, rule);
        }
        if self.is_unserved() {
            self.refuse(Index::UnservedExternal, frontend);
        }
    }

    /// Refuses what was not led anywhere. What this node led to the very address that it dialled looks like that.
    fn refuse(&mut self, kind: Index, frontend: &Frontend) {
        let (why, target) = self.refusal();
        let is_itself = |one: &SocketAddr| {
            let is_dialled = match frontend.address {
                Some(address) => one.ip() == address,
                None => self.facts.node_ips.contains(&one.ip()),
            };
            is_dialled && one.port() == frontend.port
        };
        if self.cluster.iter().any(is_itself) {
            let pods = self.facts.pods.iter().flat_map(of_pods);
            let host = Match::all().with("-m addrtype --src-type LOCAL");
            let from_here: Vec<_> = pods.chain([host]).collect();
            for from_here in from_here {
                let rule = self.narrowed(from_here, frontend);
                self.add(kind, rule.port(frontend.port).jump("RETURN"));
            }
        }
        let mut rule = self.to(frontend).comment(&why);
        if frontend.address.is_none() && self.facts.on_all {
            rule = rule.with("-m addrtype --dst-type LOCAL");
        }
        self.add(kind, rule.port(frontend.port).jump(target));
    }

    /// A frontend at an address of this host is none for a NodePort of the same number, also while it leads
    /// nowhere.
    fn keep_from_node_ports(&mut self, frontend: &Frontend) {
        if frontend
            .address
            .is_some_and(|address| self.facts.node_ips.contains(&address))
        {
            let rule = self.dialled(frontend, "is no NodePort here").jump("RETURN");
            self.add(Index::Services, rule);
        }
    }

    fn node_port(&mut self, frontend: &Frontend) {
        if self.is_led() {
            let comment = self.names.text().to_owned();
            let rule = self.to(frontend).comment(&comment).port(frontend.port);
            self.add(Index::NodePorts, rule.jump(&self.names.external()));
        }
        if self.is_unserved() {
            self.refuse(Index::UnservedNodePort, frontend);
        }
    }
}
