//! The chains of one Service port in the table nat: who is masqueraded, who may come, and which endpoint a connection
//! gets. Pure.

use std::{net::SocketAddr, sync::Arc};

use ipnet::IpNet;
use proxy_model::{Frontend, FrontendKind, TrafficPolicy};

use super::Compiler;
use crate::{
    facts::{of_others, of_pods},
    names,
    rule::{Match, Rule},
    table::{FIREWALL, MARK, MARK_FOREIGN},
};

impl Compiler<'_> {
    pub(super) fn chains(&mut self) {
        if self.is_led() {
            let balanced: Vec<_> = self
                .externals()
                .filter(|one| one.kind == FrontendKind::LoadBalancerIp)
                .copied()
                .collect();
            if self.service.source_ranges.is_some() && !balanced.is_empty() {
                self.firewall(&balanced);
            }
            let rules = self.external_rules();
            self.chain(self.names.external(), rules);
        }
        let cluster_ips: Vec<_> = self
            .frontends
            .iter()
            .filter(|one| !one.kind.is_external())
            .copied()
            .collect();
        let internal = (!cluster_ips.is_empty()).then_some(self.service.internal_policy);
        let is_led = self.is_led();
        let external = self.service.external_policy;
        let mut used = Vec::new();
        for policy in [TrafficPolicy::Cluster, TrafficPolicy::Local] {
            // With Local, clients on this node have all endpoints.
            let of_externals = is_led && (policy == external || policy == TrafficPolicy::Cluster);
            let endpoints = self.set(policy).to_vec();
            if endpoints.is_empty() || !(internal == Some(policy) || of_externals) {
                continue;
            }
            let mut rules = Vec::new();
            if internal == Some(policy) {
                for frontend in &cluster_ips {
                    rules.extend(self.masquerading(frontend));
                }
            }
            rules.extend(self.choosing(&endpoints));
            self.chain(self.chain_of(policy), rules);
            used.extend(endpoints);
        }
        used.sort_unstable();
        used.dedup();
        for address in used {
            let rules = self.endpoint(address);
            self.chain(self.names.endpoint(self.key.protocol, address), rules);
        }
    }

    fn chain(&mut self, name: Arc<str>, rules: Vec<Rule>) {
        self.compiled.chains.push((name, rules));
    }

    /// Who of those that dial a ClusterIP is masqueraded.
    fn masquerading(&self, frontend: &Frontend) -> Option<Rule> {
        let dialled = |packets| {
            let comment = format!("{} cluster IP", self.names.text());
            let packets = self.narrowed(packets, frontend).comment(&comment);
            packets.port(frontend.port)
        };
        if self.facts.masquerade_all {
            return Some(dialled(Match::all()).jump(MARK));
        }
        let pods = self.facts.pods.as_ref()?;
        Some(match of_others(pods) {
            Some(foreign) => dialled(foreign).jump(MARK),
            None => dialled(Match::all()).jump(MARK_FOREIGN),
        })
    }

    fn external_rules(&self) -> Vec<Rule> {
        let policy = self.service.external_policy;
        let name = self.names.text();
        let said = |what: &str| format!("{what} traffic for {name} external destinations");
        let mut rules = Vec::new();
        if policy == TrafficPolicy::Cluster {
            rules.push(Match::all().comment(&said("masquerade")).jump(MARK));
        } else {
            // Without an endpoint they are not led anywhere, not to the local set either.
            let cluster = if self.cluster.is_empty() {
                "RETURN".into()
            } else {
                self.names.cluster()
            };
            let pods = self.facts.pods.iter().flat_map(of_pods);
            rules.extend(pods.map(|pod| pod.comment(&said("pod")).jump(&cluster)));
            let local = |what| {
                Match::all()
                    .comment(&said(what))
                    .with("-m addrtype --src-type LOCAL")
            };
            rules.push(local("masquerade LOCAL").jump(MARK));
            rules.push(local("route LOCAL").jump(&cluster));
        }
        if !self.set(policy).is_empty() {
            rules.push(Match::all().jump(&self.chain_of(policy)));
        }
        rules
    }

    fn firewall(&mut self, frontends: &[Frontend]) {
        let Some(ranges) = self.service.source_ranges.clone() else {
            return;
        };
        let (name, external) = (self.names.text(), self.names.external());
        let admitted = |net: IpNet| {
            let rule = Match::all().source(false, net);
            rule.comment(&format!("{name} loadbalancer IP"))
                .jump(&external)
        };
        let mut rules: Vec<_> = ranges.ranges.iter().map(|net| admitted(*net)).collect();
        if ranges.own_address {
            let own = frontends.iter().filter_map(|one| one.address);
            // This node may have the address itself, and send from it.
            rules.extend(own.map(|own| {
                let rule = Match::all()
                    .source(false, own.into())
                    .destination(false, own.into());
                rule.comment(&format!("{name} loadbalancer IP"))
                    .jump(&external)
            }));
        }
        let comment = format!("other traffic to {name} will be dropped by {FIREWALL}");
        rules.push(Match::all().comment(&comment).noted());
        self.chain(self.names.firewall(), rules);
    }

    /// Chooses one of `endpoints`: the one that the client had last, otherwise any.
    fn choosing(&self, endpoints: &[SocketAddr]) -> Vec<Rule> {
        let leading = |address: &SocketAddr| {
            let chain = self.names.endpoint(self.key.protocol, *address);
            let comment = format!("{} -> {address}", self.names.text());
            (self.annotated(Match::all(), &comment), chain)
        };
        let mut rules = Vec::new();
        if let Some(seconds) = self.service.affinity {
            rules.extend(endpoints.iter().map(leading).map(|(all, chain)| {
                let recent =
                    format!("-m recent --rcheck --seconds {seconds} --reap --name {chain}");
                all.with(&recent).jump(&chain)
            }));
        }
        for (left, address) in (1..=endpoints.len()).rev().zip(endpoints) {
            let (all, chain) = leading(address);
            let all = if left == 1 {
                all
            } else {
                all.with(&format!(
                    "-m statistic --mode random --probability {}",
                    probability(left)
                ))
            };
            rules.push(all.jump(&chain));
        }
        rules
    }

    fn annotated(&self, all: Match, comment: &str) -> Match {
        if self.facts.many {
            all
        } else {
            all.comment(comment)
        }
    }

    fn endpoint(&self, address: SocketAddr) -> Vec<Rule> {
        let name = self.names.text();
        let itself = Match::all().source(false, address.ip().into());
        let mut led = self.annotated(Match::all().protocol(self.key.protocol), name);
        if self.service.affinity.is_some() {
            let chain = self.names.endpoint(self.key.protocol, address);
            led = led.with(&format!("-m recent --set --name {chain}"));
        }
        let protocol = names::protocol(self.key.protocol);
        vec![
            // Otherwise the endpoint would answer itself, past this node.
            self.annotated(itself, name).jump(MARK),
            led.with(&format!("-m {protocol}"))
                .jump(&format!("DNAT --to-destination {address}")),
        ]
    }
}

/// The chance of one among `left` that are left, as kube-proxy writes it.
fn probability(left: usize) -> String {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a Service has not that many endpoints"
    )]
    let chance = 1.0 / left as f64;
    format!("{chance:0.10}")
}
