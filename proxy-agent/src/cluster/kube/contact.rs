//! What the log says about the API server: each change once, not each attempt.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use http::Uri;

use super::{
    counters::{ObjectKind, Reason},
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
    kind: ObjectKind,
    resource: String,
    bad: Option<Reason>,
}

impl Standing {
    pub(super) fn new(kind: ObjectKind, resource: String) -> Self {
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
                hint = "bind the ClusterRole system:node-proxier, or another that allows listing \
                        and watching this resource, to the user of this agent",
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

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use tracing_subscriber::fmt;

    use super::*;

    thread_local! {
        static SAID: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
    }

    struct Log;

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            SAID.with_borrow_mut(|said| said.push_str(&String::from_utf8_lossy(bytes)));
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What `work` logs: the level and the message of each line.
    fn said(work: impl FnOnce()) -> Vec<String> {
        SAID.with_borrow_mut(String::clear);
        let log = fmt().json().with_writer(|| Log).finish();
        tracing::subscriber::with_default(log, work);
        let line = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            format!(
                "{} {}",
                line["level"].as_str().unwrap(),
                line["fields"]["message"].as_str().unwrap()
            )
        };
        SAID.with_borrow(|said| said.lines().map(line).collect())
    }

    #[test]
    fn a_lost_connection_is_told_once_and_not_at_each_attempt() {
        let server = Uri::from_static("https://192.0.2.1:6443");
        let failure = Failure::Silent(Duration::ZERO);
        let contact = Contact::default();
        let lines = said(|| {
            contact.lost(&server, &failure);
            contact.lost(&server, &failure);
            contact.made(&server);
            contact.made(&server);
            contact.lost(&server, &failure);
            contact.lost(&server, &failure);
            contact.made(&server);
        });
        assert_eq!(
            lines,
            [
                "WARN API server not reached",
                "INFO API server connected",
                "WARN API server lost",
                "INFO API server connected",
            ]
        );
    }

    #[test]
    fn a_refusal_is_told_once_until_the_reason_is_another_or_it_is_over() {
        let server = Uri::from_static("https://192.0.2.1:6443");
        let refused = |code| Failure::from_answer(code, b"{}", None);
        let mut standing = Standing::new(ObjectKind::Service, "services".to_owned());
        let lines = said(|| {
            standing.good();
            standing.bad(&server, &refused(403));
            standing.bad(&server, &refused(403));
            standing.bad(&server, &refused(401));
            standing.bad(&server, &refused(503));
            standing.bad(&server, &refused(500));
            standing.good();
            standing.good();
            standing.bad(&server, &refused(403));
        });
        assert_eq!(
            lines,
            [
                "ERROR not allowed to read the cluster",
                "ERROR credentials not accepted",
                "WARN objects not followed",
                "INFO objects followed again",
                "ERROR not allowed to read the cluster",
            ]
        );
    }
}
