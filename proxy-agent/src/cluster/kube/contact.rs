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
            MADE => tracing::warn!(%server, reason = %failure, "API server lost"),
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
                %kind, resource, %server, reason = %failure,
                hint = "bind the ClusterRole system:node-proxier, or another that lets list and \
                        watch this resource, to the user of this agent",
                "not allowed to read the cluster"
            ),
            Reason::Unauthorized => tracing::error!(
                %kind, %server, reason = %failure,
                hint = "check the token or the client certificate of this agent",
                "credentials not accepted"
            ),
            Reason::Expired => tracing::info!(%kind, reason = %failure, "listing again"),
            _ => tracing::warn!(%kind, %server, reason = %failure, "objects not followed"),
        }
    }

    /// It works.
    pub(super) fn good(&mut self) {
        if self.bad.take().is_some() {
            let kind = self.kind;
            tracing::info!(%kind, "objects followed again");
        }
    }
}
