//! `outside`: what a host outside meets behind a NodePort whose endpoint is on this node, one way
//! beside the other: plain forwarding without a proxy, which is the ceiling; programs on the device
//! alone, and above nftables; the nftables backend; and rules for DNAT written by hand.
//!
//! Each way has a world of its own, with a host outside, a node and a pod.

pub(super) mod additions;
pub(super) mod packets;
mod way;

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{
    Session,
    figures::{Collected, Goal},
    kernel_time::{Program, Statistics},
    sizes::{SMALL, Size},
    task::{BLOCK, Task},
};
use way::{Kind, Way};

/// How long something is done at a time.
const MOMENT: Duration = Duration::from_millis(100);
/// Connections that are open meanwhile.
const LIVE: [u32; 2] = [10, 50_000];
/// With `--quick`.
const QUICK_LIVE: [u32; 2] = [10, 1_000];
/// Programs alone against plain forwarding.
const NEAR_THE_CEILING: Goal = Goal::AtLeast(0.9);
/// Programs above nftables against nftables.
const NO_SLOWER: Goal = Goal::AtLeast(1.0);
/// Both programs for a request and its response.
const BOTH_PROGRAMS: Goal = Goal::AtMost(250.0);

/// What is done, and what it is called.
const TASKS: [(Task, &str); 3] = [
    (Task::Connect, "connects"),
    (Task::Connected, "UDP requests and responses"),
    (Task::Stream, "TCP stream"),
];

/// Measures all ways for a small and a large cluster, with few and many open connections.
pub(super) fn measure(session: &Session) -> Result<Collected> {
    let mut collected = Collected::default();
    let live = if session.quick { QUICK_LIVE } else { LIVE };
    for size in [SMALL, session.large()] {
        for live in live {
            session.progress(&format!("outside: {size} services, {live} connections"));
            one_case(session, size, live, &mut collected)
                .with_context(|| format!("{size} services, {live} connections"))?;
        }
    }
    Ok(collected)
}

fn one_case(session: &Session, size: Size, live: u32, collected: &mut Collected) -> Result<()> {
    let worlds = way::worlds()?;
    let mut ways = Vec::new();
    for (kind, world) in &worlds {
        session.still_wanted()?;
        let mut way = Way::start(*kind, world, size)?;
        way.hold(live)?;
        ways.push(way);
    }
    let case = format!("{size} services, {live} connections");
    for _ in 0..session.runs {
        for (task, name) in TASKS {
            let mut rates = Vec::new();
            for way in &mut ways {
                session.still_wanted()?;
                let rate = rate(way, task)?;
                let case = format!("{case}, {}", way.kind);
                let unit = if task == Task::Stream { "MiB/s" } else { "1/s" };
                collected.add(&case, name, unit, rate);
                rates.push((way.kind, rate));
            }
            compare(&case, name, &rates, collected);
        }
        program_time(&case, &mut ways, collected)?;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "far from 2^53 requests")]
fn rate(way: &mut Way<'_>, task: Task) -> Result<f64> {
    let slice = way.slice(task, MOMENT)?;
    let rate = slice.requests as f64 / slice.elapsed.as_secs_f64();
    Ok(match task {
        Task::Stream => rate * BLOCK as f64 / 1_048_576.0,
        _ => rate,
    })
}

/// Adds how ways stand to each other in this run.
fn compare(case: &str, name: &str, rates: &[(Kind, f64)], collected: &mut Collected) {
    let of = |kind| {
        rates
            .iter()
            .find(|(one, _)| *one == kind)
            .map(|(_, rate)| *rate)
    };
    for (above, below, goal) in [
        (Kind::Alone, Kind::Plain, NEAR_THE_CEILING),
        (Kind::Layers, Kind::Nftables, NO_SLOWER),
    ] {
        if let (Some(above_rate), Some(below_rate)) = (of(above), of(below)) {
            let metric = format!("{name}: {above} / {below}");
            let ratio = above_rate / below_rate;
            collected.add_with_goal(case, &metric, "ratio", Some(goal), ratio);
        }
    }
}

/// Adds the time of both programs for a request and its response of one flow.
fn program_time(case: &str, ways: &mut [Way<'_>], collected: &mut Collected) -> Result<()> {
    let Some(way) = ways.iter_mut().find(|way| way.kind == Kind::Alone) else {
        return Ok(());
    };
    let programs = way.programs()?;
    if programs.is_empty() {
        return Ok(());
    }
    // The kernel's account costs time itself: not while anything else is measured.
    let _statistics = Statistics::enable()?;
    let before = programs
        .iter()
        .map(Program::spent)
        .collect::<Result<Vec<_>>>()?;
    let slice = way.slice(Task::Connected, MOMENT)?;
    let mut sum = 0.0;
    for (program, before) in programs.iter().zip(before) {
        sum += program.spent()?.since(before).per(slice.sent);
    }
    let metric = "both programs, for a request and its response";
    collected.add_with_goal(case, metric, "ns", Some(BOTH_PROGRAMS), sum);
    Ok(())
}
