//! What the log says about the API server: each change once, not each attempt.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use http::Uri;

use super::{
    counters::{Kind, Reason},
    failure::Failure,
};

const UNKNOWN: u8 = 0;
const MADE: u8 = 1;
const LOST: u8 = 2;

/// Whether there is a connection, as last told.
#[derive(Debug, Default)]
pub(super) struct Contact(AtomicU8);

impl Contact {
    /// The server answered.
    pub(super) fn made(&self, server: &Uri) {
        if self.0.swap(MADE, Relaxed) != MADE {
            tracing::info!(%server, "API server connected");
        }
    }

    /// The connection failed.
    pub(super) fn lost(&self, server: &Uri, failure: &Failure) {
        match self.0.swap(LOST, Relaxed) {
            UNKNOWN => tracing::warn!(%server, reason = %failure, "API server not reached"),
            MADE => tracing::warn!(
                %server, reason = %failure,
                "API server lost; what is known stays in force"
            ),
            _ => {}
        }
    }
}

/// How one kind of objects fares, as last told.
#[derive(Debug)]
pub(super) struct Standing {
    kind: Kind,
    resource: String,
    bad: Option<Reason>,
}

impl Standing {
    pub(super) fn new(kind: Kind, resource: String) -> Self {
        Self {
            kind,
            resource,
            bad: None,
        }
    }

    /// The server says no, or makes no sense.
    pub(super) fn bad(&mut self, server: &Uri, failure: &Failure) {
        let Self {
            kind,
            resource,
            bad,
        } = self;
        let reason = failure.reason();
        if bad.replace(reason) == Some(reason) {
            return;
        }
        match reason {
            Reason::Forbidden => tracing::error!(
                %kind, %server, reason = %failure,
                "not allowed to list and watch {resource}: bind the ClusterRole \
                 system:node-proxier, or one with these rights, to the user of this proxy"
            ),
            Reason::Unauthorized => tracing::error!(
                %kind, %server, reason = %failure,
                "credentials not accepted: check the token or client certificate of this proxy"
            ),
            Reason::Expired => tracing::info!(%kind, reason = %failure, "listing again"),
            _ => tracing::warn!(%kind, %server, reason = %failure, "cannot be followed for now"),
        }
    }

    /// It works.
    pub(super) fn good(&mut self) {
        if self.bad.take().is_some() {
            let kind = self.kind;
            tracing::info!(%kind, "followed again");
        }
    }
}
