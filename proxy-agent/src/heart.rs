//! What the agent is at, and since when: its start, then the owner of the state. Whoever wants to
//! know whether it hangs looks here, and waits for nobody.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Whatever takes longer than this hangs. The largest of all, the first sync of a large cluster, takes
/// tens of seconds on a slow machine, and an agent that is restarted for it begins it anew.
pub const LONGEST: Duration = Duration::from_mins(1);

/// How often it beats at least while there is nothing to do.
pub const BEAT: Duration = Duration::from_secs(1);

/// Beats with everything that is begun.
#[derive(Debug)]
pub struct Heart {
    last: Mutex<Beat>,
    /// Whether the owner of the state has begun its work.
    live: AtomicBool,
}

/// The last thing that was begun.
#[derive(Debug, Clone, Copy)]
pub struct Beat {
    /// What, in words for people.
    pub doing: &'static str,
    /// When.
    pub since: Instant,
    /// Whether it is to wait for something to do.
    pub idle: bool,
}

impl Default for Heart {
    fn default() -> Self {
        Self {
            last: Mutex::new(Beat::now("starting", false)),
            live: AtomicBool::new(false),
        }
    }
}

impl Heart {
    /// This is begun now; it completes the sentence "the agent hangs while …".
    pub fn at(&self, doing: &'static str) {
        self.set(Beat::now(doing, false));
    }

    /// There is nothing to do.
    pub fn idle(&self) {
        self.set(Beat::now("waiting for something to do", true));
    }

    /// From now on there is something that is worth being ended in order.
    pub fn live(&self) {
        self.live.store(true, Relaxed);
    }

    /// Whether [`Self::live`] was said.
    pub fn is_live(&self) -> bool {
        self.live.load(Relaxed)
    }

    /// What it is at.
    pub fn last(&self) -> Beat {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, beat: Beat) {
        // One assignment: a panic elsewhere leaves nothing half done.
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = beat;
    }
}

impl Beat {
    fn now(doing: &'static str, idle: bool) -> Self {
        Self {
            doing,
            since: Instant::now(),
            idle,
        }
    }

    /// For how long it had been at it by `now`.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Whether that is too long.
    pub fn hangs(&self, now: Instant) -> bool {
        self.age(now) >= LONGEST
    }
}
