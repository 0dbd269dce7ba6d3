//! `sync`: how long the agent takes from its start until it serves, what one changed endpoint
//! costs then, and how much memory all of it takes.

use std::time::Instant;

use anyhow::{Context as _, Result};

use super::{
    Session,
    clusters::{self, ENDPOINTS},
    figures::Collected,
    usage::Usage,
};
use proxy_harness::{Agent, AgentOptions, World};

/// The Service that is changed: TCP over IPv4.
const CHANGED: u32 = 2;
/// Changes after each start.
const CHANGES: u8 = 5;

/// Starts an agent on clusters of each size and changes an endpoint.
pub(super) fn measure(session: &Session, world: &World) -> Result<Collected> {
    let mut collected = Collected::default();
    for size in session.sizes {
        let case = &format!("{size} services");
        // The changed Service is in a file of its own: reading a large file again is not what
        // is measured.
        let others = clusters::manifest(CHANGED + 1..size.0 + CHANGED);
        let starts = session.starts;
        for start in 0..starts {
            session.progress(&format!("sync: {case}, start {} of {starts}", start + 1));
            session.still_wanted()?;
            one(world, case, &others, &mut collected)?;
        }
    }
    Ok(collected)
}

fn one(world: &World, case: &str, others: &str, collected: &mut Collected) -> Result<()> {
    let cgroup = world.cgroup().sibling()?;
    let options = AgentOptions {
        cgroup_path: Some(cgroup.path().to_owned()),
        ..AgentOptions::default()
    };
    let changed = clusters::one(CHANGED, ENDPOINTS);
    let files = [("changed.json", changed.as_str()), ("others.json", others)];
    let mut agent = Agent::prepare(world, options, &files)?;
    let began = Instant::now();
    agent.launch()?;
    let started = began.elapsed();
    let serving = agent.serving()?;
    let field = |name: &str| {
        serving
            .decimal(name)
            .with_context(|| format!("\"serving\" has no {name}"))
    };
    let mut add = |metric: &str, unit, value| collected.add(case, metric, unit, value);
    add("from start to serving", "ms", started.as_secs_f64() * 1e3);
    add("of which dataplane", "ms", field("duration_ms")?);
    add("kernel maps", "KiB", field("maps_kib")?);
    let usage = Usage::of(agent.pid().context("the agent is not running")?)?;
    add("agent resident", "KiB", usage.resident_mib * 1024.0);
    for change in 0..CHANGES {
        // One endpoint goes, and comes back.
        let endpoints = ENDPOINTS - 1 + change % 2;
        let began = Instant::now();
        let synced = agent.apply_and_sync("changed.json", &clusters::one(CHANGED, endpoints))?;
        let elapsed = began.elapsed();
        let field = |name: &str| {
            synced
                .decimal(name)
                .with_context(|| format!("\"synced\" has no {name}"))
        };
        add("one endpoint changed", "ms", field("duration_ms")?);
        add(
            "one endpoint changed: from file to kernel",
            "ms",
            elapsed.as_secs_f64() * 1e3,
        );
        let metric = if change % 2 == 0 {
            "one endpoint removed"
        } else {
            "one endpoint added"
        };
        add(metric, "map writes", field("writes")?);
    }
    Ok(())
}
