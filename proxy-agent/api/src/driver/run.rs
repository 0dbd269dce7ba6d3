//! The loop of a driver: one thing at a time. While the sink is busy, nothing is read from the
//! brain; changes in that time come as one batch.

use std::time::Duration;

use proxy_model::{Attempts, Fatal, FatalCause, ServiceFailure, SyncError, SyncReport};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep_until, timeout},
};

use super::{BatchSink, DriverError};
use crate::{
    Batch, Report, Token,
    client::{self, Client, Event, Follower},
};

/// What [`run`] needs to know.
#[derive(Debug, Clone)]
pub struct DriverOptions {
    /// Which brain, and as whom.
    pub client: client::ClientOptions,
    /// The state that is in force already.
    pub resume: Option<Token>,
    /// Whether to end after one state.
    pub once: bool,
    /// How often to compare what is in force with the state.
    pub repair_every: Option<Duration>,
}

/// How a driver ended that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// The last state that is in force; `None` if none is.
    pub token: Option<Token>,
}

/// How long a report may take; a brain that is busy hears the next one.
const REPORT: Duration = Duration::from_secs(5);

/// Keeps `sink` up to date until `stop`, or until it fails for good. Needs a runtime with time and
/// I/O enabled.
pub async fn run<S: BatchSink>(
    sink: S,
    options: DriverOptions,
    stop: impl Future<Output = ()>,
) -> Result<Stopped, DriverError> {
    let mut driver = Driver {
        sink: Some(sink),
        report: Report::default(),
        told: None,
        attempts: Attempts::default(),
        unheard: None,
    };
    let result = if options.once {
        tokio::select! {
            () = stop => Ok(()),
            result = driver.once(&options) => result,
        }
    } else {
        let mut follower = driver.follower(&options);
        tokio::select! {
            () = stop => Ok(()),
            result = driver.follow(&mut follower, &options) => result,
        }
    };
    result.map(|()| Stopped {
        token: driver.report.applied,
    })
}

struct Driver<S> {
    /// Away while it is busy.
    sink: Option<S>,
    report: Report,
    /// The last state that the sink was told.
    told: Option<Token>,
    attempts: Attempts,
    /// Why the brain takes no reports, as far as it was told.
    unheard: Option<String>,
}

impl<S: BatchSink> Driver<S> {
    fn sink(&self) -> &S {
        self.sink.as_ref().expect("it comes back from each call")
    }

    /// Lets the sink do something that may take long.
    async fn busy<R: Send + 'static>(
        &mut self,
        act: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> R {
        let mut sink = self.sink.take().expect("it comes back from each call");
        let done = spawn_blocking(move || {
            let result = act(&mut sink);
            (sink, result)
        });
        match done.await {
            Ok((sink, result)) => {
                self.sink = Some(sink);
                result
            }
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    fn follower(&self, options: &DriverOptions) -> Follower {
        let resume = options.resume.filter(|_| self.sink().resumes());
        Follower::new(options.client.clone(), resume)
    }

    async fn once(&mut self, options: &DriverOptions) -> Result<(), DriverError> {
        let client = Client::connect(&options.client).await?;
        let batch = client.next(options.resume).await?;
        let token = batch.token;
        let result = self.busy(move |sink| sink.apply(batch)).await;
        let retry = self.synced(token, result);
        // The brain may have gone meanwhile: what counts is in force.
        if self.sink().reports() {
            drop(timeout(REPORT, client.report(&self.report)).await);
        }
        match (retry?, &self.report.error) {
            (Some(_), Some(reason)) => Err(DriverError::Fatal(Fatal {
                cause: FatalCause::Other,
                reason: reason.clone(),
            })),
            _ => Ok(()),
        }
    }

    async fn follow(
        &mut self,
        follower: &mut Follower,
        options: &DriverOptions,
    ) -> Result<(), DriverError> {
        if self.sink().resumes() {
            self.report.applied = options.resume;
        }
        let mut already = options.resume.filter(|_| !self.sink().resumes());
        let never = || Instant::now() + Duration::from_hours(24);
        let mut retry: Option<Instant> = None;
        let mut repair = options.repair_every.map(|every| Instant::now() + every);
        loop {
            let wait = tokio::select! {
                event = follower.next() => match event {
                    Event::Connected => {
                        tracing::info!(target_address = %options.client.target, "connected");
                        if self.report != Report::default() {
                            self.tell(follower).await;
                        }
                        continue;
                    }
                    Event::Lost(error) => {
                        tracing::warn!(
                            %error,
                            "the brain is not reachable: the last state stays in force"
                        );
                        continue;
                    }
                    Event::Batch(batch) if already.take() == Some(batch.token) => {
                        self.report.applied = Some(batch.token);
                        self.busy(move |sink| sink.already_in_force(batch)).await;
                        self.tell(follower).await;
                        continue;
                    }
                    // What failed may succeed with what has changed since.
                    Event::Batch(batch) => self.apply(batch, follower).await?,
                },
                () = sleep_until(retry.unwrap_or_else(never)), if retry.is_some() => {
                    self.again(follower).await?
                }
                () = sleep_until(repair.unwrap_or_else(never)), if repair.is_some() => {
                    repair = options.repair_every.map(|every| Instant::now() + every);
                    if retry.is_some() {
                        continue;
                    }
                    self.repair(follower).await?
                }
            };
            retry = wait.map(|wait| Instant::now() + wait);
        }
    }

    /// Brings a batch into force. Returns when to try again, if it failed.
    async fn apply(
        &mut self,
        batch: Batch,
        follower: &Follower,
    ) -> Result<Option<Duration>, DriverError> {
        let token = batch.token;
        self.told = Some(token);
        let result = self.busy(move |sink| sink.apply(batch)).await;
        self.settle(token, result, follower).await
    }

    /// Tries again what failed.
    async fn again(&mut self, follower: &mut Follower) -> Result<Option<Duration>, DriverError> {
        let again = self.busy(BatchSink::again).await;
        let (Some(result), Some(token)) = (again, self.told) else {
            follower.restart();
            return Ok(None);
        };
        self.settle(token, result, follower).await
    }

    async fn settle(
        &mut self,
        token: Token,
        result: Result<SyncReport, SyncError>,
        follower: &Follower,
    ) -> Result<Option<Duration>, DriverError> {
        let retry = self.synced(token, result);
        self.tell(follower).await;
        retry
    }

    async fn repair(&mut self, follower: &Follower) -> Result<Option<Duration>, DriverError> {
        let Some(token) = self.report.applied else {
            return Ok(None);
        };
        let result = match self.busy(BatchSink::repair).await {
            None => return Ok(None),
            Some(Ok(repaired)) => {
                for one in &repaired.repaired {
                    tracing::warn!(difference = %one, "repaired");
                }
                for problem in &repaired.problems {
                    tracing::error!(reason = problem.reason, "not repaired");
                }
                Ok(SyncReport {
                    writes: repaired.writes,
                    failures: repaired.failures,
                })
            }
            Some(Err(error)) => Err(error),
        };
        self.settle(token, result, follower).await
    }

    /// Takes note of what came of a sync. Returns how long to wait before the next attempt, if it
    /// needs one.
    fn synced(
        &mut self,
        token: Token,
        result: Result<SyncReport, SyncError>,
    ) -> Result<Option<Duration>, DriverError> {
        let took = self.attempts.took(result);
        self.report.error = self.attempts.failure().map(str::to_owned);
        match took? {
            Ok(SyncReport { failures, .. }) => {
                self.note(&failures);
                self.report = Report {
                    applied: Some(token),
                    failures,
                    error: None,
                    lacks: None,
                };
                Ok(None)
            }
            Err(wait) => {
                let reason = self.attempts.failure();
                tracing::error!(reason, retry_in = ?wait, "sync failed");
                Ok(Some(wait))
            }
        }
    }

    fn note(&self, failures: &[ServiceFailure]) {
        for new in failures
            .iter()
            .filter(|one| !self.report.failures.contains(one))
        {
            tracing::error!(service = %new.key, reason = new.reason, "service not programmed");
        }
    }

    async fn tell(&mut self, follower: &Follower) {
        if !self.sink().reports() {
            return;
        }
        match timeout(REPORT, follower.report(&self.report)).await {
            Ok(Ok(())) => self.unheard = None,
            Ok(Err(error)) => {
                let reason = error.to_string();
                // It is told again once there is a connection.
                if !error.is_refusal() || self.unheard.as_ref() == Some(&reason) {
                    tracing::debug!(reason, "report not delivered");
                    return;
                }
                tracing::warn!(
                    reason,
                    "the brain does not accept the reports of this backend"
                );
                self.unheard = Some(reason);
            }
            Err(_) => tracing::debug!("report not delivered in time"),
        }
    }
}
