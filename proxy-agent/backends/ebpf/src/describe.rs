//! Entries of the Service maps in words: what `render` prints, and what differences are told in.

use std::{fmt::Write as _, net::SocketAddr};

use proxy_common::{
    address,
    frontend::{
        ENDPOINTS_EXIST, FrontendKey, FrontendValue, LEADS_TO_LOCAL, LEFT_ALONE, SCOPE_NODE,
    },
    ranges::RangeKey,
    socket,
};
use proxy_model::IpFamily;

use super::{
    encode,
    entry::{Entry, Key},
};

/// Which entry: map and key.
pub fn object(key: &Key) -> String {
    match key {
        Key::Service(key) => format!("SERVICES {}", key.service),
        Key::Slot(key) => format!("SLOTS set {} index {}", key.set, key.index),
        Key::Member(key) => format!("MEMBERS set {} endpoint {}", key.set, key.endpoint),
        Key::Set(key) => format!("SETS {}", key.set),
        Key::Range(key) => range(key),
        Key::Frontend(key) => format!("FRONTENDS {}", dialled(key)),
        Key::NodeAddress(key) => format!("NODE_ADDRS {}", address::to_ip(key.address)),
    }
}

/// `RANGES service 1 203.0.113.0/24`
fn range(key: &RangeKey) -> String {
    let range = encode::range(key).map_or_else(
        || format!("{} with {} bits", address::to_ip(key.address), key.prefix),
        |range| range.to_string(),
    );
    format!("RANGES service {} {range}", key.service)
}

/// `10.96.0.1:80/TCP`, or `node-port 30080/TCP/IPv4`.
fn dialled(key: &FrontendKey) -> String {
    let address = address::to_ip(key.address);
    let protocol = match key.protocol {
        socket::TCP => "TCP".to_owned(),
        socket::UDP => "UDP".to_owned(),
        other => other.to_string(),
    };
    if key.scope == SCOPE_NODE {
        format!(
            "node-port {}/{protocol}/{}",
            key.port,
            IpFamily::of(address)
        )
    } else {
        format!("{}/{protocol}", SocketAddr::new(address, key.port))
    }
}

/// What the entry says.
pub fn content(entry: &Entry) -> String {
    let (text, whole) = match entry {
        Entry::Service(key, value) => match encode::service_key(*key, value) {
            Some(name) => (name.to_string(), true),
            None => ("unreadable".to_owned(), true),
        },
        Entry::Slot(key, value) => {
            let at = encode::slot_address(value);
            let here = if encode::is_here(value) {
                " on-node"
            } else {
                ""
            };
            let text = format!("endpoint {} at {at}{here}", value.endpoint);
            (text, value.holds_for(key.set))
        }
        Entry::Member(_, value) => (format!("index {}", value.index), true),
        Entry::Set(key, value) => (format!("count {}", value.count), value.holds_for(key.set)),
        Entry::Range(key, value) => ("admitted".to_owned(), value.holds_for(key.service)),
        Entry::Frontend(key, value) => (frontend(value), value.holds_for(key)),
        Entry::NodeAddress(..) => ("answers node ports".to_owned(), true),
    };
    if whole {
        text
    } else {
        // Programs take such a value for one that is just being written.
        text + " with a wrong check"
    }
}

fn frontend(value: &FrontendValue) -> String {
    let mut text = format!("service {}", value.service);
    for (name, set) in [("cluster", value.cluster_set), ("local", value.local_set)] {
        if set != 0 {
            write!(text, " {name}-set {set}").expect("writing to a string cannot fail");
        }
    }
    for (name, flag) in [
        ("leads-to-local", LEADS_TO_LOCAL),
        ("endpoints-exist", ENDPOINTS_EXIST),
        ("left-alone", LEFT_ALONE),
    ] {
        if value.flags & flag != 0 {
            write!(text, " {name}").expect("writing to a string cannot fail");
        }
    }
    if value.affinity != 0 {
        write!(text, " affinity {} s", value.affinity).expect("writing to a string cannot fail");
    }
    text
}
