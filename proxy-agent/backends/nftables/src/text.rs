//! Rules, sets and elements in the language of `nft`: what `nft -f` takes, and what `nft list` prints
//! of the kernel's, with few exceptions.

use std::{fmt::Write as _, net::IpAddr};

use proxy_model::IpFamily;

use super::{
    key::{Key, word},
    ruleset::{Field, Hook, Place, Ranges, Rule, Statement, Value, Verdict},
    sets::{Data, ENDPOINT, Set},
};

/// The words of a family.
#[derive(Debug, Clone, Copy)]
pub struct Words(pub IpFamily);

impl Words {
    /// `ip` or `ip6`.
    pub const fn ip(self) -> &'static str {
        match self.0 {
            IpFamily::V4 => "ip",
            IpFamily::V6 => "ip6",
        }
    }

    /// A chain's hook, as its first line.
    pub fn hook(hook: Hook) -> String {
        let (place, priority) = match (hook.place, hook.priority) {
            (Place::Prerouting, -110) => ("prerouting", "dstnat - 10".to_owned()),
            (Place::Prerouting, -100) => ("prerouting", "dstnat".to_owned()),
            (Place::Prerouting, -90) => ("prerouting", "dstnat + 10".to_owned()),
            (Place::Postrouting, 100) => ("postrouting", "srcnat".to_owned()),
            (Place::Prerouting, other) => ("prerouting", other.to_string()),
            (Place::Output, other) => ("output", other.to_string()),
            (Place::Postrouting, other) => ("postrouting", other.to_string()),
        };
        let kind = hook.kind;
        format!("type {kind} hook {place} priority {priority}; policy accept;")
    }

    /// A rule.
    pub fn rule(self, rule: &Rule) -> String {
        let statements = rule.statements.iter().map(|one| self.statement(one));
        let mut text = statements.collect::<Vec<_>>().join(" ");
        if let Some(comment) = rule.comment {
            write!(text, " comment \"{comment}\"").expect("writing to a string cannot fail");
        }
        text
    }

    fn statement(self, statement: &Statement) -> String {
        let ip = self.ip();
        match statement {
            Statement::New => "ct state new".to_owned(),
            Statement::BeginsNothing => "tcp flags & (fin | syn | rst | ack) != syn".to_owned(),
            Statement::Translated => "ct status dnat".to_owned(),
            Statement::Within(field, net) if net.prefix_len() == net.max_prefix_len() => {
                format!("{} {}", self.field(field), net.addr())
            }
            Statement::Within(field, net) => format!("{} {net}", self.field(field)),
            Statement::Is(protocol) => format!("meta l4proto {}", word(*protocol)),
            Statement::ArrivedOn { name, prefix } => {
                let star = if *prefix { "*" } else { "" };
                format!("iifname \"{name}{star}\"")
            }
            Statement::FromHost => "fib saddr type local".to_owned(),
            Statement::In(key, set) => format!("{} @{}", self.key(key), set.name()),
            Statement::NotIn(ranges) => format!("{ip} saddr != @{ranges}"),
            Statement::Marked(mark) => format!("meta mark & {mark:#010x} != 0x00000000"),
            Statement::Mark(mark) => format!("meta mark set meta mark | {mark:#010x}"),
            Statement::Unmark(mark) => format!("meta mark set meta mark ^ {mark:#010x}"),
            Statement::Remember(number, timeout) => {
                let client = self.key(&[Field::Source, Field::Constant(*number)]);
                let set = Set::StickyClients.name();
                format!(
                    "update @{set} {{ {client} timeout {}s }}",
                    timeout.as_secs()
                )
            }
            Statement::Dispatch(key, set) => format!("{} vmap @{}", self.key(key), set.name()),
            Statement::TranslateBy(key, set) => {
                format!("dnat {ip} to {} map @{}", self.key(key), set.name())
            }
            Statement::TranslateTo(address) => format!("dnat to {address}"),
            Statement::Masquerade => "masquerade fully-random".to_owned(),
            Statement::Jump(chain) => format!("jump {chain}"),
            Statement::Verdict(verdict) => verdict.text(),
            Statement::Reject => "reject".to_owned(),
        }
    }

    fn key(self, fields: &[Field]) -> String {
        let fields: Vec<_> = fields.iter().map(|field| self.field(field)).collect();
        fields.join(" . ")
    }

    fn field(self, field: &Field) -> String {
        let ip = self.ip();
        match field {
            Field::Source => format!("{ip} saddr"),
            Field::Destination => format!("{ip} daddr"),
            Field::Protocol => "meta l4proto".to_owned(),
            Field::Port => "th dport".to_owned(),
            Field::Random { modulus, offset: 0 } => format!("numgen random mod {modulus}"),
            Field::Random { modulus, offset } => {
                format!("numgen random mod {modulus} offset {offset}")
            }
            // `nft` takes no constant in this place; a mark of which nothing is left is one.
            Field::Constant(number) => format!("meta mark & 0x00000000 | {number:#010x}"),
        }
    }

    /// An element, as it stands between the braces.
    pub fn element(self, set: Set, key: &Key, value: &Value) -> String {
        let key = self.element_key(set, key);
        match self.value(value) {
            Some(value) => format!("{key} : {value}"),
            None => key,
        }
    }

    /// The key of an element.
    pub fn element_key(self, set: Set, key: &Key) -> String {
        let text = key.text(set.key(), self.0);
        text.unwrap_or_else(|| format!("{key:?}"))
    }

    /// What an element has beside its key.
    pub fn value(self, value: &Value) -> Option<String> {
        match value {
            Value::None => None,
            Value::Verdict(verdict) => Some(verdict.text()),
            Value::Endpoint(key) => {
                let text = key.text(ENDPOINT, self.0);
                Some(text.unwrap_or_else(|| format!("{key:?}")))
            }
        }
    }

    /// What is in a set of ranges.
    pub fn ranges(ranges: &Ranges) -> Vec<String> {
        let text = |(first, last): &(IpAddr, IpAddr)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        };
        ranges.ranges.iter().map(text).collect()
    }

    /// The lines of a set's declaration.
    pub fn set(self, set: Set) -> Vec<String> {
        let mut lines = vec![
            set.declaration(self.0),
            format!("comment \"{}\"", set.comment()),
        ];
        if let Some(size) = set.size() {
            lines.push(format!("size {size}"));
            lines.push("flags dynamic,timeout".to_owned());
        }
        lines
    }

    /// The word with which a set begins.
    pub fn keyword(set: Set) -> &'static str {
        match set.data() {
            Data::None => "set",
            Data::Verdict | Data::Endpoint => "map",
        }
    }

    /// The type of a set of ranges.
    pub const fn ranges_type(self) -> &'static str {
        match self.0 {
            IpFamily::V4 => "type ipv4_addr",
            IpFamily::V6 => "type ipv6_addr",
        }
    }
}

impl Verdict {
    fn text(&self) -> String {
        match self {
            Self::Accept => "accept".to_owned(),
            Self::Drop => "drop".to_owned(),
            Self::Return => "return".to_owned(),
            Self::Goto(chain) => format!("goto {chain}"),
        }
    }
}
