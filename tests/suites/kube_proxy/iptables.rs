//! The rules of the iptables backend against those that kube-proxy 1.36.2 made for the same objects.

mod changes;

use std::collections::{BTreeMap, BTreeSet};

use proxy_backend_iptables::{IptablesOptions, canonical, render};
use proxy_model::NodePortSelection;

use super::state_with;

const OPTIONS: IptablesOptions = IptablesOptions {
    mark: 0x4000,
    tcp_be_liberal: false,
    above: proxy_backend::Translates::Nothing,
    localnet: true,
    counters: true,
};

/// Rules by table and chain.
type Tables = BTreeMap<(String, String), Vec<String>>;

/// Reads what is written for `iptables-restore`, or by `iptables-save`.
fn tables(text: &str) -> Tables {
    let mut tables = Tables::new();
    let mut table = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            name.clone_into(&mut table);
        } else if let Some(chain) = line.strip_prefix(':') {
            let chain = chain.split(' ').next().unwrap();
            tables.entry((table.clone(), chain.to_owned())).or_default();
        } else if let Some((command, rest)) = line.split_once(' ')
            && ["-A", "-I"].contains(&command)
        {
            let (chain, rule) = rest.split_once(' ').unwrap();
            let rules = tables.entry((table.clone(), chain.to_owned())).or_default();
            let rule = canonical(rule).to_string();
            if command == "-A" {
                rules.push(rule);
            } else {
                rules.insert(0, rule);
            }
        }
    }
    tables
}

/// What one of them has and the other has not. In chains that all Services share, the order is nobody's.
fn differences(ours: &Tables, theirs: &Tables) -> BTreeSet<String> {
    let shared = [
        "KUBE-SERVICES",
        "KUBE-EXTERNAL-SERVICES",
        "KUBE-NODEPORTS",
        "KUBE-PROXY-FIREWALL",
    ];
    let chains: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let mut differences = BTreeSet::new();
    for at in chains {
        let (table, chain) = at;
        let (one, other) = (ours.get(at), theirs.get(at));
        // A chain that everybody has, without a rule.
        let made = |rules: Option<&Vec<String>>| rules.is_some();
        if made(one) != made(other) && chain.starts_with(char::is_uppercase) && !is_built_in(chain)
        {
            let who = if made(one) { '+' } else { '-' };
            differences.insert(format!("{who} {table} {chain}"));
        }
        let rules = |rules: Option<&Vec<String>>| rules.cloned().unwrap_or_default();
        let (one, other) = (rules(one), rules(other));
        if one == other {
            continue;
        }
        let only = |who, some: &[String], others: &[String]| -> Vec<String> {
            let only = some.iter().filter(|rule| !others.contains(rule));
            only.map(|rule| format!("{who} {table} {chain} {rule}"))
                .collect()
        };
        let found: Vec<_> = [only('+', &one, &other), only('-', &other, &one)].concat();
        if found.is_empty() && !shared.contains(&&**chain) {
            differences.insert(format!("order {table} {chain}"));
        }
        differences.extend(found);
    }
    differences
}

fn is_built_in(chain: &str) -> bool {
    ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"].contains(&chain)
}

/// Each with the reason. A rule that stands for its like in every chain is named without its chain.
const OURS: [(&str, &str); 15] = [
    (" CULVERT", "says whose the chains are"),
    (
        "KUBE-SERVICES -m conntrack --ctstate DNAT -j RETURN",
        "what was led to an endpoint is not refused, whose address may be a frontend",
    ),
    (
        "KUBE-EXTERNAL-SERVICES -m conntrack --ctstate DNAT -j RETURN",
        "the same",
    ),
    (
        "KUBE-PROXY-FIREWALL -m conntrack --ctstate DNAT -j RETURN",
        "the same",
    ),
    (
        "OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\"",
        "what this host dials is refused, too",
    ),
    (
        "--comment \"shop/lb-local:http loadbalancer IP\" -m tcp --dport 80 -j RETURN",
        "sources that are admitted are refused as others are, where there is no endpoint",
    ),
    (
        "KUBE-EXTERNAL-SERVICES -d 127.0.0.0/8 -m addrtype ! --src-type LOCAL -j RETURN",
        "what others send to loopback addresses is for no NodePort",
    ),
    (
        "KUBE-EXTERNAL-SERVICES -d ::1 -j RETURN",
        "what is at loopback addresses of IPv6 is for no NodePort",
    ),
    (
        "KUBE-SERVICES ! -d 127.0.0.0/8 -m comment",
        "what others send to loopback addresses is led nowhere",
    ),
    (
        "KUBE-SERVICES -d 127.0.0.0/8 -m addrtype --src-type LOCAL -m comment",
        "what this host itself sends there is led",
    ),
    (
        "KUBE-SERVICES -m comment --comment \"kubernetes service nodeports",
        "one rule for both there",
    ),
    (
        "KUBE-LOCALNET",
        "drops what others send to loopback addresses, or from there, and nothing that this host sends itself",
    ),
    (
        "KUBE-FIREWALL",
        "does that for kube-proxy, also to this host itself, and is kubelet's, too",
    ),
    (
        "KUBE-NODEPORTS -d 127.0.0.0/8",
        "counts connections to each NodePort on loopback addresses",
    ),
    (
        "KUBE-SERVICES -m conntrack --ctstate DNAT --ctorigdst 127.0.0.0/8 -m nfacct",
        "counts all of them",
    ),
];

#[test]
fn the_rules_are_those_of_kube_proxy_but_for_what_is_listed() {
    let state = state_with(NodePortSelection::All);
    let rendered = render(&state, OPTIONS);
    let (v4, v6) = rendered.split_once("# ip6tables-restore").unwrap();
    let recorded = [
        (
            v4,
            include_str!("../../data/kube-proxy-iptables-node-a.txt"),
        ),
        (
            v6,
            include_str!("../../data/kube-proxy-ip6tables-node-a.txt"),
        ),
    ];
    let mut used = BTreeSet::new();
    for (ours, theirs) in recorded {
        for difference in differences(&tables(ours), &tables(theirs)) {
            let listed = OURS.iter().find(|(part, _)| difference.contains(part));
            assert!(listed.is_some(), "not listed: {difference}");
            used.extend(listed.map(|(part, _)| *part));
        }
    }
    for (part, reason) in OURS {
        assert!(
            used.contains(part),
            "listed, and no difference: {part} ({reason})"
        );
    }
}

#[test]
fn a_liberal_host_drops_nothing_that_conntrack_does_not_know() {
    let state = state_with(NodePortSelection::All);
    let liberal = IptablesOptions {
        tcp_be_liberal: true,
        ..OPTIONS
    };
    assert!(render(&state, OPTIONS).contains("INVALID"));
    assert!(!render(&state, liberal).contains("INVALID"));
}
