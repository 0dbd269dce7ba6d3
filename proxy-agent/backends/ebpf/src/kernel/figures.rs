//! What is worth watching of the eBPF dataplane: how full its maps are, what they cost, and what
//! the programs counted.

use aya::maps::{MapData, PerCpuArray};
use proxy_common::counters::Counters;
use proxy_model::{Figure, FigureKind};

use super::{EbpfBackend, edge};

const USED: &str = "Entries in use in a map.";
const CAPACITY: &str = "Entries that a map can hold.";
const MEMORY: &str = "Kernel memory of a map in bytes; an estimate before Linux 6.4.";

/// Every name, for the reference page.
pub fn described() -> Vec<Figure> {
    let of_maps = [
        ("map_entries", USED),
        ("map_max_entries", CAPACITY),
        ("map_memory_bytes", MEMORY),
    ];
    let of_maps = of_maps.map(|(name, help)| map_gauge(name, help, "", 0));
    let zeros = Counters::default();
    let counted = events(&zeros);
    let of_devices = edge::described();
    of_maps
        .into_iter()
        .chain(counted)
        .chain(of_devices)
        .collect()
}

/// All figures. Two system calls for each map, and one for the counters.
pub fn figures(backend: &EbpfBackend) -> Vec<Figure> {
    let mut figures = Vec::new();
    let used = backend.tables.programmed().used.by_map();
    for ((map, used), (_, capacity)) in used.into_iter().zip(backend.capacity.by_map()) {
        let mut gauge = |name, help, value| figures.push(map_gauge(name, help, map, value));
        gauge("map_entries", USED, used);
        gauge("map_max_entries", CAPACITY, capacity);
    }
    for map in &backend.maps {
        if let Some(bytes) = map.memory() {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            figures.push(map_gauge("map_memory_bytes", MEMORY, map.shape.name, bytes));
        }
    }
    if let Some(edge) = &backend.outside.edge {
        for map in edge.maps() {
            if let Some(bytes) = map.memory() {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                figures.push(map_gauge("map_memory_bytes", MEMORY, map.shape.name, bytes));
            }
        }
        figures.extend(edge.figures());
    }
    if let Some(counters) = counters(backend) {
        figures.extend(events(&counters));
    }
    figures
}

fn map_gauge(name: &'static str, help: &'static str, map: &str, value: usize) -> Figure {
    Figure {
        name,
        kind: FigureKind::Gauge,
        help,
        labels: vec![("map", map.to_owned())],
        value: number(value as u64),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "exporters count in floating point; 2^53 of anything here is out of reach"
)]
const fn number(value: u64) -> f64 {
    value as f64
}

/// COUNTERS, summed over the CPUs.
fn counters(backend: &EbpfBackend) -> Option<Counters> {
    let map = backend.loaded.ebpf.map("COUNTERS")?;
    let map: PerCpuArray<&MapData, Counters> = map.try_into().ok()?;
    let by_cpu = map.get(&0, 0).ok()?;
    Some(sum(by_cpu.iter()))
}

fn sum<'a>(by_cpu: impl Iterator<Item = &'a Counters>) -> Counters {
    by_cpu.fold(Counters::default(), |sum, one| Counters {
        refused: sum.refused.wrapping_add(one.refused),
        unreachable: sum.unreachable.wrapping_add(one.unreachable),
        looked_again: sum.looked_again.wrapping_add(one.looked_again),
        gave_up: sum.gave_up.wrapping_add(one.gave_up),
        flow_replaced: sum.flow_replaced.wrapping_add(one.flow_replaced),
        flow_not_kept: sum.flow_not_kept.wrapping_add(one.flow_not_kept),
        kernel_left_alone: sum.kernel_left_alone.wrapping_add(one.kernel_left_alone),
    })
}

/// One figure for each counter; all names are there from the start.
fn events(counters: &Counters) -> impl Iterator<Item = Figure> {
    let decisions = [
        ("refused_no_endpoint", counters.refused),
        ("refused_no_local_endpoint", counters.unreachable),
        ("refused_changing", counters.gave_up),
    ];
    let rare = [
        ("looked_again", counters.looked_again),
        ("flow_replaced", counters.flow_replaced),
        ("flow_not_kept", counters.flow_not_kept),
        ("kernel_left_alone", counters.kernel_left_alone),
    ];
    let decisions = decisions.map(|(decision, count)| {
        let help = "Connects and sends that the programs refused; others are not counted.";
        counter("decisions_total", help, ("decision", decision), count)
    });
    let rare = rare.map(|(event, count)| {
        let help = "Rare events in the programs: look-ups repeated because the Service changed, \
                    UDP sockets whose frontends were not all remembered, and sockets of the kernel \
                    itself that are left alone where others are refused (before Linux 6.1).";
        counter("rare_events_total", help, ("event", event), count)
    });
    decisions.into_iter().chain(rare)
}

fn counter(
    name: &'static str,
    help: &'static str,
    (label, of): (&'static str, &str),
    count: u64,
) -> Figure {
    Figure {
        name,
        kind: FigureKind::Counter,
        help,
        labels: vec![(label, of.to_owned())],
        value: number(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_all_cpus_are_added() {
        let one = Counters {
            refused: 1,
            unreachable: 2,
            looked_again: 3,
            gave_up: 4,
            flow_replaced: 5,
            flow_not_kept: 6,
            kernel_left_alone: 7,
        };
        let events: Vec<_> = events(&sum([one, one].iter())).collect();
        let values: Vec<_> = events
            .iter()
            .map(|figure| (figure.labels[0].1.as_str(), figure.value))
            .collect();
        let expected = [
            ("refused_no_endpoint", 2.0),
            ("refused_no_local_endpoint", 4.0),
            ("refused_changing", 8.0),
            ("looked_again", 6.0),
            ("flow_replaced", 10.0),
            ("flow_not_kept", 12.0),
            ("kernel_left_alone", 14.0),
        ];
        assert_eq!(values, expected);
    }
}
