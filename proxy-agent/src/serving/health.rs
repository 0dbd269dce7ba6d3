//! Whether the agent is well: a pure decision on what it was told, with the clock passed in, and
//! the answer that kube-proxy would give (its JSON, its status codes).
//!
//! A proxy is unwell once something waits to be programmed for two sync periods. kube-proxy
//! judges a family only after its first sync; here the first sync is judged as well, from when
//! it was wanted. Before that, while the source has not told the whole cluster yet, the answer is
//! 200: what an earlier agent programmed is still in force, and a restart during an outage of the
//! API server must not take the node out of every load balancer.
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
    /// Should the agent be left running? A node that is drained is no reason to restart it.
    Livez,
}

/// What was told so far.
#[derive(Debug)]
pub struct Health {
    /// How long something may wait to be programmed.
    timeout: Duration,
    /// What the owner of the state is at.
    heart: Option<Arc<Heart>>,
    state: Mutex<State>,
}

/// One sync programs both families, so both are in the same state.
#[derive(Debug, Clone, Copy)]
struct State {
    /// Since when something waits to be programmed.
    oldest_queued: Option<Instant>,
    last_synced: Option<SystemTime>,
    node_eligible: bool,
}

impl Health {
    /// Nothing was told. A sync may take two of `sync_period`.
    pub fn new(sync_period: Duration) -> Self {
        Self {
            timeout: sync_period.saturating_mul(2),
            heart: None,
            state: Mutex::new(State {
                oldest_queued: None,
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

    /// Something is to be programmed.
    pub fn queued(&self, now: Moment) {
        self.change(|state| {
            state.oldest_queued.get_or_insert(now.instant);
        });
    }

    /// All that was queued is programmed.
    pub fn synced(&self, now: Moment) {
        self.change(|state| {
            state.oldest_queued = None;
            state.last_synced = Some(now.wall);
        });
    }

    /// What was queued was in force already.
    pub fn settled(&self) {
        self.change(|state| state.oldest_queued = None);
    }

    /// Whether this node should get traffic from outside: it is not being deleted, by an
    /// autoscaler or otherwise. Unschedulable is no reason.
    pub fn node(&self, eligible: bool) {
        self.change(|state| state.node_eligible = eligible);
    }

    /// What `probe` is answered. `clients_behind`: for how long a backend behind the node API has
    /// had something newer to bring into force.
    pub fn answer(&self, probe: Probe, now: Moment, clients_behind: Duration) -> Answer {
        let clients_late = clients_behind >= self.timeout && clients_behind > Duration::ZERO;
        let heart = self.heart.as_ref();
        let hangs = heart.is_some_and(|heart| heart.last().hangs(now.instant));
        self.change(|state| state.answer(probe, now, self.timeout, clients_late, hangs))
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        // Each change is one assignment: a panic elsewhere leaves nothing half done.
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn answer(
        self,
        probe: Probe,
        now: Moment,
        timeout: Duration,
        clients_late: bool,
        hangs: bool,
    ) -> Answer {
        let late = self
            .oldest_queued
            .is_some_and(|since| now.instant.saturating_duration_since(since) >= timeout)
            || hangs;
        let judged = late || self.last_synced.is_some();
        let family = FamilyStatus {
            last_updated: self.last_synced.map_or_else(go_zero, timestamp),
            healthy: !late,
        };
        let node_eligible = (probe == Probe::Healthz).then_some(self.node_eligible);
        // To restart this process would not help a backend in another one.
        let clients_late = clients_late && probe == Probe::Healthz;
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
