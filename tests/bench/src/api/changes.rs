//! One Service that leads to one of two endpoints, in turn: how soon a client reaches the new one.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use proxy_harness::World;

use super::{
    super::{Session, rig},
    dial::Dialler,
    objects,
};

/// Changes after each start; each is a value of its own, so that the tail shows.
const CHANGES: usize = 200;
/// Slow ones are fewer: no more once they have taken so long together, but so many in any case.
const LONG: Duration = Duration::from_secs(20);
const FEW_CHANGES: usize = 20;
/// The same with `--quick`.
const QUICK_CHANGES: usize = 6;
/// Between two changes: as long as one took, and not less or more than that.
const REST: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(250)];
/// The Service that is changed.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Changed<'a, 'w> {
    pub(in super::super) world: &'w World,
    pub(in super::super) endpoints: [SocketAddr; 2],
    pub(in super::super) case: &'a str,
}

/// How long each of some changes took, in milliseconds, the shortest first.
#[derive(Debug)]
pub(in super::super) struct Times(Vec<f64>);

impl Times {
    /// How many there were.
    pub(in super::super) fn count(&self) -> usize {
        self.0.len()
    }

    /// So many in a hundred took less.
    pub(in super::super) fn at(&self, percent: usize) -> f64 {
        self.0[(self.0.len() - 1) * percent / 100]
    }
}

/// How long each change took until the first connection reached the new endpoint. `change` has the Service lead
/// there, which has led to the first one.
pub(in super::super) fn changes(
    session: &Session,
    changed: &Changed<'_, '_>,
    mut change: impl FnMut(SocketAddr) -> Result<()>,
) -> Result<Times> {
    let mut dialler = Dialler::start(changed.world.node(), rig::own_program("dial")?)?;
    let frontend = SocketAddr::from(objects::FRONTEND);
    let most = if session.starts == 1 {
        QUICK_CHANGES
    } else {
        CHANGES
    };
    let (began, mut times) = (Instant::now(), Vec::new());
    // An even number: the first endpoint is the last one, too.
    while times.len() < most
        && (times.len() < FEW_CHANGES || times.len() % 2 == 1 || began.elapsed() < LONG)
    {
        session.still_wanted()?;
        let new = changed.endpoints[usize::from(times.len() % 2 == 0)];
        let took = dialler.time(frontend, new.port(), || change(new))?;
        times.push(took.as_secs_f64() * 1e3);
        // What is in force before it is done must not delay the next one.
        thread::sleep(took.clamp(REST[0], REST[1]));
    }
    times.sort_by(f64::total_cmp);
    Ok(Times(times))
}
