//! Traffic through each stack of layers, and past it to the endpoint itself, beside a host without a
//! proxy: in turn, a moment each, so that whatever else the machine does meets all alike.

use std::{net::SocketAddr, time::Duration};

use anyhow::Result;

use super::super::{
    Session,
    api::{POD, objects::STEADY},
    connect,
    figures::{Collected, Goal},
    rig::Sender,
    task::{BLOCK, Task},
    worker::{Order, Report},
};
use proxy_harness::World;

/// Where the servers of the steady Service listen: TCP, UDP, and TCP that only reads.
pub(super) const SERVERS: [u16; 3] = [9003, 9004, 9005];
/// How long something is done at a time.
const MOMENT: Duration = Duration::from_millis(100);
/// A connect to the endpoint against one to a ClusterIP, on the same host.
const NO_SLOWER: Goal = Goal::AtLeast(0.98);

/// A host, and who sends there.
pub(super) struct Place<'w> {
    name: String,
    world: &'w World,
    sender: Sender,
    /// Whether a ClusterIP is served.
    served: bool,
    /// What a connect through it should cost.
    goal: Option<Goal>,
}

/// Whom they send to, as the sender calls it.
const ENDPOINT: &str = "endpoint";
const SERVICE: &str = "Service";

impl<'w> Place<'w> {
    /// A sender in `world`, which serves with `stack`, or not at all. With `quick`, a connect to a
    /// ClusterIP should take no longer than one to the endpoint.
    pub(super) fn new(world: &'w World, stack: Option<&str>, quick: bool) -> Result<Self> {
        let mut sender = Sender::start(world.node())?;
        sender.enter(world.node().cgroup())?;
        for (list, frontend) in [(ENDPOINT, false), (SERVICE, true)] {
            for (index, task) in [Task::Connect, Task::Connected, Task::Stream]
                .into_iter()
                .enumerate()
            {
                let order = Order::Targets {
                    name: named(list, task),
                    to: vec![target(index, frontend)],
                };
                match sender.order(&order)? {
                    Report::Known => {}
                    other => anyhow::bail!("the sender said {other:?}"),
                }
            }
        }
        Ok(Self {
            name: stack.unwrap_or("no proxy").to_owned(),
            world,
            sender,
            served: stack.is_some(),
            goal: quick.then_some(NO_SLOWER),
        })
    }

    fn lists(&self) -> &'static [&'static str] {
        if self.served {
            &[ENDPOINT, SERVICE]
        } else {
            &[ENDPOINT]
        }
    }
}

fn named(list: &str, task: Task) -> String {
    format!("{list}, {task}")
}

/// The server with this number, or the port that leads there.
fn target(index: usize, frontend: bool) -> SocketAddr {
    if frontend {
        let (address, port, _) = STEADY[index];
        (address, port).into()
    } else {
        (POD, SERVERS[index]).into()
    }
}

/// Connects, asks and streams in each of `places`, as often as there are runs.
pub(super) fn measure(
    session: &Session,
    case: &str,
    places: &mut [Place<'_>],
    collected: &mut Collected,
) -> Result<()> {
    for _ in 0..session.runs {
        for place in &mut *places {
            session.still_wanted()?;
            connections(case, place, collected)?;
            requests(case, place, collected)?;
        }
    }
    Ok(())
}

fn connections(case: &str, place: &Place<'_>, collected: &mut Collected) -> Result<()> {
    let case = format!("{case}, {}", place.name);
    let mut halves = Vec::new();
    for list in place.lists() {
        let to = target(0, *list == SERVICE);
        let moment = connect::during(place.world.node(), to, MOMENT)?;
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let mut add = |what: &str, unit, value| {
            collected.add(&case, &format!("{what} to {list}"), unit, value);
        };
        add("connections", "1/s", moment.rate());
        add("connect, p50", "µs", micros(moment.half));
        add("connect, p99", "µs", micros(moment.most));
        halves.push(micros(moment.half));
    }
    if let [direct, served] = halves[..] {
        // Of the halves: a rate is ruined by one pause of the machine.
        let metric = "connect, p50 to endpoint / to Service";
        collected.add_with_goal(&case, metric, "ratio", place.goal, direct / served);
    }
    Ok(())
}

fn requests(case: &str, place: &mut Place<'_>, collected: &mut Collected) -> Result<()> {
    let case = format!("{case}, {}", place.name);
    for list in place.lists() {
        for task in [Task::Connected, Task::Stream] {
            let slice = place.sender.slice(task, &named(list, task), MOMENT)?;
            #[expect(clippy::cast_precision_loss, reason = "far from 2^53 requests")]
            let rate = slice.requests as f64 / slice.elapsed.as_secs_f64();
            #[expect(clippy::cast_precision_loss, reason = "a few KiB")]
            let (what, unit, value) = match task {
                Task::Stream => ("TCP stream", "MiB/s", rate * BLOCK as f64 / 1_048_576.0),
                _ => ("UDP request and response", "1/s", rate),
            };
            collected.add(&case, &format!("{what} to {list}"), unit, value);
        }
    }
    Ok(())
}
