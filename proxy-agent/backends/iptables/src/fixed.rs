//! What no Service decides: the chains that are always there, and where packets enter them. Pure.
//!
//! ```text
//! nat     PREROUTING, OUTPUT ──> KUBE-SERVICES ──> a chain of the Service, by address; last KUBE-NODEPORTS
//!         POSTROUTING ──> KUBE-POSTROUTING: what is marked is masqueraded
//! mangle  PREROUTING ──> what others send to loopback addresses, or from there, is dropped
//! filter  INPUT, FORWARD, OUTPUT ──> what source ranges do not admit, what has no endpoints
//!         INPUT ──> health checks are accepted;  FORWARD ──> what was translated is accepted
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use proxy_backend::Translates;
use proxy_model::{IpFamily, Protocol};

use crate::{
    facts::{Facts, Localnet, of_others, of_pods},
    rule::{Match, Rule},
    table::{
        At, EXTERNAL_SERVICES, FIREWALL, FORWARD, LOCALNET, MARK, MARK_FOREIGN, NODE_PORTS,
        POSTROUTING, SERVICES, Table, UNSERVED_NODE_PORTS, counters,
    },
};

/// Where packets enter chains of ours: a rule of a chain that everybody has.
pub struct Jump {
    /// The table, and the chain that everybody has.
    pub at: At,
    /// What leads to a chain of ours.
    pub rule: Rule,
}

/// Those that are there only where there is a chain for what others send to loopback addresses, or from there.
pub fn localnet_jumps() -> [Jump; 2] {
    [(Table::Mangle, "PREROUTING"), (Table::Filter, "INPUT")].map(|at| {
        let rule = Match::all().comment("packets from others to loopback addresses");
        Jump {
            at,
            rule: rule.jump(LOCALNET),
        }
    })
}

/// All others, those of one chain in the order in which packets are to meet them.
pub fn jumps() -> Vec<Jump> {
    let jump = |table, chain, rule| Jump {
        at: (table, chain),
        rule,
    };
    let new = |why| Match::all().with("-m conntrack --ctstate NEW").comment(why);
    let firewall = || new("kubernetes load balancer firewall").jump(FIREWALL);
    let services = || new("kubernetes service portals").jump(SERVICES);
    let external = || new("kubernetes externally-visible service portals").jump(EXTERNAL_SERVICES);
    let checks = Match::all()
        .comment("kubernetes health check service ports")
        .jump(NODE_PORTS);
    let forward = Match::all()
        .comment("kubernetes forwarding rules")
        .jump(FORWARD);
    let portals = || {
        Match::all()
            .comment("kubernetes service portals")
            .jump(SERVICES)
    };
    let postrouting = Match::all()
        .comment("kubernetes postrouting rules")
        .jump(POSTROUTING);
    let (filter, nat) = (Table::Filter, Table::Nat);
    vec![
        jump(filter, "INPUT", firewall()),
        jump(filter, "INPUT", checks),
        jump(filter, "INPUT", external()),
        jump(filter, "FORWARD", firewall()),
        jump(filter, "FORWARD", forward),
        jump(filter, "FORWARD", services()),
        jump(filter, "FORWARD", external()),
        jump(filter, "OUTPUT", firewall()),
        jump(filter, "OUTPUT", services()),
        // kube-proxy has none of this: what this host itself dials waits in vain there.
        jump(filter, "OUTPUT", external()),
        jump(nat, "PREROUTING", portals()),
        jump(nat, "OUTPUT", portals()),
        jump(nat, "POSTROUTING", postrouting),
    ]
}

/// The first rules of a chain that refuses. What was led to an endpoint is none of what it refuses, though the
/// endpoint may be at an address that is; and what is at loopback addresses belongs to others. kube-proxy has
/// neither, and refuses both.
pub fn exempt(facts: &Facts, chain: &str) -> Vec<Rule> {
    let led = Match::all().with("-m conntrack --ctstate DNAT");
    // Packets that open connections come by here.
    let counted = facts.options.counters && facts.localnet.is_served() && chain == SERVICES;
    let counted = counted.then(|| {
        let at_loopback = format!("--ctorigdst {}", loopback(facts.family));
        let led = led.clone().with(&at_loopback);
        counting(led, counters::LOCALHOST).jump("RETURN")
    });
    let mut at_loopback = Match::all().destination(false, loopback(facts.family));
    if facts.localnet.is_served() {
        at_loopback = at_loopback.with("-m addrtype ! --src-type LOCAL");
    }
    let is_of_node_ports = chain == EXTERNAL_SERVICES;
    counted
        .into_iter()
        .chain([led.jump("RETURN")])
        .chain(is_of_node_ports.then(|| at_loopback.jump("RETURN")))
        .collect()
}

/// Rules that stand behind those of Services in a chain that all share.
pub fn behind(facts: &Facts) -> Vec<(At, Vec<Rule>)> {
    let mut rules = vec![((Table::Nat, SERVICES), to_node_ports(facts))];
    if facts.on_all {
        return rules;
    }
    let jump = |address: &IpAddr| {
        Match::all()
            .destination(false, (*address).into())
            .jump(UNSERVED_NODE_PORTS)
    };
    let localnet = facts
        .localnet
        .is_served()
        .then(|| own_to_loopback(facts).jump(UNSERVED_NODE_PORTS));
    let all = facts.node_ips.iter().map(jump).chain(localnet).collect();
    rules.push(((Table::Filter, EXTERNAL_SERVICES), all));
    rules
}

fn to_node_ports(facts: &Facts) -> Vec<Rule> {
    let last = "kubernetes service nodeports; NOTE: this must be the last rule in this chain";
    let localnet = facts
        .localnet
        .is_served()
        .then(|| own_to_loopback(facts).comment(last));
    let loopback = loopback(facts.family);
    let all = if facts.on_all {
        // What others send there is none of a NodePort.
        let all = Match::all().destination(true, loopback).comment(last);
        vec![all.with("-m addrtype --dst-type LOCAL")]
    } else {
        let own = facts.node_ips.iter().map(|address| (*address).into());
        own.map(|net| Match::all().destination(false, net).comment(last))
            .collect()
    };
    let all = all.into_iter().chain(localnet);
    all.map(|packets| packets.jump(NODE_PORTS)).collect()
}

/// What this host itself sends to its loopback addresses.
fn own_to_loopback(facts: &Facts) -> Match {
    let packets = Match::all().destination(false, loopback(facts.family));
    packets.with("-m addrtype --src-type LOCAL")
}

fn loopback(family: IpFamily) -> IpNet {
    match family {
        IpFamily::V4 => IpNet::new(Ipv4Addr::new(127, 0, 0, 0).into(), 8).expect("8 is a length"),
        IpFamily::V6 => IpAddr::from(Ipv6Addr::LOCALHOST).into(),
    }
}

/// Chains that hold nothing of a Service.
pub fn chains(facts: &Facts) -> Vec<(At, Vec<Rule>)> {
    let mut chains = vec![
        ((Table::Filter, FORWARD), forward(facts)),
        ((Table::Nat, POSTROUTING), postrouting(facts)),
        (
            (Table::Nat, MARK),
            vec![Match::all().jump(&set_mark(facts, facts.options.mark))],
        ),
    ];
    if facts.localnet != Localnet::Unserved {
        chains.push(((Table::Filter, LOCALNET), vec![to_loopback(facts)]));
    }
    if facts.localnet.is_opened() {
        chains.push(((Table::Mangle, LOCALNET), martians(facts)));
    }
    if let Some(pods) = &facts.pods
        && of_others(pods).is_none()
    {
        let pods = of_pods(pods).into_iter().map(|pod| pod.jump("RETURN"));
        let rules = pods.chain([Match::all().jump(MARK)]).collect();
        chains.push(((Table::Nat, MARK_FOREIGN), rules));
    }
    chains
}

/// With `route_localnet` neighbours would reach what listens on loopback addresses alone (CVE-2020-8558).
/// kube-proxy's rule has no `-i`, and so drops what this host itself sends there from another address of its own.
fn to_loopback(facts: &Facts) -> Rule {
    let others = Match::all()
        .source(true, loopback(facts.family))
        .destination(false, loopback(facts.family));
    let others = others.interface(true, "lo");
    others
        .with("-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT")
        .jump("DROP")
}

/// As many rules are [`martians`].
pub const MARTIANS: usize = 2;

/// What the kernel itself drops without `route_localnet`, whatever rules of others accept later on. Before anything is
/// translated: answers to what this host sends from loopback addresses have others still.
fn martians(facts: &Facts) -> Vec<Rule> {
    let loopback = loopback(facts.family);
    let others = || Match::all().interface(true, "lo");
    let martians: [_; MARTIANS] = [
        others().source(false, loopback),
        others().destination(false, loopback),
    ];
    martians.map(|packets| packets.jump("DROP")).into()
}

fn forward(facts: &Facts) -> Vec<Rule> {
    let marked = format!("-m mark --mark {0:#x}/{0:#x}", facts.options.mark);
    let mut invalid = Match::all().with("-m conntrack --ctstate INVALID");
    if facts.options.counters {
        invalid = counting(invalid, counters::INVALID);
    }
    let because = |why| Match::all().comment(why);
    let known = "-m conntrack --ctstate RELATED,ESTABLISHED";
    let mut rules = vec![
        because("kubernetes forwarding rules")
            .with(&marked)
            .jump("ACCEPT"),
        because("kubernetes forwarding conntrack rule")
            .with(known)
            .jump("ACCEPT"),
    ];
    if !facts.options.tcp_be_liberal {
        // An answer that conntrack takes for none of a connection would reach the client with the endpoint's
        // address, and the client would reset the connection.
        rules.insert(0, invalid.jump("DROP"));
    }
    rules
}

fn postrouting(facts: &Facts) -> Vec<Rule> {
    let mark = facts.options.mark;
    let unmarked = format!("-m mark ! --mark {mark:#x}/{mark:#x}");
    vec![
        Match::all().with(&unmarked).jump("RETURN"),
        // A packet that is looked at once more is not masqueraded twice.
        Match::all().jump(&set_mark(facts, 0)),
        Match::all()
            .comment("kubernetes service traffic requiring SNAT")
            .jump("MASQUERADE --random-fully"),
    ]
}

/// These packets, and the kernel counts them.
fn counting(packets: Match, counter: &str) -> Match {
    packets.with(&format!("-m nfacct --nfacct-name {counter}"))
}

/// Sets, or inverts, the bit: as `--or-mark` and `--xor-mark` are shown.
fn set_mark(facts: &Facts, mask: u32) -> String {
    format!("MARK --set-xmark {:#x}/{mask:#x}", facts.options.mark)
}

/// Packets from outside that open no connection are of one that programs on devices translate, which are not
/// there: led to another endpoint, they would break it.
pub fn begins_nothing(facts: &Facts) -> Option<Rule> {
    if facts.options.above == Translates::Nothing {
        return None;
    }
    // Of pods where one rule can tell them; their connections are not translated on devices.
    let foreign = facts.pods.as_ref().and_then(of_others).unwrap_or_default();
    let outside = foreign
        .protocol(Protocol::Tcp)
        .comment("of a connection that is translated on a device");
    let outside = outside.with("-m addrtype ! --src-type LOCAL -m conntrack --ctstate DNAT");
    Some(
        outside
            .with("-m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN")
            .jump("DROP"),
    )
}
