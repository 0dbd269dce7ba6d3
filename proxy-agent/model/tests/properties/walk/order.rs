//! Other orders of the same events. Random by a small generator of its own: the order must come
//! from the test case alone.

use std::collections::{BTreeMap, VecDeque};

use proxy_model::ClusterEvent;

/// Any order at all.
pub fn shuffle<T>(items: &mut [T], mut seed: u64) {
    for last in (1..items.len()).rev() {
        let other = below(last + 1, &mut seed);
        items.swap(last, other);
    }
}

/// Any order that keeps the events about each object in theirs, which is all that sources promise.
pub fn interleave(events: Vec<ClusterEvent>, mut seed: u64) -> Vec<ClusterEvent> {
    let count = events.len();
    let mut queues: BTreeMap<String, VecDeque<ClusterEvent>> = BTreeMap::new();
    for event in events {
        queues.entry(object(&event)).or_default().push_back(event);
    }
    let mut queues: Vec<_> = queues.into_values().collect();
    let mut interleaved = Vec::with_capacity(count);
    while !queues.is_empty() {
        let index = below(queues.len(), &mut seed);
        interleaved.extend(queues[index].pop_front());
        if queues[index].is_empty() {
            queues.swap_remove(index);
        }
    }
    interleaved
}

fn below(end: usize, seed: &mut u64) -> usize {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*seed >> 33).unwrap() % end
}

/// What an event is about.
fn object(event: &ClusterEvent) -> String {
    match event {
        ClusterEvent::ServiceUpserted(service) => format!("Service {}", service.name),
        ClusterEvent::ServiceDeleted(name) => format!("Service {name}"),
        ClusterEvent::SliceUpserted(slice) => format!("EndpointSlice {}", slice.name),
        ClusterEvent::SliceDeleted(name) => format!("EndpointSlice {name}"),
        ClusterEvent::NodeUpserted(node) => format!("Node {}", node.name),
        ClusterEvent::NodeDeleted(name) => format!("Node {name}"),
        ClusterEvent::ServiceCidrUpserted(cidr) => format!("ServiceCIDR {}", cidr.name),
        ClusterEvent::ServiceCidrDeleted(name) => format!("ServiceCIDR {name}"),
        ClusterEvent::HostAddresses(_) => "host".to_owned(),
        ClusterEvent::Diagnosed { object, .. } => format!("about {object}"),
    }
}
