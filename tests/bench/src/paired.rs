//! Measures several things side by side: short slices of each in turn, so that whatever else
//! the machine does meets all of them alike.
//!
//! Ratios are taken twice: by the clock, which is what a user sees and needs a quiet machine, and
//! by the sender's CPU time, the kernel's work for it included, which another process on the same
//! CPU does not change. One above 1 means that the first is the quicker of the two.

use std::time::Duration;

use anyhow::Result;

use super::{
    Session,
    clusters::Kind,
    figures::{Collected, Goal, median},
    rig::{Dialled, Place, Rig},
    sizes::{SMALL, Size},
    task::Task,
};

/// Slices of each thing in one run; the run's figures are medians over them.
const ROUNDS: usize = 16;
/// Length of a slice.
const SLICE: Duration = Duration::from_millis(10);

/// A Service should cost next to nothing.
const GOAL: Option<Goal> = Some(Goal::AtLeast(0.98));

/// One of the things to compare.
#[derive(Debug, Clone, Copy)]
struct Variant {
    place: Place,
    dialled: Dialled,
}

// Positions in the list of variants. What is compared with each other stands side by side.
const LARGE_ALL: usize = 0;
const LARGE_DIRECT: usize = 1;
const LARGE_FEW: usize = 2;
const SMALL_FEW: usize = 3;
const SMALL_DIRECT: usize = 4;
const BARE: usize = 5;

/// Cases, with the positions of what is dialled directly and through ClusterIPs.
fn cases(large: Size) -> [(String, usize, usize); 3] {
    [
        (format!("{SMALL} services"), SMALL_DIRECT, SMALL_FEW),
        (format!("{large} services"), LARGE_DIRECT, LARGE_FEW),
        (
            format!("{large} services, all dialled in turn"),
            LARGE_DIRECT,
            LARGE_ALL,
        ),
    ]
}

/// What a request took, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Cost {
    elapsed: f64,
    cpu: f64,
}

/// `tcp-connect`.
pub(super) fn tcp(session: &Session, rig: &mut Rig<'_>) -> Result<Collected> {
    let mut collected = Collected::default();
    compare(
        session,
        rig,
        "tcp-connect",
        Task::Connect,
        "",
        Kind::Tcp,
        &mut collected,
    )?;
    compare(
        session,
        rig,
        "tcp-connect",
        Task::Connect,
        "IPv6, ",
        Kind::Tcp6,
        &mut collected,
    )?;
    Ok(collected)
}

/// `udp-request`.
pub(super) fn udp(session: &Session, rig: &mut Rig<'_>) -> Result<Collected> {
    let mut collected = Collected::default();
    for task in [
        Task::Connected,
        Task::Unconnected,
        Task::NewConnected,
        Task::NewUnconnected,
    ] {
        let prefix = format!("{task}, ");
        compare(
            session,
            rig,
            "udp-request",
            task,
            &prefix,
            Kind::Udp,
            &mut collected,
        )?;
    }
    Ok(collected)
}

/// Compares ClusterIPs with their endpoints, under a few Services and under many.
fn compare(
    session: &Session,
    rig: &mut Rig<'_>,
    bench: &str,
    task: Task,
    prefix: &str,
    kind: Kind,
    collected: &mut Collected,
) -> Result<()> {
    let variant = |place, dialled| Some(Variant { place, dialled });
    // A socket that is used again stays with the Service it was opened for.
    let opens_each = !matches!(task, Task::Connected | Task::Unconnected);
    let cases = cases(session.large());
    let variants = [
        if opens_each {
            variant(Place::Large, Dialled::All(kind))
        } else {
            None
        },
        variant(Place::Large, Dialled::Endpoints(kind)),
        variant(Place::Large, Dialled::Few(kind)),
        variant(Place::Small, Dialled::Few(kind)),
        variant(Place::Small, Dialled::Endpoints(kind)),
        variant(Place::Bare, Dialled::Endpoints(kind)),
    ];
    for run in 0..session.runs {
        session.progress(&format!(
            "{bench}: {prefix}run {} of {}",
            run + 1,
            session.runs
        ));
        session.still_wanted()?;
        let rounds = Rounds::measure(rig, task, &variants)?;
        let mut add = |case: &str, metric: &str, unit, goal, value| {
            collected.add_with_goal(&format!("{prefix}{case}"), metric, unit, goal, value);
        };
        let rate = |which: usize| rounds.median(|costs| 1e9 / costs[which].elapsed);
        let by_clock = |which: usize, to: usize| {
            rounds.median(|costs| costs[to].elapsed / costs[which].elapsed)
        };
        let by_cpu =
            |which: usize, to: usize| rounds.median(|costs| costs[to].cpu / costs[which].cpu);
        let added =
            |which: usize, to: usize| rounds.median(|costs| costs[which].cpu - costs[to].cpu);
        add("no programs", "direct", "1/s", None, rate(BARE));
        for (case, direct, service) in &cases {
            let (direct, service) = (*direct, *service);
            if variants[service].is_none() {
                continue;
            }
            add(case, "direct", "1/s", None, rate(direct));
            add(case, "ClusterIP", "1/s", None, rate(service));
            add(
                case,
                "ratio to direct",
                "ratio",
                GOAL,
                by_clock(service, direct),
            );
            add(
                case,
                "ratio to direct, CPU time",
                "ratio",
                GOAL,
                by_cpu(service, direct),
            );
            add(
                case,
                "ratio to no programs, CPU time",
                "ratio",
                None,
                by_cpu(service, BARE),
            );
            add(
                case,
                "CPU time added to direct",
                "ns",
                None,
                added(service, direct),
            );
        }
        let case = &format!("{} against {SMALL} services", session.large());
        add(case, "ratio", "ratio", GOAL, by_clock(LARGE_FEW, SMALL_FEW));
        add(
            case,
            "ratio, CPU time",
            "ratio",
            GOAL,
            by_cpu(LARGE_FEW, SMALL_FEW),
        );
        let case = "programs attached, not a Service";
        add(
            case,
            "ratio to no programs, CPU time",
            "ratio",
            None,
            by_cpu(SMALL_DIRECT, BARE),
        );
    }
    Ok(())
}

/// What the slices of one run came to, a row per round.
struct Rounds<const N: usize>(Vec<[Cost; N]>);

impl<const N: usize> Rounds<N> {
    /// Measures [`ROUNDS`] slices of each variant.
    fn measure(rig: &mut Rig<'_>, task: Task, variants: &[Option<Variant>; N]) -> Result<Self> {
        let mut rounds = Vec::with_capacity(ROUNDS);
        for round in 0..ROUNDS {
            let mut costs = [Cost {
                elapsed: 0.0,
                cpu: 0.0,
            }; N];
            for step in 0..N {
                // There and back, so that what drifts drifts for all; neighbours stay neighbours.
                let which = if round % 2 == 0 { step } else { N - 1 - step };
                let Some(variant) = variants[which] else {
                    continue;
                };
                let slice = rig.run(variant.place, task, variant.dialled, SLICE)?;
                let requests = f64::from(u32::try_from(slice.requests).unwrap_or(u32::MAX));
                costs[which] = Cost {
                    elapsed: slice.elapsed.as_secs_f64() * 1e9 / requests,
                    cpu: slice.cpu.as_secs_f64() * 1e9 / requests,
                };
            }
            rounds.push(costs);
        }
        Ok(Self(rounds))
    }

    /// The median over the rounds of a number made of one round.
    fn median(&self, number: impl Fn(&[Cost; N]) -> f64) -> f64 {
        median(&self.0.iter().map(number).collect::<Vec<_>>())
    }
}
