//! Prints what the model costs: time per change, and memory. `cargo run --locked --release -p proxy-model
//! --example figures`.
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the model has no clock; this measures it"
)]

#[path = "figures/counting.rs"]
mod counting;
#[path = "figures/workload.rs"]
mod workload;

use std::time::{Duration, Instant};

use counting::{Counting, allocated};
use proxy_model::Model;
use workload::Size;

/// Changes that are timed.
const CHANGES: u32 = 20_000;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    for size in [
        Size {
            services: 10,
            slices: 1,
            endpoints: 10,
        },
        Size {
            services: 10_000,
            slices: 1,
            endpoints: 10,
        },
        Size {
            services: 1,
            slices: 10,
            endpoints: 100,
        },
    ] {
        println!("{size:?}");
        let before = allocated();
        let started = Instant::now();
        let mut model = Model::new("node-0000");
        let mut events = 0_u32;
        for event in size.events() {
            model.apply(event);
            events += 1;
        }
        model.update();
        let took = started.elapsed();
        let bytes = allocated() - before;
        println!(
            "  from nothing: {took:?}, {:?} an event, {bytes} bytes",
            took / events
        );
        let took = change(&mut model, size);
        let total: Duration = took.iter().sum();
        println!(
            "  one endpoint: p50 {:?}, p99 {:?}, mean {:?}",
            took[took.len() / 2],
            took[took.len() * 99 / 100],
            total / CHANGES
        );
        drop(took);
        println!("  after that: {} bytes", allocated() - before);
    }
}

/// How long each of many changes of one endpoint takes, shortest first.
fn change(model: &mut Model, size: Size) -> Vec<Duration> {
    let mut took: Vec<_> = size
        .changes(CHANGES)
        .map(|event| {
            // A reader holds the state before, as in the agent.
            let snapshot = model.state().clone();
            let started = Instant::now();
            model.apply(event);
            let change = model.update();
            let took = started.elapsed();
            assert_eq!(change.changes.len(), 1, "one Service port changes");
            drop(snapshot);
            took
        })
        .collect();
    took.sort_unstable();
    took
}
