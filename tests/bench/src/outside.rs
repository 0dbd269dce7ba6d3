//! `outside`, `outside-masqueraded`: what a host outside meets behind a NodePort, one way beside the other: plain
//! forwarding without a proxy, which is the ceiling; programs on devices alone, and above nftables; the
//! nftables backend; and rules written by hand.
//!
//! Each way has a world of its own, with a host outside, a node and endpoints.

pub(super) mod additions;
mod cluster;
pub(super) mod created;
mod memory;
pub(super) mod packets;
mod place;
mod way;

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{
    Session,
    figures::{Collected, Goal},
    kernel_time::{Program, Statistics},
    sizes::SMALL,
    task::{BLOCK, Task},
};
pub(super) use place::Place;
use way::{Case, Kind, Way};

/// How long something is done at a time.
const MOMENT: Duration = Duration::from_millis(100);
/// Connections that are open meanwhile.
const LIVE: [u32; 2] = [10, 200_000];
/// With `--quick`.
const QUICK_LIVE: [u32; 2] = [10, 1_000];
/// Programs alone against plain forwarding.
const NEAR_THE_CEILING: Goal = Goal::AtLeast(0.9);
/// Programs above nftables against nftables.
const NO_SLOWER: Goal = Goal::AtLeast(1.0);
/// The programs for a request and its response, where two of them do.
const BOTH_PROGRAMS: Goal = Goal::AtMost(250.0);

/// What is done, and what it is called.
const TASKS: [(Task, &str); 3] = [
    (Task::Connect, "connects"),
    (Task::Connected, "UDP requests and responses"),
    (Task::Stream, "TCP stream"),
];

/// Measures all ways to endpoints in these places, for a small and a large cluster, with few and many open
/// connections.
pub(super) fn measure(session: &Session, places: &[Place]) -> Result<Collected> {
    let mut collected = Collected::default();
    let lives = if session.quick { QUICK_LIVE } else { LIVE };
    for place in places {
        for size in [SMALL, session.large()] {
            for live in lives {
                let case = Case {
                    place: *place,
                    size,
                    live,
                };
                session.progress(&format!("outside: {case}"));
                one_case(session, case, &mut collected).with_context(|| case.to_string())?;
            }
        }
    }
    Ok(collected)
}

fn one_case(session: &Session, case: Case, collected: &mut Collected) -> Result<()> {
    let worlds = way::worlds()?;
    let mut ways = Vec::new();
    for (kind, world) in &worlds {
        session.still_wanted()?;
        let mut way = Way::start(*kind, world, case)?;
        for (of, bytes) in way.hold(case.live)? {
            let metric = format!("memory of a flow: {of}");
            collected.add(&format!("{case}, {kind}"), &metric, "B", bytes);
        }
        ways.push(way);
    }
    let (place, case) = (case.place, case.to_string());
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
        let goal = (!place.is_masqueraded()).then_some(BOTH_PROGRAMS);
        program_time(&case, goal, &mut ways, collected)?;
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

/// Adds the time of all programs for a request and its response of one flow.
fn program_time(
    case: &str,
    goal: Option<Goal>,
    ways: &mut [Way<'_>],
    collected: &mut Collected,
) -> Result<()> {
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
    let metric = "programs, for a request and its response";
    collected.add_with_goal(case, metric, "ns", goal, sum);
    Ok(())
}
