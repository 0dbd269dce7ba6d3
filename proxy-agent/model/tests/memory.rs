//! What a cluster costs in memory. A test binary of its own: it counts every allocation.

#[path = "../examples/figures/counting.rs"]
mod counting;
#[path = "../examples/figures/workload.rs"]
mod workload;

use counting::{Counting, allocated};
use proxy_model::Model;
use workload::Size;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes for a Service with ten endpoints, its objects and the state that follows from them.
/// 10,000 of them must fit into 25 MiB with room to spare. Where an endpoint runs costs four bytes of
/// each.
const BUDGET: usize = 2080;

#[test]
fn a_service_with_ten_endpoints_stays_within_its_budget() {
    let size = Size {
        services: 1000,
        slices: 1,
        endpoints: 10,
    };
    let before = allocated();
    let mut model = Model::new("node-0000");
    for event in size.events() {
        model.apply(event);
    }
    model.update();
    let fresh = (allocated() - before) / 1000;
    assert!(fresh < BUDGET, "{fresh} bytes each");
    // Ten rounds of changes leave nothing behind.
    for event in size.changes(10_000) {
        model.apply(event);
        assert_eq!(model.update().changes.len(), 1);
    }
    let changed = (allocated() - before) / 1000;
    assert!(changed <= fresh, "{changed} bytes each, {fresh} at first");
}
