//! The chains that every table has: where the kernel enters, and in which order it asks what.
//!
//! ```text
//!  prerouting, output
//!    -110  first packet of a connection ──> restricted: may this source dial this address?
//!    -100  nat ──> services: a chain for its kind of frontend, by address, then by NodePort
//!     -90  first packet, not led anywhere ──> unserved: refused or dropped, strays too
//!  postrouting
//!     100  nat: what is marked, and what comes back to its sender, is masqueraded
//! ```
//!
//! What is refused is refused before the routing decision: a host without a route to its Services,
//! and one that forwards nothing, answer as well.

use super::{
    facts::Facts,
    ruleset::{Field, Hook, Place, Rule, Statement, Verdict},
    sets::Set,
};

/// A frontend with an address, as a key.
pub const FRONTEND: [Field; 3] = [Field::Destination, Field::Protocol, Field::Port];
/// A NodePort, as a key.
pub const NODE_PORT: [Field; 2] = [Field::Protocol, Field::Port];

/// Marks clients outside of this node's pod network.
pub const MARK_FOREIGN: &str = "mark-foreign";
/// Leads frontends to the chain for their kind.
const SERVICES: &str = "services";
/// Tells the sender that nobody listens.
pub const REFUSE: &str = "refuse";

/// A chain that every table has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedChain {
    /// Its name.
    pub name: &'static str,
    /// Where the kernel enters it, if it does.
    pub hook: Option<Hook>,
    /// What is in it.
    pub rules: Vec<Rule>,
}

/// All of them, in an order in which each comes after those that it leads to.
pub fn chains(facts: &Facts) -> Vec<FixedChain> {
    let plain = |name, rules| FixedChain {
        name,
        hook: None,
        rules,
    };
    let mut chains = vec![
        plain(REFUSE, vec![Rule::new([Statement::Reject])]),
        plain(MARK_FOREIGN, mark_foreign(facts)),
        plain(
            "restricted",
            vec![Rule::new([dispatch(&FRONTEND, Set::Restricted)])],
        ),
        plain(SERVICES, services()),
        plain("unserved", unserved(facts)),
    ];
    let hooks = [
        ("before-dnat", "filter", -110, first_packet("restricted")),
        ("dnat", "nat", -100, vec![jump(SERVICES)]),
        ("after-dnat", "filter", -90, first_packet("unserved")),
    ];
    for (name, kind, priority, statements) in hooks {
        for place in [Place::Prerouting, Place::Output] {
            chains.push(FixedChain {
                name: match (name, place) {
                    ("before-dnat", Place::Prerouting) => "before-dnat-prerouting",
                    ("before-dnat", _) => "before-dnat-output",
                    ("dnat", Place::Prerouting) => "dnat-prerouting",
                    ("dnat", _) => "dnat-output",
                    (_, Place::Prerouting) => "after-dnat-prerouting",
                    (_, _) => "after-dnat-output",
                },
                hook: Some(Hook {
                    kind,
                    place,
                    priority,
                }),
                rules: vec![Rule::new(statements.clone())],
            });
        }
    }
    chains.push(FixedChain {
        name: "snat-postrouting",
        hook: Some(Hook {
            kind: "nat",
            place: Place::Postrouting,
            priority: 100,
        }),
        rules: masquerading(facts.options.mark),
    });
    chains
}

/// The chains with a nat hook, which lead nowhere, with a rule that asks conntrack for something. As
/// long as both are there, the kernel goes on with every connection that it translates, whoever
/// wanted it; without such a rule it would not even look connections up. And a new connection whose
/// answers would look like those of such a one gets another port, where without a nat hook its first
/// packet would be dropped.
#[cfg(target_os = "linux")]
pub fn nat_chains(family: proxy_model::IpFamily) -> Vec<FixedChain> {
    let nothing = proxy_model::NodeState::default();
    let mut chains = chains(&Facts::of(
        &nothing,
        family,
        crate::NftablesOptions::default(),
    ));
    chains.retain(|chain| chain.hook.is_some_and(|hook| hook.kind == "nat"));
    for chain in &mut chains {
        chain.rules = vec![Rule::because(
            "conntrack looks connections up for as long as some rule asks",
            [Statement::Translated, Statement::Verdict(Verdict::Return)],
        )];
    }
    chains
}

fn first_packet(chain: &str) -> Vec<Statement> {
    vec![Statement::New, jump(chain)]
}

fn services() -> Vec<Rule> {
    vec![
        Rule::new([dispatch(&FRONTEND, Set::Services)]),
        Rule::new([
            Statement::In(vec![Field::Destination], Set::NodeIps),
            dispatch(&NODE_PORT, Set::NodePorts),
        ]),
    ]
}

fn unserved(facts: &Facts) -> Vec<Rule> {
    let mut rules = vec![
        Rule::because(
            "led to an endpoint",
            [Statement::Translated, Statement::Verdict(Verdict::Return)],
        ),
        Rule::new([dispatch(&FRONTEND, Set::Unserved)]),
        Rule::new([
            Statement::In(vec![Field::Destination], Set::NodeIps),
            dispatch(&NODE_PORT, Set::UnservedNodePorts),
        ]),
        Rule::because(
            "unknown port of a ClusterIP",
            [
                Statement::In(vec![Field::Destination], Set::ClusterIps),
                goto(REFUSE),
            ],
        ),
    ];
    rules.extend(facts.service_cidrs.iter().map(|cidr| {
        Rule::because(
            "ClusterIP of no Service: would leave by the default route, and come back",
            [
                Statement::Within(Field::Destination, *cidr),
                Statement::Verdict(Verdict::Drop),
            ],
        )
    }));
    rules
}

fn mark_foreign(facts: &Facts) -> Vec<Rule> {
    let mark = Statement::Mark(facts.options.mark);
    if facts.masquerades_all() {
        return vec![Rule::because("masqueradeAll", [mark])];
    }
    let Some(local) = facts.local_pods() else {
        return vec![];
    };
    let ours = |condition| {
        Rule::because(
            "pod of this node",
            [condition, Statement::Verdict(Verdict::Return)],
        )
    };
    let mut rules: Vec<_> = local.into_iter().map(ours).collect();
    rules.push(Rule::new([mark]));
    rules
}

fn masquerading(mark: u32) -> Vec<Rule> {
    vec![
        Rule::new([
            Statement::Marked(mark),
            Statement::Unmark(mark),
            Statement::Masquerade,
        ]),
        Rule::because(
            "otherwise the endpoint would answer itself, past this node",
            [
                Statement::Translated,
                Statement::In(vec![Field::Source, Field::Destination], Set::Hairpin),
                Statement::Masquerade,
            ],
        ),
    ]
}

fn dispatch(key: &[Field], set: Set) -> Statement {
    Statement::Dispatch(key.to_vec(), set)
}

fn jump(chain: &str) -> Statement {
    Statement::Jump(chain.into())
}

fn goto(chain: &str) -> Statement {
    Statement::Verdict(Verdict::Goto(chain.into()))
}
