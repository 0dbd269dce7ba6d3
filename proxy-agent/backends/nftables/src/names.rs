//! Names of chains and sets that stand for what is in them, and numbers for endpoints. Whatever has
//! such a name never changes: something else has another name.

use std::{fmt::Display, sync::Arc};

use proxy_model::ServicePortKey;

/// FNV-1a over what `parts` print: the same in every version of Rust, so that an agent finds again
/// what another one has made.
pub fn hash(parts: &[&dyn Display]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut add = |byte: u8| {
        hash ^= u64::from(byte);
        hash = hash.wrapping_mul(0x0100_0000_01b3);
    };
    for part in parts {
        for byte in part.to_string().bytes() {
            add(byte);
        }
        add(0);
    }
    hash
}

/// A number of 32 bits. Two things that share one share their sticky clients, too, which does no
/// harm: such a client begins with an endpoint that it has not chosen itself.
pub fn number(hash: u64) -> u32 {
    let folded = (hash ^ hash >> 32) & u64::from(u32::MAX);
    u32::try_from(folded).unwrap_or(u32::MAX)
}

/// The kernel takes 255 bytes, and people less.
const LONGEST_SUFFIX: usize = 120;

/// `KIND-0123456789abcdef-NAMESPACE/NAME/PORT/PROTOCOL`: the number makes it unique, the rest is
/// for people.
pub fn of_service(kind: &str, hash: u64, key: &ServicePortKey) -> Arc<str> {
    let service = &key.service;
    let protocol = super::key::word(key.protocol);
    let suffix = format!(
        "{}/{}/{}/{protocol}",
        service.namespace, service.name, key.port
    );
    // What `nft` takes for a name. Kubernetes has no other, but somebody's brain may.
    let plain = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '/' | '-' | '.' => c,
        _ => '_',
    };
    let suffix: String = suffix.chars().map(plain).take(LONGEST_SUFFIX).collect();
    format!("{kind}-{hash:016x}-{suffix}").into()
}
