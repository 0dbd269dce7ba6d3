//! What would be programmed, as stable text: the writes of a first sync into empty maps.

use std::fmt::Write as _;

use proxy_model::NodeState;

use super::{
    capacity::Capacity,
    describe,
    encode::{Leaves, Masqueraded},
    memory_maps::MemoryMaps,
    program::{ProgramError, Programmer},
};

/// Renders the Service maps for `state`, one entry a line, map by map in the order of writing.
/// Needs no privileges. `keeps`: endpoints on this node see clients outside, also where they would be
/// masqueraded. `over`: a packet backend beneath serves what is left to it. Numbers are those of an
/// agent that starts on empty maps.
pub fn render(state: &NodeState, keeps: bool, over: bool) -> String {
    let mut programmer = Programmer::new(MemoryMaps::default(), UNLIMITED);
    programmer.leave(Leaves {
        cluster_ips: over && state.traffic.masquerade_all,
        what_does_not_fit: over,
        masqueraded: Masqueraded::of(state, keeps),
    });
    let mut text = String::new();
    for (key, service) in &state.services {
        match programmer.upsert(key, service) {
            Ok(()) => {}
            Err(ProgramError::Refused(reason)) => line(&mut text, &format!("# {key}: {reason}")),
            Err(ProgramError::Map(error)) => line(&mut text, &format!("# {key}: {error}")),
        }
    }
    if let Err(error) = programmer.add_node_addresses(&state.node_port_addresses) {
        line(&mut text, &format!("# NODE_ADDRS: {error}"));
    }
    for entry in programmer.maps().entries.values() {
        let (object, content) = (describe::object(&entry.key()), describe::content(entry));
        line(&mut text, &format!("{object} {content}"));
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
    ranges: usize::MAX,
    node_addresses: usize::MAX,
};

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("writing to a string cannot fail");
}
