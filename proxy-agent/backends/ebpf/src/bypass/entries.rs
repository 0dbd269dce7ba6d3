//! Rules of `iptables-legacy`, from the bytes that the kernel keeps of a table
//! (`linux/netfilter_ipv4/ip_tables.h`, `linux/netfilter_ipv6/ip6_tables.h`).

use super::{Chain, Effect, Rule, Rules, extensions};
use crate::pattern::Pattern;

/// How the two families differ: where an entry has what, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// What the programs are called.
    name: &'static str,
    device: usize,
    device_mask: usize,
    inverted: usize,
    target_offset: usize,
    length: usize,
}

/// `struct ipt_entry`.
pub const IPV4: Layout = Layout {
    name: "iptables-legacy",
    device: 16,
    device_mask: 48,
    inverted: 83,
    target_offset: 88,
    length: 112,
};

/// `struct ip6t_entry`.
pub const IPV6: Layout = Layout {
    name: "ip6tables-legacy",
    device: 64,
    device_mask: 96,
    inverted: 132,
    target_offset: 140,
    length: 168,
};

/// `IPT_INV_VIA_IN`.
const DEVICE_INVERTED: u8 = 1;
const NAME: usize = 16;
/// Length, name, revision: what a match and a target begin with.
const EXTENSION: usize = 32;
const EXTENSION_NAME: std::ops::Range<usize> = 2..31;
const REVISION: usize = 31;
/// Verdicts of the standard target.
const DROP: i32 = -1;
const QUEUE: i32 = -4;
/// `NF_INET_PRE_ROUTING`.
const PRE_ROUTING: usize = 0;

/// A table as the kernel tells it.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    /// `raw`, `mangle`, `filter`, …
    pub name: &'a str,
    /// Where the chain of each hook begins, and where its policy is, in bytes.
    pub hooks: [Option<(u32, u32)>; 5],
    /// Its entries.
    pub entries: &'a [u8],
}

/// The chains of a table. What cannot be read is left out.
pub fn rules(layout: Layout, table: Table<'_>) -> Rules {
    let mut chains: Vec<Chain> = Vec::new();
    let mut at = 0;
    // Chains that somebody made are led to by where their first rule is.
    let mut begins: Vec<(usize, String)> = Vec::new();
    while let Some(entry) = Entry::at(layout, table.entries, at) {
        if let Some(hook) = hook_at(&table, at) {
            chains.push(Chain {
                name: HOOKS[hook].to_owned(),
                is_early: hook == PRE_ROUTING && matches!(table.name, "raw" | "mangle"),
                ..Chain::default()
            });
        }
        let target = entry.target();
        if let (b"ERROR", Some(name)) = (target.name, target.data.get(..30)) {
            let name = text(name);
            begins.push((at + entry.length(), name.clone()));
            chains.push(Chain {
                name,
                ..Chain::default()
            });
        } else if let Some(chain) = chains.last_mut() {
            if is_policy(&table, at) {
                chain.drops = target.verdict() == Some(DROP);
            } else {
                chain.rules.push(entry.rule());
            }
        }
        at += entry.length();
    }
    for rule in chains.iter_mut().flat_map(|chain| &mut chain.rules) {
        // Until now the number of its first byte.
        let leads = rule.leads.take().and_then(|at| at.parse::<usize>().ok());
        let chain = begins.iter().find(|(begin, _)| Some(*begin) == leads);
        rule.leads = chain.map(|(_, name)| name.clone());
    }
    Rules {
        place: format!("table {} of {}", table.name, layout.name),
        chains,
    }
}

const HOOKS: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

fn hook_at(table: &Table<'_>, at: usize) -> Option<usize> {
    let is_here = |hook: &Option<(u32, u32)>| hook.is_some_and(|(begin, _)| begin as usize == at);
    table.hooks.iter().position(is_here)
}

fn is_policy(table: &Table<'_>, at: usize) -> bool {
    let is_here = |hook: &Option<(u32, u32)>| hook.is_some_and(|(_, policy)| policy as usize == at);
    table.hooks.iter().any(is_here)
}

/// One entry.
struct Entry<'a> {
    layout: Layout,
    bytes: &'a [u8],
}

/// A match or a target.
struct Extension<'a> {
    name: &'a [u8],
    revision: u8,
    data: &'a [u8],
}

impl<'a> Entry<'a> {
    fn at(layout: Layout, entries: &'a [u8], at: usize) -> Option<Self> {
        let rest = entries.get(at..)?;
        let length = half(rest, layout.target_offset + 2)?;
        let bytes = rest.get(..length).filter(|_| length > layout.length)?;
        Some(Self { layout, bytes })
    }

    fn length(&self) -> usize {
        self.bytes.len()
    }

    fn target(&self) -> Extension<'a> {
        let begins = half(self.bytes, self.layout.target_offset).unwrap_or(0);
        Extension::of(self.bytes.get(begins..).unwrap_or_default())
    }

    fn matches(&self) -> impl Iterator<Item = Extension<'a>> {
        let end = half(self.bytes, self.layout.target_offset).unwrap_or(0);
        let mut rest = self.bytes.get(self.layout.length..end).unwrap_or_default();
        std::iter::from_fn(move || {
            let length = half(rest, 0).filter(|length| *length >= EXTENSION)?;
            let (one, others) = rest.split_at_checked(length)?;
            rest = others;
            Some(Extension::of(one))
        })
    }

    fn rule(&self) -> Rule {
        let target = self.target();
        let verdict = target.verdict();
        let effect = match verdict {
            Some(DROP) => Some(Effect::Drops),
            Some(QUEUE) => Some(Effect::Diverts),
            Some(_) => None,
            None => extensions::effect(&text(target.name)),
        };
        Rule {
            device: self.device(),
            effects: effect.into_iter().collect(),
            leads: verdict
                .filter(|verdict| *verdict >= 0)
                .map(|at| at.to_string()),
            asks: self
                .matches()
                .any(|one| extensions::asks(one.name, one.revision, one.data)),
        }
    }

    /// By which device packets came. The mask has a bit for each byte that must be equal, that which
    /// ends the name among them if all of it must be.
    fn device(&self) -> Option<Pattern> {
        let Layout {
            device,
            device_mask,
            inverted,
            ..
        } = self.layout;
        let name = self.bytes.get(device..device + NAME)?;
        let mask = self.bytes.get(device_mask..device_mask + NAME)?;
        let equal = mask.iter().take_while(|byte| **byte == 0xff).count();
        if equal == 0 || self.bytes.get(inverted)? & DEVICE_INVERTED != 0 {
            return None;
        }
        let name = name.get(..equal)?;
        Some(if name.contains(&0) {
            Pattern::exactly(&text(name))
        } else {
            Pattern::beginning(&text(name))
        })
    }
}

impl<'a> Extension<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        let name = bytes.get(EXTENSION_NAME).unwrap_or_default();
        let end = name.iter().position(|byte| *byte == 0);
        let length = half(bytes, 0).unwrap_or(0);
        Self {
            name: &name[..end.unwrap_or(name.len())],
            revision: bytes.get(REVISION).copied().unwrap_or(0),
            data: bytes.get(EXTENSION..length).unwrap_or_default(),
        }
    }

    /// What the standard target, which has no name, decides: a chain, or a verdict below zero.
    fn verdict(&self) -> Option<i32> {
        let number = self.data.get(..4)?.try_into().ok()?;
        self.name.is_empty().then_some(i32::from_ne_bytes(number))
    }
}

fn half(bytes: &[u8], at: usize) -> Option<usize> {
    let half = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_ne_bytes(half).into())
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}
