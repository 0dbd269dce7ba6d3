//! Writes events (`events.k8s.io/v1`) where news come in: few, each once, and again as a series. Never
//! in the way of reading: a failure says nothing about a server, and is told to the log once.
//!
//! `kube`'s own recorder is not used: it comes with its runtime, which doubles what this crate takes
//! of `kube` to compile, and it knows no limit.

mod limits;

use std::{
    sync::{Arc, atomic::AtomicU64, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use http::{Method, Uri};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{
    sync::{Mutex, mpsc},
    time::sleep,
};

use self::limits::{Limits, Verdict};
use super::{counters::Reason, failure::Failure, follow::Shared};
use crate::{
    events::{News, Regarding},
    kept::keep,
};

/// Who reports, as a program.
const CONTROLLER: &str = "culvert";
/// Events on objects without a namespace are written here, by all of Kubernetes.
const OF_NODES: &str = "default";
/// Bytes of a note: what the API takes.
const LONGEST_NOTE: usize = 1024;
/// Attempts to write one, while no server answers.
const ATTEMPTS: u32 = 5;
/// Between two of them.
const PAUSE: Duration = Duration::from_secs(10);

/// Writes what comes in, until the process ends.
pub(super) fn start(shared: Arc<Shared>, node: Arc<str>, news: mpsc::Receiver<News>) {
    let news = Arc::new(Mutex::new(news));
    keep("events", move || {
        let mut writer = Writer {
            shared: Arc::clone(&shared),
            node: Arc::clone(&node),
            limits: Limits::default(),
            obstacle: None,
        };
        let news = Arc::clone(&news);
        async move {
            // Of the lock only this task knows, and the one before it if that panicked.
            while let Some(one) = { news.lock().await.recv().await } {
                writer.write(&one).await;
            }
        }
    });
}

struct Writer {
    shared: Arc<Shared>,
    node: Arc<str>,
    limits: Limits,
    /// Why the last one was not written, as far as the log was told.
    obstacle: Option<Reason>,
}

impl Writer {
    async fn write(&mut self, news: &News) {
        let now = Instant::now();
        let written = match self.limits.judge(news, now) {
            Verdict::Leave => {
                tracing::debug!(reason = news.reason, note = news.note, "event left out");
                return;
            }
            Verdict::First => self.create(news, now).await,
            Verdict::Again { name, count } => {
                let series =
                    json!({ "series": { "count": count, "lastObservedTime": micro_time() } });
                let path = format!("{}/{name}", Self::path(news));
                match self.send(&Method::PATCH, &path, &series).await {
                    // Servers keep events for an hour.
                    Err(failure) if failure.code() == Some(404) => self.create(news, now).await,
                    written => written,
                }
            }
        };
        self.tell(written);
    }

    async fn create(&mut self, news: &News, now: Instant) -> Result<(), Failure> {
        let event = event(news, &self.node, &unique());
        let path = Self::path(news);
        self.send(&Method::POST, &path, &event).await?;
        let name = event["metadata"]["name"].as_str().unwrap_or_default();
        self.limits.written(news, name, now);
        Ok(())
    }

    fn path(news: &News) -> String {
        format!(
            "/apis/events.k8s.io/v1/namespaces/{}/events",
            namespace(news)
        )
    }

    /// Waits for a server that answers, but not for ever.
    async fn send(&self, method: &Method, path: &str, body: &Value) -> Result<(), Failure> {
        let path: Uri = path
            .parse()
            .map_err(|error| Failure::Garbled(format!("{path} is no path: {error}")))?;
        let mut attempt = 1;
        loop {
            let sent = self.shared.servers.write(method, &path, body).await;
            match sent {
                Err(failure) if failure.is_connection() && attempt < ATTEMPTS => {
                    attempt += 1;
                    sleep(PAUSE).await;
                }
                sent => return sent,
            }
        }
    }

    /// Each obstacle once: who lacks the right to write events has no use for a line for each.
    fn tell(&mut self, written: Result<(), Failure>) {
        match written {
            Ok(()) => {
                if self.obstacle.take().is_some() {
                    tracing::info!("events written again");
                }
            }
            Err(failure) => {
                let reason = failure.reason();
                if self.obstacle.replace(reason) != Some(reason) {
                    tracing::warn!(
                        reason = %failure,
                        text = "what this log says is not seen on the Node and on Services; the right \
                                to create and patch events of events.k8s.io, which system:node-proxier \
                                has, is what it takes",
                        "events not written"
                    );
                }
            }
        }
    }
}

fn namespace(news: &News) -> &str {
    match &news.regarding {
        Regarding::Node => OF_NODES,
        Regarding::Service(service) => &service.namespace,
    }
}

fn event(news: &News, node: &str, unique: &str) -> Value {
    let (regarding, name) = match &news.regarding {
        // `kubectl describe node` looks for the name here: that is what kubelet writes.
        Regarding::Node => (
            json!({ "apiVersion": "v1", "kind": "Node", "name": node, "uid": node }),
            node,
        ),
        Regarding::Service(service) => (
            json!({
                "apiVersion": "v1",
                "kind": "Service",
                "namespace": &*service.namespace,
                "name": &*service.name,
            }),
            &*service.name,
        ),
    };
    // Of a Service, every node reports.
    let told = match news.regarding {
        Regarding::Node => news.note.clone(),
        Regarding::Service(_) => format!("node {node} {}", news.note),
    };
    let text = &told[..told.floor_char_boundary(LONGEST_NOTE)];
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": { "name": format!("{name}.{unique}"), "namespace": namespace(news) },
        "eventTime": micro_time(),
        "reportingController": CONTROLLER,
        "reportingInstance": format!("{CONTROLLER}-{node}"),
        "type": if news.warning { "Warning" } else { "Normal" },
        "reason": news.reason,
        "action": news.action,
        "regarding": regarding,
        "note": text,
    })
}

/// As every client of the API names its events: by the time.
fn unique() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = u64::try_from(Timestamp::now().as_nanosecond()).unwrap_or_default();
    let last = LAST.fetch_max(now, Relaxed).max(now);
    // Two within one reading of the clock are two all the same.
    let next = if last == now {
        now
    } else {
        LAST.fetch_add(1, Relaxed) + 1
    };
    format!("{next:x}")
}

/// `MicroTime` of the API has six digits, always.
fn micro_time() -> String {
    Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_about_its_object_and_names_who_reports() {
        let news = News {
            regarding: Regarding::Node,
            warning: true,
            reason: "ServiceProxyDegraded",
            action: "Sync",
            note: "x".repeat(2_000),
        };
        let of_node = event(&news, "node-a", "17");
        assert_eq!(
            of_node["metadata"],
            json!({ "name": "node-a.17", "namespace": "default" })
        );
        assert_eq!(of_node["regarding"]["uid"], "node-a");
        assert_eq!(
            (&of_node["type"], &of_node["reportingInstance"]),
            (&json!("Warning"), &json!("culvert-node-a"))
        );
        assert_eq!(of_node["note"].as_str().map(str::len), Some(LONGEST_NOTE));
        let time = of_node["eventTime"].as_str().unwrap();
        assert_eq!(
            (time.len(), time.parse::<Timestamp>().is_ok()),
            (27, true),
            "{time}"
        );

        let regarding = Regarding::Service(proxy_model::ServiceName::new("shop", "web"));
        let of_service = event(&News { regarding, ..news }, "node-a", "17");
        assert_eq!(
            of_service["metadata"],
            json!({ "name": "web.17", "namespace": "shop" })
        );
        assert_eq!(of_service["regarding"]["kind"], "Service");
    }

    #[test]
    fn no_two_have_one_name() {
        let mut all: Vec<_> = (0..1_000).map(|_| unique()).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 1_000);
    }
}
