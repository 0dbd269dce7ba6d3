//! What programs at tc would bypass. They translate a packet before any chain of netfilter sees it, so
//! these would not do any more what somebody relies on:
//!
//! - a rule that drops, marks or diverts packets before their destination is translated, by the
//!   address of a Service: it would see the endpoint's (Calico's preDNAT policies, Talos' firewall,
//!   marks by which AWS' CNI routes replies);
//! - a rule that asks conntrack whether a packet was translated, or where it was sent to (firewalld
//!   forwards by `ct status dnat`): conntrack did not translate it;
//! - a policy of IPsec: a reply is encrypted before it gets the address of the Service back.
//!
//! Pure: rules are given. In doubt a rule counts, because a firewall that silently does nothing is
//! worse than a slower Service.

pub mod entries;
pub mod expressions;
mod extensions;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, fmt};

use crate::pattern::Pattern;

/// Chains of one table, in nftables or iptables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// Which one, for people: `table inet firewalld`.
    pub place: String,
    /// Its chains.
    pub chains: Vec<Chain>,
}

/// A chain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// Whether packets from outside come to it by themselves before their destination is translated.
    pub is_early: bool,
    /// The devices whose packets come to it; all if there are none.
    pub devices: Vec<Pattern>,
    /// Whether it drops what none of its rules decides about.
    pub drops: bool,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// A rule, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// The devices by which its packets came; all if none.
    pub device: Option<Pattern>,
    /// What it does with packets.
    pub effects: Vec<Effect>,
    /// The chain that it leads to.
    pub leads: Option<String>,
    /// Whether it asks if conntrack translated the destination, or which one it was.
    pub asks: bool,
}

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Drops or rejects.
    Drops,
    /// Sets a mark, of the packet or its connection.
    Marks,
    /// Sends it elsewhere, or changes it.
    Diverts,
    /// What a map says, which is not looked into.
    ByMap,
}

/// Something that would be bypassed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bypass {
    /// The devices whose packets it is about; all if none.
    pub device: Option<Pattern>,
    /// What it is.
    pub what: What,
}

/// What would be bypassed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// A chain that packets meet before their destination is translated.
    Early {
        /// The table.
        place: String,
        /// The chain.
        chain: String,
        /// What it does.
        effect: Effect,
    },
    /// A chain that asks conntrack how the destination was translated.
    Asks {
        /// The table.
        place: String,
        /// The chain.
        chain: String,
    },
    /// Policies of IPsec.
    Ipsec,
    /// That could not be found out.
    Unknown(String),
}

impl Bypass {
    /// Whether packets of this device are among them.
    pub fn concerns(&self, device: &str) -> bool {
        let pattern = self.device.as_ref();
        pattern.is_none_or(|pattern| pattern.matches(device))
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Drops => "drops packets",
            Self::Marks => "marks packets",
            Self::Diverts => "diverts packets",
            Self::ByMap => "decides by a map",
        })
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Early {
                place,
                chain,
                effect,
            } => write!(
                f,
                "{place}, chain {chain} {effect} before their destination is translated"
            ),
            Self::Asks { place, chain } => write!(
                f,
                "{place}, chain {chain} goes by how conntrack translated the destination"
            ),
            Self::Ipsec => f.write_str("IPsec policies (ip xfrm policy) are in force"),
            Self::Unknown(reason) => f.write_str(reason),
        }
    }
}

/// kube-proxy's chains and kubelet's, which are about this host's own addresses.
fn is_kubernetes(chain: &str) -> bool {
    chain.starts_with("KUBE-")
}

/// Calico's chains, which mark packets for each other, whatever policies there are. Only policies of
/// host endpoints have rules before the destination is translated.
fn is_calico(chain: &str) -> bool {
    chain.contains("cali-")
}

fn is_calico_host_endpoints(chain: &str) -> bool {
    chain.ends_with("cali-from-host-endpoint")
}

/// All that would be bypassed, each chain once for each kind of device.
pub fn find(tables: &[Rules]) -> Vec<Bypass> {
    let mut found = Vec::new();
    for table in tables {
        for chain in table.chains.iter().filter(|chain| chain.is_early) {
            let mut walk = Walk {
                table,
                found: &mut found,
                seen: BTreeSet::new(),
            };
            let whole: &[Option<Pattern>] = &[None];
            let devices: Vec<_> = chain.devices.iter().cloned().map(Some).collect();
            let devices = if devices.is_empty() { whole } else { &devices };
            for device in devices {
                if chain.drops {
                    walk.add(chain, device.as_ref(), Effect::Drops);
                }
                walk.chain(chain, device.as_ref());
            }
        }
        for chain in &table.chains {
            let counts = !is_kubernetes(&chain.name) && !is_calico(&chain.name);
            let asks = chain.rules.iter().find(|rule| rule.asks && counts);
            found.extend(asks.map(|rule| Bypass {
                device: rule.device.clone(),
                what: What::Asks {
                    place: table.place.clone(),
                    chain: chain.name.clone(),
                },
            }));
        }
    }
    found
}

/// Goes from a chain to all that its rules lead to.
struct Walk<'a> {
    table: &'a Rules,
    found: &'a mut Vec<Bypass>,
    /// Chains, by the device that they were reached for.
    seen: BTreeSet<(&'a str, Option<String>)>,
}

impl<'a> Walk<'a> {
    fn chain(&mut self, chain: &'a Chain, device: Option<&Pattern>) {
        let key = (&*chain.name, device.map(ToString::to_string));
        if is_kubernetes(&chain.name) || !self.seen.insert(key) {
            return;
        }
        for rule in &chain.rules {
            // Of two patterns, that of the rule is the narrower one, or none of its packets come.
            let device = rule.device.as_ref().or(device);
            let counts = !is_calico(&chain.name) || is_calico_host_endpoints(&chain.name);
            for effect in rule.effects.iter().filter(|_| counts) {
                self.add(chain, device, *effect);
            }
            let Some(leads) = &rule.leads else { continue };
            if is_calico_host_endpoints(&chain.name) {
                // The policies themselves are in chains that look like all others.
                self.add(chain, device, Effect::Drops);
            }
            if let Some(next) = self.table.chains.iter().find(|one| one.name == *leads) {
                self.chain(next, device);
            }
        }
    }

    fn add(&mut self, chain: &Chain, device: Option<&Pattern>, effect: Effect) {
        let bypass = Bypass {
            device: device.cloned(),
            what: What::Early {
                place: self.table.place.clone(),
                chain: chain.name.clone(),
                effect,
            },
        };
        if !self.found.contains(&bypass) {
            self.found.push(bypass);
        }
    }
}
