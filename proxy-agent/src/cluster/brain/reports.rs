//! What the brain is told, beside what it tells: the newest report, in its own time.

use std::{sync::Arc, time::Duration};

use proxy_api::{Report, Token, client::Client};
use proxy_model::{Capability, ServiceFailure};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

/// How long the brain may take for a report.
const PATIENCE: Duration = Duration::from_secs(10);
/// When a report is tried again on a connection that stays.
const AGAIN: Duration = Duration::from_secs(5);

/// The newest report. Clones are one place.
#[derive(Debug, Clone)]
pub struct Reports(Arc<watch::Sender<Option<Report>>>);

impl Default for Reports {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl Reports {
    /// Makes this the newest one, of a backend that lacks `lacks`. What was in force before stands
    /// if `in_force` is `None`.
    pub fn replace(
        &self,
        lacks: &[Capability],
        in_force: Option<Token>,
        failures: Vec<ServiceFailure>,
        error: Option<String>,
    ) {
        self.0.send_if_modified(|newest| {
            let before = newest.as_ref().and_then(|report| report.applied);
            let report = Report {
                applied: in_force.or(before),
                failures,
                error,
                lacks: Some(lacks.to_vec()),
            };
            let changed = newest.as_ref() != Some(&report);
            *newest = Some(report);
            changed
        });
    }

    /// The newest one.
    #[cfg(test)]
    pub fn newest(&self) -> Option<Report> {
        self.0.borrow().clone()
    }

    /// Waits until `wanted` is the newest one.
    #[cfg(test)]
    pub async fn until(&self, wanted: &Report) {
        let mut reports = self.0.subscribe();
        let seen = reports.wait_for(|report| report.as_ref() == Some(wanted));
        assert!(seen.await.is_ok());
    }

    /// Delivers the newest report to whoever is connected, until nobody will be any more.
    pub async fn deliver(self, mut clients: watch::Receiver<Option<Client>>) {
        let mut reports = self.0.subscribe();
        let mut unheard = None;
        loop {
            let client = clients.borrow_and_update().clone();
            let report = reports.borrow_and_update().clone();
            let mut failed = false;
            if let (Some(client), Some(report)) = (client, report) {
                failed = !delivered(&client, &report, &mut unheard).await;
            }
            tokio::select! {
                changed = clients.changed() => if changed.is_err() { return },
                // Never an error: this holds the other end as well.
                _ = reports.changed() => {}
                () = sleep(AGAIN), if failed => {}
            }
        }
    }
}

/// Tells `report`. Of a brain that takes none, the reason is told once, and kept in `unheard`.
async fn delivered(client: &Client, report: &Report, unheard: &mut Option<String>) -> bool {
    match timeout(PATIENCE, client.report(report)).await {
        Ok(Ok(())) => {
            *unheard = None;
            return true;
        }
        Ok(Err(error)) if error.is_refusal() => {
            let reason = error.to_string();
            if unheard.as_ref() != Some(&reason) {
                tracing::warn!(
                    reason,
                    "the brain does not accept the reports of this agent"
                );
                *unheard = Some(reason);
            }
        }
        Ok(Err(error)) => tracing::debug!(%error, "report not delivered"),
        Err(_) => tracing::debug!("report not delivered in time"),
    }
    false
}
