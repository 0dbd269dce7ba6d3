//! Rules of nftables, from the expressions that the kernel keeps of them. Those of `iptables-nft` are
//! among them: part of theirs are matches and targets of iptables.

use proxy_netlink::{
    attributes::Read,
    nf_tables::{
        IPS_DST_NAT, NF_DROP, NF_INET_INGRESS, NF_INET_PRE_ROUTING, NF_IP_PRI_NAT_DST, NF_QUEUE,
        NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_NETDEV, NFT_CMP_EQ, NFT_CT_DST,
        NFT_CT_DST_IP, NFT_CT_DST_IP6, NFT_CT_MARK, NFT_CT_PROTO_DST, NFT_CT_STATUS,
        NFT_META_IIFNAME, NFT_META_MARK, NFT_REG_VERDICT, NFTA_BITWISE_MASK, NFTA_CMP_DATA,
        NFTA_CMP_OP, NFTA_CT_DIRECTION, NFTA_CT_KEY, NFTA_CT_SREG, NFTA_DATA_VALUE,
        NFTA_DATA_VERDICT, NFTA_EXPR_DATA, NFTA_EXPR_NAME, NFTA_IMMEDIATE_DATA, NFTA_LOOKUP_DREG,
        NFTA_META_KEY, NFTA_META_SREG, NFTA_PAYLOAD_SREG, NFTA_VERDICT_CHAIN, NFTA_VERDICT_CODE,
        NFTA_XT_INFO, NFTA_XT_NAME, NFTA_XT_REV,
    },
    ruleset,
};

use super::{Chain, Effect, Rule, Rules, extensions};
use crate::pattern::Pattern;

/// The chains of a table.
pub fn rules(table: &ruleset::Table, chains: &[ruleset::Chain]) -> Rules {
    let family = match table.family {
        NFPROTO_IPV4 => "ip",
        NFPROTO_IPV6 => "ip6",
        NFPROTO_NETDEV => "netdev",
        _ => "inet",
    };
    let chains = chains.iter().map(|chain| Chain {
        name: chain.name.clone(),
        is_early: chain
            .hook
            .as_ref()
            .is_some_and(|hook| is_early(table, hook)),
        devices: chain.hook.as_ref().map_or_else(Vec::new, |hook| {
            let devices = hook.devices.iter();
            devices.map(|name| Pattern::exactly(name)).collect()
        }),
        drops: chain.policy == Some(NF_DROP.cast_unsigned()),
        rules: chain
            .rules
            .iter()
            .map(|one| rule(&one.expressions))
            .collect(),
    });
    Rules {
        place: format!("table {family} {}", table.name),
        chains: chains.collect(),
    }
}

/// Whether packets meet the hook before nftables and iptables translate destinations.
fn is_early(table: &ruleset::Table, hook: &ruleset::Hook) -> bool {
    match table.family {
        // Its one hook of packets that came is after the programs at tc.
        NFPROTO_NETDEV => hook.number == 0,
        NFPROTO_INET if hook.number == NF_INET_INGRESS => true,
        _ => hook.number == NF_INET_PRE_ROUTING && hook.priority < NF_IP_PRI_NAT_DST,
    }
}

/// What a rule does, by its expressions.
fn rule(expressions: &[u8]) -> Rule {
    let mut rule = Rule::default();
    let mut loaded = Loaded::Other;
    for (_, expression) in Read(expressions).each() {
        let expression = Read(expression);
        let data = expression.nested(NFTA_EXPR_DATA);
        match expression.text(NFTA_EXPR_NAME).unwrap_or_default() {
            "immediate" => {
                let verdict = data.nested(NFTA_IMMEDIATE_DATA).nested(NFTA_DATA_VERDICT);
                let code = verdict.number(NFTA_VERDICT_CODE).map(u32::cast_signed);
                rule.effects.extend(code.and_then(of_verdict));
                let chain = verdict.text(NFTA_VERDICT_CHAIN);
                rule.leads = chain.map(str::to_owned).or(rule.leads);
            }
            "reject" => rule.effects.push(Effect::Drops),
            "queue" | "tproxy" | "dup" | "fwd" | "synproxy" | "nat" | "redir" | "masq" => {
                rule.effects.push(Effect::Diverts);
            }
            "lookup" if data.number(NFTA_LOOKUP_DREG) == Some(NFT_REG_VERDICT) => {
                rule.effects.push(Effect::ByMap);
            }
            "meta" if data.get(NFTA_META_SREG).is_some() => {
                let marks = data.number(NFTA_META_KEY) == Some(NFT_META_MARK);
                rule.effects.extend(marks.then_some(Effect::Marks));
            }
            "ct" if data.get(NFTA_CT_SREG).is_some() => {
                let marks = data.number(NFTA_CT_KEY) == Some(NFT_CT_MARK);
                rule.effects.extend(marks.then_some(Effect::Marks));
            }
            "payload" if data.get(NFTA_PAYLOAD_SREG).is_some() => {
                rule.effects.push(Effect::Diverts);
            }
            "meta" if data.number(NFTA_META_KEY) == Some(NFT_META_IIFNAME) => {
                loaded = Loaded::Device;
            }
            "ct" => {
                loaded = Loaded::of_ct(data);
                rule.asks |= loaded == Loaded::Destination;
            }
            "bitwise" if loaded == Loaded::Status => {
                rule.asks |= is_translated(data.nested(NFTA_BITWISE_MASK));
            }
            "cmp" if loaded == Loaded::Status => {
                rule.asks |= is_translated(data.nested(NFTA_CMP_DATA));
            }
            "cmp" if loaded == Loaded::Device => {
                if data.number(NFTA_CMP_OP) == Some(NFT_CMP_EQ) {
                    let name = data.nested(NFTA_CMP_DATA).get(NFTA_DATA_VALUE);
                    rule.device = name.map(device);
                }
                loaded = Loaded::Other;
            }
            "match" => {
                let revision = data.number(NFTA_XT_REV).unwrap_or(0);
                let name = data.text(NFTA_XT_NAME).unwrap_or_default();
                let info = data.get(NFTA_XT_INFO).unwrap_or_default();
                let revision = u8::try_from(revision).unwrap_or(u8::MAX);
                rule.asks |= extensions::asks(name.as_bytes(), revision, info);
            }
            "target" => {
                let name = data.text(NFTA_XT_NAME).unwrap_or_default();
                rule.effects.extend(extensions::effect(name));
            }
            _ => {}
        }
    }
    rule
}

fn of_verdict(code: i32) -> Option<Effect> {
    match code {
        NF_DROP => Some(Effect::Drops),
        // A queue has its number in the upper half.
        _ if code >= 0 && code & 0xffff == NF_QUEUE => Some(Effect::Diverts),
        _ => None,
    }
}

/// What was read last, for the comparison that follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loaded {
    Device,
    /// The bits of a connection's status.
    Status,
    /// Where the client sent the packet to.
    Destination,
    Other,
}

impl Loaded {
    fn of_ct(data: Read<'_>) -> Self {
        let is_original = data.get(NFTA_CT_DIRECTION).is_none_or(|to| to == [0]);
        match data.number(NFTA_CT_KEY) {
            Some(NFT_CT_STATUS) => Self::Status,
            Some(NFT_CT_DST | NFT_CT_PROTO_DST | NFT_CT_DST_IP | NFT_CT_DST_IP6) if is_original => {
                Self::Destination
            }
            _ => Self::Other,
        }
    }
}

/// Whether these bits of a status have that of a translated destination.
fn is_translated(bits: Read<'_>) -> bool {
    let bits = bits.native(NFTA_DATA_VALUE).unwrap_or(0);
    bits & IPS_DST_NAT != 0
}

/// A name with the zero that ends it, or what names begin with.
fn device(bytes: &[u8]) -> Pattern {
    let end = bytes.iter().position(|byte| *byte == 0);
    let name = String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]);
    match end {
        Some(_) => Pattern::exactly(&name),
        None if bytes.len() >= 16 => Pattern::exactly(&name),
        None => Pattern::beginning(&name),
    }
}
