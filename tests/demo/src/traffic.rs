//! The traffic of the demo: what was sent to each frontend so far and which endpoints answered.
//!
//! Must not know what the counts are to prove.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::cluster::{self, EMPTY, STREAMS};
use proxy_harness::{
    pod::{Load, LoadReport, Prober},
    world::Host,
};

/// Between two requests of one stream: a steady flow that leaves the machine idle most of the
/// time.
const PAUSE: Duration = Duration::from_millis(1);
/// Rates are taken over this time.
const WINDOW: Duration = Duration::from_secs(1);

/// Requests by stream and endpoint; `None`: refused.
type Counts = BTreeMap<(usize, Option<SocketAddr>), u64>;

/// Streams of requests, one to each of [`STREAMS`], that go on until it is dropped.
#[derive(Debug)]
pub(super) struct Traffic {
    prober: Prober,
    reports: Vec<LoadReport>,
    /// Counts of the last [`WINDOW`], oldest first.
    recent: VecDeque<(Instant, Counts)>,
    /// What a refusal looks like in a report.
    refusal: String,
}

/// What is shown of one endpoint of one stream.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) stream: usize,
    /// `None`: refused without an endpoint.
    pub(super) endpoint: Option<SocketAddr>,
    pub(super) requests: u64,
    pub(super) per_second: f64,
}

impl Traffic {
    /// Starts every stream from `client`. `errno` is what a refused `connect` gives.
    pub(super) fn start(client: &Host, errno: &str) -> Result<Self> {
        let mut prober = Prober::start(client)?;
        for (index, stream) in STREAMS.iter().enumerate() {
            prober
                .load_start(Load {
                    name: name(index),
                    transport: stream.transport,
                    to: stream.to(),
                    // With one at a time, the next one to finish is the one that is under way:
                    // waiting for one is enough to know that what was under way has ended.
                    threads: 1,
                    pause: if index == EMPTY { 20 * PAUSE } else { PAUSE },
                    keep: false,
                })
                .with_context(|| format!("cannot send to {}", stream.service))?;
        }
        let mut traffic = Self {
            prober,
            reports: Vec::new(),
            recent: VecDeque::new(),
            refusal: format!("connect {errno}"),
        };
        traffic.poll()?;
        Ok(traffic)
    }

    /// A process in the client pod.
    pub(super) fn pid(&self) -> i32 {
        self.prober.process().pid().as_raw()
    }

    /// Takes the counts of this moment.
    pub(super) fn poll(&mut self) -> Result<()> {
        self.reports = (0..STREAMS.len())
            .map(|index| self.prober.load_report(&name(index)))
            .collect::<Result<_>>()?;
        let now = Instant::now();
        // One older than the window stays, to compare with.
        while self.recent.get(1).is_some_and(|(at, _)| now - *at > WINDOW) {
            self.recent.pop_front();
        }
        self.recent.push_back((now, self.counts()));
        Ok(())
    }

    /// Waits until `requests` more of one stream have finished.
    pub(super) fn wait(&mut self, stream: usize, requests: u64) -> Result<&LoadReport> {
        self.reports[stream] = self.prober.load_wait(&name(stream), requests)?;
        Ok(&self.reports[stream])
    }

    /// The latest counts of one stream.
    pub(super) fn report(&self, stream: usize) -> &LoadReport {
        &self.reports[stream]
    }

    /// Refused requests of one stream.
    pub(super) fn refused(&self, stream: usize) -> u64 {
        let failures = &self.reports[stream].failures;
        failures.get(&self.refusal).copied().unwrap_or_default()
    }

    /// Requests that must not have failed and did, by what happened. Refusals by the Service
    /// without endpoints are none.
    pub(super) fn failures(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for (index, report) in self.reports.iter().enumerate() {
            for (failure, count) in &report.failures {
                if index == EMPTY && *failure == self.refusal {
                    continue;
                }
                let stream = &STREAMS[index];
                let what = format!("{} at {}: {failure}", stream.service, stream.to());
                *all.entry(what).or_default() += count;
            }
        }
        all
    }

    /// Requests of one stream that failed and must not have.
    pub(super) fn failed(&self, stream: usize) -> u64 {
        let all: u64 = self.reports[stream].failures.values().sum();
        all - if stream == EMPTY {
            self.refused(stream)
        } else {
            0
        }
    }

    /// Requests of all streams that were answered.
    pub(super) fn answered(&self) -> u64 {
        self.reports.iter().map(|report| report.answered).sum()
    }

    /// Every endpoint that answers or should, by stream.
    pub(super) fn lines(&self) -> Vec<Line> {
        let mut counts = self.counts();
        for (index, stream) in STREAMS.iter().enumerate() {
            for endpoint in stream.endpoints() {
                counts.entry((index, Some(endpoint))).or_default();
            }
        }
        let since = self.recent.front().zip(self.recent.back());
        let line = |((stream, endpoint), requests)| {
            let per_second = since.map_or(0.0, |((from, before), (to, _))| {
                let before = before.get(&(stream, endpoint)).copied().unwrap_or_default();
                let seconds = (*to - *from).as_secs_f64();
                if seconds > 0.0 {
                    as_float(requests - before) / seconds
                } else {
                    0.0
                }
            });
            Line {
                stream,
                endpoint,
                requests,
                per_second,
            }
        };
        counts.into_iter().map(line).collect()
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        for (index, report) in self.reports.iter().enumerate() {
            for (endpoint, count) in &report.answers {
                counts.insert((index, Some(*endpoint)), *count);
            }
        }
        counts.insert((EMPTY, None), self.refused(EMPTY));
        counts
    }
}

/// What the prober calls a stream.
fn name(stream: usize) -> String {
    format!(
        "{} {}",
        cluster::STREAMS[stream].service,
        cluster::STREAMS[stream].to()
    )
}

/// A count as a number to calculate with; a demo never counts to 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub(super) fn as_float(count: u64) -> f64 {
    count as f64
}
