//! What is worth watching of the programs on devices.

use proxy_common::track::reason::{Counted, Reason};
use proxy_model::{Figure, FigureKind};

use super::follower::Follower;

const FLOWS: &str = "Flows from outside that the programs on devices translate, and that are answered; one \
                     whose endpoint sees this node counts as two.";
const MOST: &str = "Flows that there can be.";
const SWEPT: &str = "Flows that were removed because they were over.";
const PACKETS: &str = "First packets to Services that were left to the layer beneath, and packets that \
                       were dropped, by device and reason.";
const DEVICES: &str = "Devices that are served for clients outside: 1, or 0 where that failed.";

/// Every name, for the reference page.
pub fn described() -> Vec<Figure> {
    let mut figures = vec![
        gauge("edge_flows", FLOWS, 0),
        gauge("edge_max_flows", MOST, 0),
        counter("edge_flows_swept_total", SWEPT, Vec::new(), 0),
        device("", false),
    ];
    figures.extend(packets("", &Counted::default()));
    figures
}

/// All figures, of which nothing is asked of the kernel.
pub fn figures(follower: &Follower) -> Vec<Figure> {
    let (flows, most) = follower.flows();
    let mut figures = vec![
        gauge("edge_flows", FLOWS, flows),
        gauge("edge_max_flows", MOST, most),
        counter(
            "edge_flows_swept_total",
            SWEPT,
            Vec::new(),
            follower.removed(),
        ),
    ];
    for seen in follower.devices().iter().filter(|seen| seen.is_chosen()) {
        figures.push(device(&seen.name, seen.is_served()));
    }
    for (device, counted) in follower.counted() {
        figures.extend(packets(&device, &counted));
    }
    figures
}

fn packets<'a>(device: &'a str, counted: &'a Counted) -> impl Iterator<Item = Figure> + 'a {
    Reason::ALL.into_iter().map(move |reason| {
        let labels = vec![
            ("device", device.to_owned()),
            ("reason", reason.as_str().to_owned()),
        ];
        let count = counted.counts[reason as usize];
        counter("edge_packets_total", PACKETS, labels, count)
    })
}

fn device(name: &str, served: bool) -> Figure {
    Figure {
        labels: vec![("device", name.to_owned())],
        ..gauge("edge_device_served", DEVICES, served.into())
    }
}

fn gauge(name: &'static str, help: &'static str, value: u64) -> Figure {
    Figure {
        name,
        kind: FigureKind::Gauge,
        help,
        labels: Vec::new(),
        value: number(value),
    }
}

fn counter(
    name: &'static str,
    help: &'static str,
    labels: Vec<(&'static str, String)>,
    value: u64,
) -> Figure {
    Figure {
        name,
        kind: FigureKind::Counter,
        help,
        labels,
        value: number(value),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "exporters count in floating point; 2^53 of anything here is out of reach"
)]
const fn number(value: u64) -> f64 {
    value as f64
}
