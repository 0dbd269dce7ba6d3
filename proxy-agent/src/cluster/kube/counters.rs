//! What the source has done so far, for metrics. Numbers only.

use std::{
    fmt,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// The kinds of objects that are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// `v1` Services.
    Service,
    /// `discovery.k8s.io/v1` EndpointSlices.
    EndpointSlice,
    /// The own Node.
    Node,
    /// `networking.k8s.io/v1` `ServiceCIDR`s.
    ServiceCidr,
}

impl ObjectKind {
    /// All, in the order of [`Counters::kinds`].
    pub const ALL: [Self; 4] = [
        Self::Service,
        Self::EndpointSlice,
        Self::Node,
        Self::ServiceCidr,
    ];

    /// As in the API: `EndpointSlice`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Node => "Node",
            Self::ServiceCidr => "ServiceCIDR",
        }
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a request or an answer came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// No connection, or no answer in time.
    Unreachable,
    /// The answer broke off.
    BrokeOff,
    /// Nothing came for too long.
    Silent,
    /// What was asked for is too old: everything is listed again.
    Expired,
    /// The credentials are not accepted (401).
    Unauthorized,
    /// The credentials do not suffice (403).
    Forbidden,
    /// Too many requests (429).
    Throttled,
    /// The server failed (5xx).
    Server,
    /// The server did not accept the request (another 4xx).
    Refused,
    /// The answer makes no sense.
    Garbled,
}

impl Reason {
    /// All, in the order of [`Counters::errors`].
    pub const ALL: [Self; 10] = [
        Self::Unreachable,
        Self::BrokeOff,
        Self::Silent,
        Self::Expired,
        Self::Unauthorized,
        Self::Forbidden,
        Self::Throttled,
        Self::Server,
        Self::Refused,
        Self::Garbled,
    ];

    /// As a label of a metric.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::BrokeOff => "broke_off",
            Self::Silent => "silent",
            Self::Expired => "expired",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::Throttled => "throttled",
            Self::Server => "server",
            Self::Refused => "refused",
            Self::Garbled => "garbled",
        }
    }
}

/// Counted since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Bytes of answers, without the overhead of TLS and HTTP.
    pub bytes_read: AtomicU64,
    /// By [`ObjectKind`], in the order of [`ObjectKind::ALL`].
    pub kinds: [KindCounters; ObjectKind::ALL.len()],
    /// By [`Reason`], in the order of [`Reason::ALL`].
    pub errors: [AtomicU64; Reason::ALL.len()],
    /// How often another server was turned to.
    pub failovers: AtomicU64,
    /// Which of the servers is in use, from 0.
    pub server: AtomicUsize,
}

/// Counted since the start, for one kind of objects.
#[derive(Debug, Default)]
pub struct KindCounters {
    /// Objects that were listed, and changes that were received.
    pub events: AtomicU64,
    /// Bookmarks.
    pub bookmarks: AtomicU64,
    /// Lists that were completed, streaming ones too.
    pub lists: AtomicU64,
    /// Watches that were started, including streaming lists.
    pub watches: AtomicU64,
    /// Objects that could not be decoded.
    pub decode_failures: AtomicU64,
    /// Objects that are left out at this moment, because there are too many.
    pub left_out: AtomicU64,
    /// When the server last said anything, be it that there is nothing new.
    pub heard: Heard,
}

/// A moment that moves on.
#[derive(Debug)]
pub struct Heard {
    start: Instant,
    /// Since the start.
    milliseconds: AtomicU64,
}

impl Default for Heard {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            milliseconds: AtomicU64::new(0),
        }
    }
}

impl Heard {
    /// It is now.
    pub(super) fn now(&self) {
        let passed = u64::try_from(self.start.elapsed().as_millis());
        let passed = passed.expect("no process runs for millions of years");
        self.milliseconds.store(passed, Relaxed);
    }

    /// How long ago it was; since the start, if there was none.
    pub fn ago(&self) -> Duration {
        let then = Duration::from_millis(self.milliseconds.load(Relaxed));
        self.start.elapsed().saturating_sub(then)
    }
}

impl Counters {
    /// Those of one kind.
    pub fn kind(&self, kind: ObjectKind) -> &KindCounters {
        &self.kinds[kind as usize]
    }

    /// The errors of one sort.
    pub fn error(&self, reason: Reason) -> &AtomicU64 {
        &self.errors[reason as usize]
    }
}

/// Counts one more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_heard_was_heard_a_moment_ago() {
        let long = Duration::from_hours(2);
        let mut heard = Heard::default();
        heard.start -= long;
        assert!(heard.ago() >= long);
        heard.now();
        assert!(heard.ago() < long / 2);
    }

    #[test]
    fn kinds_and_reasons_are_counted_apart() {
        let counters = Counters::default();
        for (index, kind) in ObjectKind::ALL.into_iter().enumerate() {
            count(&counters.kind(kind).events);
            assert_eq!(counters.kinds[index].events.load(Relaxed), 1, "{kind}");
        }
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            count(counters.error(reason));
            assert_eq!(counters.errors[index].load(Relaxed), 1, "{reason:?}");
        }
    }
}
