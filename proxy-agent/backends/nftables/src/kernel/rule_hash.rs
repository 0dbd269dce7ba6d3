//! What stands beside a rule of ours: a hash over it, by which the next agent knows it again. What another
//! process has changed or put in has none, or another.

use proxy_model::IpFamily;
use proxy_netlink::message::{Head, Messages};

use super::{expressions, typeof_data};
use crate::{names, ruleset::Rule};

/// A mark beside our rules, of a kind that `nft` does not print: a hash over what is in the rule.
/// A rule without it, or with another one, is not ours, or not the one that should be there.
const RULE_HASH: u8 = 0xc7;

/// Puts `hash` into the data beside a rule.
pub fn put(user_data: &mut Vec<u8>, hash: u64) {
    typeof_data::put(user_data, RULE_HASH, &hash.to_be_bytes());
}

/// A hash over what the kernel is told of a rule. It stands beside the rules of earlier agents: another
/// one would have the next agent write all of them anew.
pub fn rule_hash(rule: &Rule, family: IpFamily) -> u64 {
    let mut messages = Messages::default();
    messages.add(Head::default(), |attributes| {
        expressions::write(rule, family, attributes);
    });
    let text = messages.as_bytes().escape_ascii().to_string();
    names::hash(&[&text, &rule.comment.unwrap_or_default()])
}

/// The hash beside a rule, if it is one of ours.
pub fn hash_beside(user_data: &[u8]) -> Option<u64> {
    let mut rest = user_data;
    while let [kind, length, after @ ..] = rest {
        let (value, next) = after.split_at_checked(usize::from(*length))?;
        if *kind == RULE_HASH {
            return Some(u64::from_be_bytes(value.try_into().ok()?));
        }
        rest = next;
    }
    None
}

// The kernel's messages are in the byte order of the machine, and so is what is hashed.
#[cfg(all(test, target_endian = "little"))]
mod tests {
    use super::*;
    use crate::fixed::nat_chains;

    #[test]
    fn rules_of_earlier_agents_are_known_again() {
        let hashes = [IpFamily::V4, IpFamily::V6].map(|family| {
            let chains = nat_chains(family);
            rule_hash(&chains[0].rules[0], family)
        });
        assert_eq!(hashes, [0x01ed_00c3_9d2f_480a; 2], "{hashes:x?}");
    }
}
