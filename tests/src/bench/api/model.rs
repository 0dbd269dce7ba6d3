//! The model alone: no source, no backend, no other process.

use std::{hint::black_box, net::IpAddr, sync::Arc, time::Instant};

use anyhow::Result;
use proxy_model::{
    ClusterEvent, Conditions, EndpointSlice, IpFamily, Model, Protocol, Service, ServiceName,
    ServicePort, SliceEndpoint, SliceName, SlicePort, TrafficPolicy,
};

use super::super::{
    Session,
    figures::{Collected, Goal},
};

/// Services, each with [`ENDPOINTS`]: 100,000 endpoints.
const SERVICES: u32 = 10_000;
const ENDPOINTS: u8 = 10;
/// Changes of which the median is one figure.
const CHANGES: u32 = 1_000;

/// Measures it.
pub(super) fn measure(session: &Session, collected: &mut Collected) -> Result<()> {
    const CASE: &str = "model alone, 100,000 endpoints";
    for _ in 0..session.runs {
        session.still_wanted()?;
        let mut model = Model::new("node-a");
        let events: Vec<_> = (0..SERVICES)
            .flat_map(|number| [service(number), slice(number, ENDPOINTS)])
            .collect();
        let began = Instant::now();
        for event in events {
            model.apply(event);
        }
        let change = model.update();
        let took = began.elapsed();
        assert_eq!(change.changes.len(), SERVICES as usize);
        collected.add(
            CASE,
            "first events",
            "1/s",
            f64::from(2 * SERVICES) / took.as_secs_f64(),
        );

        let mut times: Vec<f64> = (0..CHANGES)
            .map(|change| {
                let event = slice(change * 7 % SERVICES, ENDPOINTS - 1);
                let began = Instant::now();
                model.apply(event);
                black_box(model.update());
                began.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        let all: f64 = times.iter().sum();
        times.sort_by(f64::total_cmp);
        let goal = Some(Goal::AtMost(50.0));
        let median = times[times.len() / 2];
        collected.add_with_goal(CASE, "one endpoint changed", "µs", goal, median);
        let rate = f64::from(CHANGES) / all * 1e6;
        collected.add(CASE, "changes, each an update of its own", "1/s", rate);
    }
    Ok(())
}

fn name(number: u32) -> ServiceName {
    ServiceName::new("bench", format!("s{number}"))
}

fn service(number: u32) -> ClusterEvent {
    ClusterEvent::ServiceUpserted(Service {
        name: name(number),
        cluster_ips: vec![IpAddr::from((0x0a60_0001 + number).to_be_bytes())],
        ports: vec![ServicePort {
            name: "main".into(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: None,
        }],
        internal_policy: TrafficPolicy::Cluster,
        ..Service::default()
    })
}

fn slice(number: u32, endpoints: u8) -> ClusterEvent {
    let node: Arc<str> = "node-a".into();
    let endpoint = |last| SliceEndpoint {
        address: IpAddr::from([10, 244, 0, last]),
        conditions: Conditions {
            ready: true,
            serving: true,
            terminating: false,
        },
        node: Some(Arc::clone(&node)),
        hints: None,
    };
    ClusterEvent::SliceUpserted(EndpointSlice {
        name: SliceName::new("bench", format!("s{number}-a")),
        service: name(number),
        family: IpFamily::V4,
        ports: vec![SlicePort {
            name: "main".into(),
            protocol: Protocol::Tcp,
            port: 8080,
        }],
        endpoints: (1..=endpoints).map(endpoint).collect(),
    })
}
