//! The model alone: no source, no backend, no other process.

use std::{hint::black_box, time::Instant};

use anyhow::Result;
use proxy_model::Model;

use super::super::{
    Session, clusters,
    events::{self, ENDPOINTS, NODE},
    figures::{Collected, Goal},
    sizes::Size,
};

/// Changes of which the median is one figure.
const CHANGES: u32 = 1_000;

/// Measures it.
pub(super) fn measure(session: &Session, collected: &mut Collected) -> Result<()> {
    let services = session.large().0;
    let endpoints = Size(services * u32::from(clusters::ENDPOINTS));
    let case = &format!("model alone, {endpoints} endpoints");
    for _ in 0..session.runs {
        session.still_wanted()?;
        let mut model = Model::new(NODE);
        let events: Vec<_> = events::cluster(services).collect();
        let began = Instant::now();
        for event in events {
            model.apply(event);
        }
        let change = model.update();
        let took = began.elapsed();
        assert_eq!(change.changes.len(), services as usize);
        collected.add(
            case,
            "first events",
            "1/s",
            f64::from(2 * services) / took.as_secs_f64(),
        );

        let mut times: Vec<f64> = (0..CHANGES)
            .map(|change| {
                let event = events::slice(change * 7 % services, ENDPOINTS.skip(1));
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
        collected.add_with_goal(case, "one endpoint changed", "µs", goal, median);
        let rate = f64::from(CHANGES) / all * 1e6;
        collected.add(case, "changes, each an update of its own", "1/s", rate);
    }
    Ok(())
}
