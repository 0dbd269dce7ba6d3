//! After a failure: what to ask for instead, whom, and when.

use tokio::time::sleep;

use super::{Follower, Stop, UNFINISHED};
use crate::cluster::kube::{
    backoff::{self, random},
    counters::{Reason, count},
    failure::Failure,
    kind::Followed,
    servers::Failed,
};

impl<F: Followed> Follower<F> {
    /// Waits until it is time to try again, in the way that makes sense after `failed`.
    pub(super) async fn recover(&mut self, failed: Failed) -> Result<(), Stop> {
        let failure = &failed.failure;
        count(self.shared.counters.error(failure.reason()));
        if self.ask_for_less(failure) {
            return Ok(());
        }
        // A right that is taken away, or not there yet after an update, makes no object go away.
        let unseen = failure.code() == Some(403) && !self.listed;
        if F::OPTIONAL && (unseen || failure.code() == Some(404)) {
            return self.do_without(failure).await;
        }
        let moved = self.shared.servers.failed(&failed);
        let url = self.shared.servers.url(failed.server);
        if failure.is_connection() {
            self.shared.contact.lost(url, failure);
        } else {
            self.standing.bad(url, failure);
        }
        if failure.is_stale() || self.is_mute(failure) {
            self.version = None;
        }
        let wait = backoff::wait(&mut self.backoff, failure.retry_after(), random());
        let first = self.shared.timing.first_wait;
        let wait = if moved {
            wait.min(first.mul_f64(random()))
        } else {
            wait
        };
        tracing::debug!(kind = %F::KIND, reason = %failure, ?wait, "trying again");
        sleep(wait).await;
        Ok(())
    }

    /// Adapts to a server that cannot do what it was asked for, from now on. Returns whether
    /// there is something else to ask for.
    fn ask_for_less(&mut self, failure: &Failure) -> bool {
        if self.version.is_some() {
            return false;
        }
        let kind = F::KIND;
        match failure {
            Failure::Refused {
                code: 400, message, ..
            } if F::FIELDS.is_some()
                && self.requests.fields.is_some()
                && message.contains("field label") =>
            {
                tracing::info!(%kind, reason = %failure, "listing without a field selector");
                self.requests.fields = None;
                true
            }
            Failure::Refused {
                code: 400 | 422, ..
            } if self.streaming => {
                tracing::info!(%kind, reason = %failure, "listing without streams");
                self.streaming = false;
                true
            }
            // A server that does not know streaming lists takes one for a watch, and has nothing
            // but bookmarks to say after the objects, until it ends it. Or it is the network.
            Failure::Silent(_) => {
                self.not_now = true;
                false
            }
            Failure::BrokeOff(reason) if reason == UNFINISHED => {
                self.not_now = true;
                false
            }
            _ => false,
        }
    }

    /// Whether watches from the present version tell nothing, not even bookmarks. So does a server
    /// whose cluster was set back to an earlier state: it waits for that version to come.
    fn is_mute(&mut self, failure: &Failure) -> bool {
        if !matches!(failure, Failure::Silent(_)) || self.version.is_none() {
            return false;
        }
        let before = std::mem::replace(&mut self.silent_from, self.version.clone());
        before == self.version
    }

    /// The cluster has no such objects, or does not show them: then there are none.
    async fn do_without(&mut self, failure: &Failure) -> Result<(), Stop> {
        if failure.reason() == Reason::Forbidden {
            self.standing.bad(
                self.shared.servers.url(self.shared.servers.current()),
                failure,
            );
        }
        self.counters().heard.now();
        let mut updates = Vec::new();
        self.known.begin_list();
        self.known.end_list(&mut updates);
        self.send(updates).await?;
        self.version = None;
        self.told_all().await?;
        sleep(self.shared.timing.absent).await;
        Ok(())
    }
}
