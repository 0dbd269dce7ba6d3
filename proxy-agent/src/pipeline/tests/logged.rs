//! What the log is told of a layer and of the state, and how often.

use std::{cell::RefCell, io, sync::Once};

use super::*;

thread_local! {
    /// What this thread logged, as JSON lines.
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Writes to [`LOG`].
struct OwnLog;

impl io::Write for OwnLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts logging, before anything here can log: whether a line is wanted is asked once for the
/// whole process, by the thread that comes to it first.
pub(super) fn start_log() {
    static START: Once = Once::new();
    START.call_once(|| {
        let subscriber = tracing_subscriber::fmt()
            .json()
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(|| OwnLog)
            .finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
        tracing::callsite::rebuild_interest_cache();
    });
}

/// What `does` logs: level, message and the other fields that are text.
pub(super) fn logged(does: impl FnOnce()) -> Vec<String> {
    LOG.take();
    does();
    let text = String::from_utf8(LOG.take()).unwrap();
    let line = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let mut said = vec![&line["level"], &line["fields"]["message"]];
        for field in ["service", "capability", "reason", "object", "field", "text"] {
            said.extend(line["fields"].get(field));
        }
        let said = said.into_iter().map(|one| one.as_str().unwrap().to_owned());
        said.collect::<Vec<_>>().join("|")
    };
    text.lines().map(line).collect()
}

#[test]
fn a_service_that_fails_is_logged_once_and_once_more_when_it_works() {
    let fake = Fake::default();
    let mut pipeline = pipeline(&fake);
    let mut advance = |events: Vec<ClusterEvent>, failing: bool| {
        let key = proxy_model::ServicePortKey {
            service: name("a"),
            port: "".into(),
            protocol: proxy_model::Protocol::Tcp,
            family: proxy_model::IpFamily::V4,
        };
        let reason = "SLOTS is full".to_owned();
        let failures = vec![ServiceFailure { key, reason }];
        fake.answer(Ok(SyncReport {
            writes: 0,
            failures: if failing { failures } else { vec![] },
        }));
        logged(|| assert_eq!(pipeline.take(events).unwrap(), None))
    };
    let fails = "ERROR|service not programmed|shop/a/TCP/IPv4|SLOTS is full";
    let synced = "DEBUG|synced";
    assert_eq!(advance(vec![upsert("a", 1)], true), [fails]);
    assert_eq!(advance(vec![upsert("b", 2)], true), [synced]);
    let works = "INFO|service programmed|shop/a/TCP/IPv4";
    assert_eq!(advance(vec![delete("b")], false), [works, synced]);
    assert_eq!(advance(vec![upsert("b", 2)], true), [fails, synced]);
    // It is gone, so it is not programmed either.
    assert_eq!(advance(vec![delete("a")], false), [synced]);
}

#[test]
fn diagnostics_are_logged_when_they_come_and_go_even_if_nothing_is_synced() {
    let fake = Fake::default();
    let mut pipeline = pipeline(&fake);
    let mut advance = |events| logged(|| assert_eq!(pipeline.take(events).unwrap(), None));
    let diagnosed = |messages: &[&str]| {
        let object: Arc<str> = "Service shop/a".into();
        let diagnostic = |message: &&str| Diagnostic {
            object: Arc::clone(&object),
            field: "spec.type".to_owned(),
            message: (*message).to_owned(),
        };
        vec![ClusterEvent::Diagnosed {
            diagnostics: messages.iter().map(diagnostic).collect(),
            object: Arc::clone(&object),
        }]
    };
    let odd = "WARN|diagnostic|Service shop/a|spec.type|odd";
    assert_eq!(advance(diagnosed(&["odd"])), [odd]);
    fake.calls();
    assert_eq!(advance(diagnosed(&["odd"])), [""; 0]);
    assert_eq!(advance(vec![upsert("b", 2)]), ["DEBUG|synced"]);
    let strange = "WARN|diagnostic|Service shop/a|spec.type|strange";
    assert_eq!(advance(diagnosed(&["odd", "strange"])), [strange]);
    let resolved = "INFO|diagnostic resolved|Service shop/a|spec.type|odd";
    assert_eq!(advance(diagnosed(&["strange"])), [resolved]);
    assert_eq!(fake.calls(), [call(false, &["+b"])]);
}

#[test]
fn a_failed_sync_is_logged_with_its_reason() {
    let fake = Fake::default();
    let mut pipeline = pipeline(&fake);
    fake.answer(retry(Duration::from_secs(1)));
    let lines = logged(|| assert!(pipeline.take(vec![]).unwrap().is_some()));
    assert_eq!(lines, ["ERROR|sync failed|writing FRONTENDS: interrupted"]);
}
