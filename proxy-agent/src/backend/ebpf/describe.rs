//! Entries of the Service maps in words: what `render` prints, and what differences are told in.

use std::{fmt::Write as _, net::SocketAddr};

use proxy_common::{
    address,
    frontend::{ENDPOINTS_EXIST, FrontendValue, LEADS_TO_LOCAL},
    socket,
};

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
        Key::Frontend(key) => {
            let at = SocketAddr::new(address::to_ip(key.address), key.port);
            match key.protocol {
                socket::TCP => format!("FRONTENDS {at}/TCP"),
                socket::UDP => format!("FRONTENDS {at}/UDP"),
                other => format!("FRONTENDS {at}/{other}"),
            }
        }
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
            let text = format!("endpoint {} at {at}", value.endpoint);
            (text, value.holds_for(key.set))
        }
        Entry::Member(_, value) => (format!("index {}", value.index), true),
        Entry::Set(key, value) => (format!("count {}", value.count), value.holds_for(key.set)),
        Entry::Frontend(key, value) => (frontend(value), value.holds_for(key)),
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
    ] {
        if value.flags & flag != 0 {
            write!(text, " {name}").expect("writing to a string cannot fail");
        }
    }
    text
}
