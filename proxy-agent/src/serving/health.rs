//! Whether the agent is well: a pure decision on what it was told, with the clock passed in, and
//! the answer that kube-proxy would give (its JSON, its status codes).
//!
//! A proxy is unwell once something waits to be programmed for two sync periods. kube-proxy
//! judges a family only after its first sync; here the first sync is judged as well, from when
//! it was wanted. Before that, while the source has not told the whole cluster yet, the answer is
//! 200: what an earlier agent programmed is still in force, and a restart during an outage of the
//! API server must not take the node out of every load balancer.
//!
//! kube-proxy has one dataplane. Here each question is about the layers that it concerns: see
//! [`InForce`].
//!
//! It is unwell, too, while the owner of the state hangs: in the kernel, or anywhere else.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use jiff::Timestamp;
use proxy_model::IpFamily;
use serde::Serialize;

use crate::heart::Heart;

/// A point in time: one clock to measure with, one to tell people.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Never set back or forward.
    pub instant: Instant,
    /// What time it was.
    pub wall: SystemTime,
}

impl Moment {
    /// Now.
    pub fn now() -> Self {
        Self {
            instant: Instant::now(),
            wall: SystemTime::now(),
        }
    }
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// Should load balancers send traffic here? Needs an eligible node too (KEP-3836), and that no
    /// backend behind the node API is late.
    Healthz,
    /// Should the agent be left running? A node that is drained is no reason to restart it, nor is
    /// one layer of several that fails: that is retried anyway, and meanwhile the other ones would
    /// get no changes.
    Livez,
}

/// In which layers the state is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InForce {
    /// In all that are missed where it is not.
    pub all: bool,
    /// In one at least.
    pub any: bool,
    /// In all that serve traffic from outside.
    pub outside: bool,
}

impl InForce {
    /// In every layer.
    pub const EVERYWHERE: Self = Self {
        all: true,
        any: true,
        outside: true,
    };
}

/// What was told so far.
#[derive(Debug)]
pub struct Health {
    /// What the owner of the state is at.
    heart: Option<Arc<Heart>>,
    state: Mutex<State>,
}

/// One sync programs both families, so both are in the same state.
#[derive(Debug, Clone, Copy)]
struct State {
    /// How long something may wait to be programmed.
    timeout: Duration,
    /// Since when something waits to be programmed in the last of the layers.
    all_wait: Option<Instant>,
    /// The same in the first of them.
    any_waits: Option<Instant>,
    /// The same in the last of those that serve traffic from outside.
    outside_waits: Option<Instant>,
    last_synced: Option<SystemTime>,
    node_eligible: bool,
}

impl Health {
    /// Nothing was told. A sync may take two of `sync_period`.
    pub fn new(sync_period: Duration) -> Self {
        Self {
            heart: None,
            state: Mutex::new(State {
                timeout: timeout(sync_period),
                all_wait: None,
                any_waits: None,
                outside_waits: None,
                last_synced: None,
                // As long as nothing is known of the node, nothing speaks against it.
                node_eligible: true,
            }),
        }
    }

    /// An owner whose heart this is must not hang.
    pub fn with_heart(self, heart: Arc<Heart>) -> Self {
        Self {
            heart: Some(heart),
            ..self
        }
    }

    /// Syncs have this period from now on.
    pub fn sync_period(&self, sync_period: Duration) {
        self.change(|state| state.timeout = timeout(sync_period));
    }

    /// Something is to be programmed.
    pub fn queued(&self, now: Moment) {
        self.change(|state| {
            for waits in state.waits() {
                waits.get_or_insert(now.instant);
            }
        });
    }

    /// What was queued is in force in these layers, by a sync or because it was already.
    pub fn in_force(&self, now: InForce) {
        let InForce { all, any, outside } = now;
        self.change(|state| {
            for (waits, in_force) in state.waits().into_iter().zip([all, any, outside]) {
                if in_force {
                    *waits = None;
                }
            }
        });
    }

    /// A sync brought all that was queued into force in every layer.
    pub fn synced(&self, now: Moment) {
        self.in_force(InForce::EVERYWHERE);
        self.change(|state| state.last_synced = Some(now.wall));
    }

    /// Whether this node should get traffic from outside: it is not being deleted, by an
    /// autoscaler or otherwise. Unschedulable is no reason.
    pub fn node(&self, eligible: bool) {
        self.change(|state| state.node_eligible = eligible);
    }

    /// What `probe` is answered. `clients_behind`: for how long a backend behind the node API has
    /// had something newer to bring into force.
    pub fn answer(&self, probe: Probe, now: Moment, clients_behind: Duration) -> Answer {
        let hangs = self.hangs(now);
        self.change(|state| state.answer(probe, now, clients_behind, hangs))
    }

    /// Whether traffic from outside is served as the cluster wants it, as far as the layers that
    /// serve it are concerned.
    pub fn outside(&self, now: Moment) -> bool {
        let hangs = self.hangs(now);
        !self.change(|state| hangs || late(state.outside_waits, now, state.timeout))
    }

    fn hangs(&self, now: Moment) -> bool {
        let heart = self.heart.as_ref();
        heart.is_some_and(|heart| heart.last().hangs(now.instant))
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        // A change assigns values one by one, and nothing between two of them can panic: whatever
        // panicked elsewhere leaves nothing half done.
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    /// In the order of [`InForce`].
    const fn waits(&mut self) -> [&mut Option<Instant>; 3] {
        [
            &mut self.all_wait,
            &mut self.any_waits,
            &mut self.outside_waits,
        ]
    }

    fn answer(self, probe: Probe, now: Moment, clients_behind: Duration, hangs: bool) -> Answer {
        let waits = match probe {
            Probe::Healthz => self.all_wait,
            Probe::Livez => self.any_waits,
        };
        let late = hangs || late(waits, now, self.timeout);
        let judged = late || self.last_synced.is_some();
        let family = FamilyStatus {
            last_updated: self.last_synced.map_or_else(go_zero, timestamp),
            healthy: !late,
        };
        let node_eligible = (probe == Probe::Healthz).then_some(self.node_eligible);
        // To restart this process would not help a backend in another one.
        let clients_late = clients_behind >= self.timeout
            && clients_behind > Duration::ZERO
            && probe == Probe::Healthz;
        let healthy = !late && !clients_late && node_eligible != Some(false);
        Answer {
            // kube-proxy says now if it is well: its older versions synced every so often, and
            // who reads this expects a recent time.
            last_updated: if healthy {
                timestamp(now.wall)
            } else {
                family.last_updated
            },
            current_time: timestamp(now.wall),
            node_eligible,
            healthy,
            status: Families(judged.then_some(family)),
        }
    }
}

/// A sync may take two periods.
const fn timeout(sync_period: Duration) -> Duration {
    sync_period.saturating_mul(2)
}

/// Whether what waits since then has waited for too long.
fn late(since: Option<Instant>, now: Moment, timeout: Duration) -> bool {
    since.is_some_and(|since| now.instant.saturating_duration_since(since) >= timeout)
}

/// Body of an answer, as kube-proxy's `ProxyHealth` in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Now if healthy, otherwise when the last sync succeeded.
    pub last_updated: Timestamp,
    /// Now.
    pub current_time: Timestamp,
    /// For [`Probe::Healthz`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_eligible: Option<bool>,
    /// 200 or 503.
    pub healthy: bool,
    /// Families that are judged.
    pub status: Families,
}

/// Status by family: of both, or of none before the first sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Families(Option<FamilyStatus>);

/// Status of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FamilyStatus {
    /// When the last sync succeeded.
    pub last_updated: Timestamp,
    /// Whether nothing waits for too long.
    pub healthy: bool,
}

impl Serialize for Families {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let families = [IpFamily::V4, IpFamily::V6].map(IpFamily::as_str);
        serializer.collect_map(families.iter().filter_map(|family| Some((family, self.0?))))
    }
}

/// A time that the calendar cannot hold comes from a broken clock; any time is as good then.
fn timestamp(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// What Go writes for a time that was never set: the first of January of the year 1.
fn go_zero() -> Timestamp {
    Timestamp::constant(-62_135_596_800, 0)
}

#[cfg(test)]
mod tests;
