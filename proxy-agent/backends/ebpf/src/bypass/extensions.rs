//! Matches and targets of iptables, by their names and the structures that the kernel keeps of them
//! (`linux/netfilter/xt_*.h`).

use super::Effect;

/// Where `struct xt_conntrack_mtinfo3` has what it matches by, after eight addresses, two times, a
/// protocol and four ports.
const MATCH_FLAGS: usize = 146;
const STATE_MASK: usize = 150;
const STATUS_MASK: usize = 152;
/// The first revision whose masks have 16 bits.
const WIDE_MASKS: u8 = 2;

const XT_CONNTRACK_STATE: u16 = 1;
const XT_CONNTRACK_ORIGDST: u16 = 1 << 3;
const XT_CONNTRACK_STATUS: u16 = 1 << 6;
const XT_CONNTRACK_ORIGDST_PORT: u16 = 1 << 9;
/// `XT_CONNTRACK_STATE_DNAT`.
const STATE_DNAT: u16 = 1 << 7;
const IPS_DST_NAT: u16 = 0x20;

/// Targets that leave a packet where it goes: what they change plays no part in who gets it.
const HARMLESS: [&str; 20] = [
    "ACCEPT",
    "AUDIT",
    "CHECKSUM",
    "CLASSIFY",
    "CONNSECMARK",
    "CT",
    "DSCP",
    "ECN",
    "HL",
    "IDLETIMER",
    "LED",
    "LOG",
    "NFLOG",
    "NOTRACK",
    "RATEEST",
    "SECMARK",
    "TCPMSS",
    "TOS",
    "TRACE",
    "TTL",
];

/// Whether a match asks how conntrack translated the destination.
pub fn asks(name: &[u8], revision: u8, info: &[u8]) -> bool {
    let half = |at: usize| {
        let bytes = info.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
        u16::from_ne_bytes(bytes.unwrap_or_default())
    };
    if name != b"conntrack" || revision < WIDE_MASKS {
        return false;
    }
    let flags = half(MATCH_FLAGS);
    let original = XT_CONNTRACK_ORIGDST | XT_CONNTRACK_ORIGDST_PORT;
    flags & original != 0
        || flags & XT_CONNTRACK_STATE != 0 && half(STATE_MASK) & STATE_DNAT != 0
        || flags & XT_CONNTRACK_STATUS != 0 && half(STATUS_MASK) & IPS_DST_NAT != 0
}

/// What a target does.
pub fn effect(name: &str) -> Option<Effect> {
    match name {
        "MARK" | "CONNMARK" => Some(Effect::Marks),
        "DROP" | "REJECT" | "TARPIT" => Some(Effect::Drops),
        name if HARMLESS.contains(&name) => None,
        _ => Some(Effect::Diverts),
    }
}
