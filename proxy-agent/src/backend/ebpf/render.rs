//! What would be programmed, as stable text: the writes of a first sync into empty maps.

use std::fmt::Write as _;

use proxy_common::{
    address,
    frontend::{ENDPOINTS_EXIST, LEADS_TO_LOCAL},
};
use proxy_model::{NodeState, Protocol};

use super::{
    capacity::Capacity,
    encode,
    entry::Entry,
    memory_maps::MemoryMaps,
    program::{ProgramError, Programmer},
};

/// Renders the Service maps for `state`, one entry a line, map by map in the order of writing.
/// Needs no privileges. Numbers are those of an agent that starts on empty maps.
pub fn render(state: &NodeState) -> String {
    let mut programmer = Programmer::new(MemoryMaps::default(), UNLIMITED);
    let mut text = String::new();
    for (key, service) in &state.services {
        match programmer.upsert(key, service) {
            Ok(()) => {}
            Err(ProgramError::Refused(reason)) => line(&mut text, &format!("# {key}: {reason}")),
            Err(ProgramError::Map(error)) => line(&mut text, &format!("# {key}: {error}")),
        }
    }
    for entry in programmer.maps().entries.values() {
        line(&mut text, &describe(entry));
    }
    text
}

/// Memory has no limit worth checking.
const UNLIMITED: Capacity = Capacity {
    services: usize::MAX,
    frontends: usize::MAX,
    sets: usize::MAX,
    slots: usize::MAX,
    members: usize::MAX,
};

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("writing to a string cannot fail");
}

fn describe(entry: &Entry) -> String {
    match entry {
        Entry::Service(key, value) => match encode::service_key(*key, value) {
            Some(name) => format!("SERVICES {} {name}", key.service),
            None => format!("SERVICES {} unreadable", key.service),
        },
        Entry::Slot(key, value) => {
            let (set, index, endpoint) = (key.set, key.index, value.endpoint);
            let at = encode::slot_address(value);
            format!("SLOTS set {set} index {index} endpoint {endpoint} at {at}")
        }
        Entry::Member(key, value) => {
            format!(
                "MEMBERS set {} endpoint {} index {}",
                key.set, key.endpoint, value.index
            )
        }
        Entry::Set(key, value) => format!("SETS {} count {}", key.set, value.count),
        Entry::Frontend(key, value) => {
            let at = std::net::SocketAddr::new(address::to_ip(key.address), key.port);
            let protocol = match key.protocol {
                proxy_common::socket::UDP => Protocol::Udp,
                _ => Protocol::Tcp,
            };
            let mut text = format!("FRONTENDS {at}/{protocol} service {}", value.service);
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
    }
}
