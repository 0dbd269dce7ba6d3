//! The chains that Services need: shared by all that are treated alike and have as many endpoints.
//! A chain's name says what is in it, so that none ever changes because of a Service.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use proxy_backend::Translates;
use proxy_model::Protocol;

use super::{
    facts::Facts,
    fixed::{FRONTEND, MARK_FOREIGN, NODE_PORT},
    ruleset::{Field, Rule, Statement, Verdict},
    sets::Set,
};

/// What kind of frontend a chain is for: it decides under which key its endpoints are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// One with an address.
    Address,
    /// A NodePort.
    NodePort,
}

/// How an endpoint is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// At random, out of the `count` that are numbered from `offset`.
    Random {
        /// How many; not 0.
        count: u32,
        /// The first.
        offset: u32,
    },
    /// The one that the client had last, otherwise at random.
    Sticky(Arc<Sticky>),
}

/// Endpoints of a Service with session affinity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sticky {
    /// Name of the chain; it stands for all the rest.
    pub name: Arc<str>,
    /// The same in a word.
    pub hash: u64,
    /// The same as a number, under which the endpoints are found.
    pub number: u32,
    /// Not empty.
    pub endpoints: Vec<Arc<StickyEndpoint>>,
}

/// An endpoint of a Service with session affinity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StickyEndpoint {
    /// Name of its chain.
    pub name: Arc<str>,
    /// Under which number clients are remembered that have it.
    pub number: u32,
    /// Protocol of the Service port.
    pub protocol: Protocol,
    /// Where it is.
    pub address: SocketAddr,
    /// How long a client keeps it after its last connection.
    pub timeout: Duration,
}

/// A chain that is there because a Service needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceChain {
    /// Chooses an endpoint.
    Choose(At, Choice),
    /// One of a Service with session affinity.
    StickyEndpoint(Arc<StickyEndpoint>),
    /// For ClusterIPs: clients from elsewhere may have to be masqueraded.
    ClusterIp(Choice),
    /// For frontends with external policy Cluster: everything is masqueraded.
    External(At, Choice),
    /// For frontends with external policy Local: what comes from this node goes to the cluster
    /// set, the rest to the local one, or is dropped without one. `None` for the cluster set: not
    /// led anywhere.
    Local(At, Option<Choice>, Option<Choice>),
    /// Lets only those pass that are in the set of this name, and the address itself if given.
    Restricted(Arc<str>, Option<IpAddr>),
}

impl Choice {
    fn name(&self) -> String {
        match self {
            Self::Random { count, .. } => count.to_string(),
            Self::Sticky(sticky) => format!("{:016x}", sticky.hash),
        }
    }

    fn of(choice: Option<&Self>) -> String {
        choice.map_or("none".to_owned(), Self::name)
    }
}

impl At {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Address => "",
            Self::NodePort => "node-",
        }
    }
}

impl ServiceChain {
    /// How names of chains for an endpoint with session affinity begin.
    pub const STICKY_ENDPOINT: &str = "sticky-endpoint";

    /// Its name.
    pub fn name(&self) -> Arc<str> {
        let name = match self {
            Self::Choose(_, Choice::Sticky(sticky)) => return Arc::clone(&sticky.name),
            Self::Choose(at, Choice::Random { count, offset: 0 }) => {
                format!("{}endpoint-{count}", at.prefix())
            }
            Self::Choose(at, Choice::Random { count, offset }) => {
                format!("{}endpoint-{count}-after-{offset}", at.prefix())
            }
            Self::StickyEndpoint(endpoint) => return Arc::clone(&endpoint.name),
            Self::ClusterIp(choice) => format!("cluster-ip-{}", choice.name()),
            Self::External(at, choice) => format!("{}external-{}", at.prefix(), choice.name()),
            Self::Local(at, cluster, local) => {
                let (cluster, local) = (Choice::of(cluster.as_ref()), Choice::of(local.as_ref()));
                format!("{}local-{cluster}-{local}", at.prefix())
            }
            Self::Restricted(ranges, None) => format!("only-{ranges}"),
            Self::Restricted(ranges, Some(own)) => {
                // Colons are nothing for a name.
                format!("only-{ranges}-or-{own}").replace(':', "_")
            }
        };
        name.into()
    }

    /// How far a chain of this name is from where the kernel enters: none leads to one that is not
    /// further. Those that are nearer are deleted first.
    pub fn depth(name: &str) -> u8 {
        let choosing = ["endpoint-", "node-endpoint-", "sticky-"];
        if name.starts_with(Self::STICKY_ENDPOINT) {
            2
        } else {
            u8::from(choosing.iter().any(|one| name.starts_with(one)))
        }
    }

    /// What is in it.
    pub fn rules(&self, facts: &Facts) -> Vec<Rule> {
        match self {
            Self::Choose(at, Choice::Random { count, offset }) => {
                let (key, set) = match at {
                    At::Address => (&FRONTEND[..], Set::Endpoints),
                    At::NodePort => (&NODE_PORT[..], Set::NodeEndpoints),
                };
                let mut key = key.to_vec();
                key.push(Field::Random {
                    modulus: *count,
                    offset: *offset,
                });
                vec![Rule::new([Statement::TranslateBy(key, set)])]
            }
            Self::Choose(_, Choice::Sticky(sticky)) => sticky.rules(),
            Self::StickyEndpoint(endpoint) => endpoint.rules(),
            Self::ClusterIp(choice) => masqueraded_rules(
                facts,
                Rule::new([Statement::Jump(MARK_FOREIGN.into())]),
                &choose(At::Address, choice),
            ),
            Self::External(at, choice) => masqueraded_rules(
                facts,
                Rule::because(
                    "the answer must come back this way",
                    [Statement::Mark(facts.options.mark)],
                ),
                &choose(*at, choice),
            ),
            Self::Local(at, cluster, local) => {
                local_rules(facts, *at, cluster.as_ref(), local.as_ref())
            }
            Self::Restricted(ranges, own) => {
                let own = own.map(|own| {
                    let only = [Statement::Within(Field::Source, own.into())];
                    Rule::because(
                        "this node, which may have the address itself",
                        only.into_iter()
                            .chain([Statement::Verdict(Verdict::Return)])
                            .collect::<Vec<_>>(),
                    )
                });
                let others = Rule::new([
                    Statement::NotIn(Arc::clone(ranges)),
                    Statement::Verdict(Verdict::Drop),
                ]);
                own.into_iter().chain([others]).collect()
            }
        }
    }
}

fn choose(at: At, choice: &Choice) -> Statement {
    goto(ServiceChain::Choose(at, choice.clone()).name())
}

fn goto(chain: Arc<str>) -> Statement {
    Statement::Verdict(Verdict::Goto(chain))
}

/// Marks what must be, and chooses an endpoint.
fn masqueraded_rules(facts: &Facts, mark: Rule, choose: &Statement) -> Vec<Rule> {
    let mut rules = vec![mark];
    if facts.options.above == Translates::All {
        rules.extend(of_pods(facts, choose));
        rules.push(Rule::new([Statement::FromHost, choose.clone()]));
        rules.push(begins_nothing());
    }
    rules.push(Rule::new([choose.clone()]));
    rules
}

/// What becomes of packets from this node's pods.
fn of_pods(facts: &Facts, what: &Statement) -> impl Iterator<Item = Rule> {
    let pods = facts.local_pods().unwrap_or_default().into_iter();
    pods.map(move |condition| Rule::because("pod of this node", [condition, what.clone()]))
}

/// Packets from outside that open no connection are of one that is not translated here.
fn begins_nothing() -> Rule {
    Rule::because(
        "of a connection that programs on devices translate, which are not there",
        [Statement::BeginsNothing, Statement::Verdict(Verdict::Drop)],
    )
}

fn local_rules(
    facts: &Facts,
    at: At,
    cluster: Option<&Choice>,
    local: Option<&Choice>,
) -> Vec<Rule> {
    // Without an endpoint they are not led anywhere, not to the local set either.
    let from_here = cluster.map_or(Statement::Verdict(Verdict::Return), |cluster| {
        choose(at, cluster)
    });
    let mut rules: Vec<_> = of_pods(facts, &from_here).collect();
    rules.push(Rule::because(
        "this node: the answer must come back to it",
        [Statement::FromHost, Statement::Mark(facts.options.mark)],
    ));
    rules.push(Rule::new([Statement::FromHost, from_here]));
    if facts.options.above != Translates::Nothing && local.is_some() {
        rules.push(begins_nothing());
    }
    match (cluster, local) {
        (_, Some(local)) => rules.push(Rule::new([choose(at, local)])),
        // Not left to what comes after translation: nothing there tells what was led to the very
        // address that it dialled from what was not led anywhere.
        (Some(_), None) => rules.push(Rule::because(
            "no endpoint here: a load balancer must try another node",
            [Statement::Verdict(Verdict::Drop)],
        )),
        (None, None) => {}
    }
    rules
}

impl Sticky {
    fn rules(&self) -> Vec<Rule> {
        // One rule for each endpoint: the endpoint of a client is not found in one step. In return
        // an endpoint that leaves takes its clients with it at once.
        let keeps = |endpoint: &Arc<StickyEndpoint>| {
            let client = vec![Field::Source, Field::Constant(endpoint.number)];
            Rule::new([
                Statement::In(client, Set::StickyClients),
                goto(Arc::clone(&endpoint.name)),
            ])
        };
        let mut rules: Vec<_> = self.endpoints.iter().map(keeps).collect();
        let random = Field::Random {
            modulus: u32::try_from(self.endpoints.len()).unwrap_or(u32::MAX),
            offset: 0,
        };
        rules.push(Rule::new([Statement::Dispatch(
            vec![random, Field::Constant(self.number)],
            Set::StickyEndpoints,
        )]));
        rules
    }
}

impl StickyEndpoint {
    fn rules(&self) -> Vec<Rule> {
        vec![
            // A rule of its own: where there is no room for another client, the next one applies.
            Rule::new([Statement::Remember(self.number, self.timeout)]),
            Rule::new([
                Statement::Is(self.protocol),
                Statement::TranslateTo(self.address),
            ]),
        ]
    }
}
