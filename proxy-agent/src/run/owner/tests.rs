//! The loop with a backend that does what a test says.

mod following;
mod own_node_missing;
mod two_layers;

use std::{net::IpAddr, time::SystemTime};

use proxy_model::{
    ClusterEvent, Conditions, Diagnostic, Difference, DifferenceKind, EndpointSlice, IpFamily,
    NodeState, Protocol, Service, ServiceName, ServicePort, SliceEndpoint, SliceName, SlicePort,
    SyncError, TrafficPolicy,
};
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};

use super::*;
use crate::{
    backend::choice,
    cluster::Update,
    heart::LONGEST,
    pipeline::fake::{self, Fake},
    serving::{self, Moment, Probe, Serving},
    sinks::Sink,
};

/// How long anything may take; far above what it needs.
const LIMIT: Duration = Duration::from_secs(30);
/// Longer than any test.
const NEVER: Duration = Duration::from_hours(1);

/// States that were published: the names of their Services, and how many triggers came with them.
struct Published(mpsc::UnboundedSender<(Vec<String>, usize)>);

impl Sink for Published {
    fn publish(&mut self, state: &NodeState, triggers: &[(IpFamily, SystemTime)]) {
        let names = state
            .services
            .keys()
            .map(|key| key.service.name.to_string());
        // A test that is over wants no more.
        drop(self.0.send((names.collect(), triggers.len())));
    }
}

struct Running {
    fake: Fake,
    published: mpsc::UnboundedReceiver<(Vec<String>, usize)>,
    serving: Arc<Serving>,
    messages: mpsc::Sender<Message>,
    queries: mpsc::Sender<Query>,
    orders: mpsc::Sender<Order>,
    task: JoinHandle<Result<Order, RunError>>,
}

impl Running {
    async fn start(sync_period: Duration) -> Self {
        Self::start_with(Some(sync_period)).await
    }

    async fn start_with(sync_period: Option<Duration>) -> Self {
        let fake = Fake::default();
        let origin = Origin {
            name: "a test".to_owned(),
            link: None,
            nodes: own_node::Nodes::Told,
            reports: false,
        };
        Self::start_from(fake.pipeline(), fake, origin, sync_period).await
    }

    async fn start_from(
        pipeline: Pipeline,
        fake: Fake,
        origin: Origin,
        sync_period: Option<Duration>,
    ) -> Self {
        let options = serving::ServingOptions {
            healthz: None,
            metrics: None,
            hard_fail: false,
            configuration: serde_json::Value::Null,
            flags: std::collections::BTreeMap::new(),
            profiling: false,
            backends: Vec::new(),
        };
        let chosen = choice::fixtures::lacking(&[]);
        let (serving, figures) = Serving::start(
            &options,
            sync_period.unwrap_or(NEVER),
            &chosen,
            &serving::Conntrack::new(),
            serving::Cluster {
                name: "a test".to_owned(),
                figures: vec![],
                events: crate::events::Recorder::default(),
            },
            None,
            Arc::default(),
        )
        .await
        .unwrap();
        let (sink, published) = mpsc::unbounded_channel();
        let sinks = Sinks::new(vec![Box::new(Published(sink))]);
        let observer = Observer::new(
            Arc::clone(&serving),
            None,
            crate::events::Recorder::default(),
            sync_period.unwrap_or(NEVER),
        );
        let owner = Owner::new(pipeline, sinks, observer, chosen, origin);
        let (messages, messages_) = mpsc::channel(8);
        let (queries, queries_) = mpsc::channel(8);
        let (orders, orders_) = mpsc::channel(1);
        let inbox = Inbox {
            messages: messages_,
            queries: queries_,
            figures,
            orders: orders_,
        };
        let task = tokio::spawn(owner.run(inbox, sync_period, |_| {}));
        Self {
            fake,
            published,
            serving,
            messages,
            queries,
            orders,
            task,
        }
    }

    async fn tell(&self, services: &[u8]) {
        let update = |number: &u8| Update {
            event: service(*number),
            trigger: None,
        };
        let updates = services.iter().map(update).collect();
        self.messages.send(Message::Updates(updates)).await.unwrap();
    }

    async fn snapshot(&self) -> Snapshot {
        let (answer, answered) = oneshot::channel();
        self.queries.send(Query::State(answer)).await.unwrap();
        timeout(LIMIT, answered).await.unwrap().unwrap()
    }

    /// The state's facts, once `wanted` holds for them.
    async fn until(&self, wanted: impl Fn(&AgentFacts) -> bool) -> AgentFacts {
        let look = async {
            loop {
                let facts = self.snapshot().await.agent;
                if wanted(&facts) {
                    return facts;
                }
            }
        };
        timeout(LIMIT, look).await.expect("it did not come to that")
    }

    /// The next state that is published.
    async fn published(&mut self) -> (Vec<String>, usize) {
        let next = timeout(LIMIT, self.published.recv()).await;
        next.expect("a state should be published").unwrap()
    }

    async fn stop(self) -> Fake {
        self.orders.send(Order::Stop("SIGTERM")).await.unwrap();
        let ended = timeout(LIMIT, self.task).await.unwrap().unwrap();
        assert_eq!(ended.unwrap(), Order::Stop("SIGTERM"));
        self.fake
    }
}

fn service(number: u8) -> ClusterEvent {
    ClusterEvent::ServiceUpserted(Service {
        name: ServiceName::new("shop", format!("s{number}")),
        cluster_ips: vec![IpAddr::from([10, 96, 0, number])],
        ports: vec![ServicePort {
            name: "".into(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: None,
        }],
        internal_policy: TrafficPolicy::Cluster,
        ..Service::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_programmed_before_the_cluster_is_known() {
    let running = Running::start(NEVER).await;
    running.tell(&[1]).await;
    running.tell(&[2]).await;
    let snapshot = running.snapshot().await;
    assert!(!snapshot.agent.synced);
    assert_eq!(running.fake.calls(), []);
    running.messages.send(Message::Synced).await.unwrap();
    let facts = running.until(|facts| facts.revision == 1).await;
    assert!(
        facts.synced && facts.in_force && facts.events == 2,
        "{facts:?}"
    );
    let calls = running.stop().await.calls();
    assert_eq!(calls, [(true, vec!["+s1".to_owned(), "+s2".to_owned()])]);
}

fn differs() -> Difference {
    Difference {
        object: "SETS 3".to_owned(),
        kind: DifferenceKind::Missing,
        service: None,
        wanted: None,
        found: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kernel_is_compared_every_period_and_when_told() {
    let running = Running::start(Duration::from_millis(5)).await;
    running.fake.repair(Ok(vec![differs(), differs()]));
    running.messages.send(Message::Synced).await.unwrap();
    running.until(|facts| facts.repaired == 2).await;
    let text = running.serving.metrics.text().unwrap();
    assert!(
        text.contains("repairs_total{difference=\"missing\"} 2"),
        "{text}"
    );
    running.stop().await;

    let running = Running::start(NEVER).await;
    running.messages.send(Message::Synced).await.unwrap();
    running.until(|facts| facts.revision == 1).await;
    running.fake.repair(Ok(vec![differs()]));
    running.orders.send(Order::Repair).await.unwrap();
    running.until(|facts| facts.repaired == 1).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_period_counts_from_now_on() {
    let running = Running::start(NEVER).await;
    running.messages.send(Message::Synced).await.unwrap();
    running.until(|facts| facts.revision == 1).await;
    running.fake.repair(Ok(vec![differs()]));
    let period = Order::SyncPeriod(Duration::from_millis(1));
    running.orders.send(period).await.unwrap();
    running.until(|facts| facts.repaired == 1).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_backend_owes_needs_no_change_to_be_done() {
    let running = Running::start(NEVER).await;
    running.tell(&[1, 2]).await;
    running.messages.send(Message::Synced).await.unwrap();
    running.until(|facts| facts.revision == 1).await;
    // With every question that is answered, time has gone by.
    let fake = running.fake.clone();
    running.until(|_| fake.tended() == [2]).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_is_programmed_nothing_is_compared() {
    let running = Running::start_with(None).await;
    running.messages.send(Message::Synced).await.unwrap();
    running.until(|facts| facts.revision == 1).await;
    running
        .fake
        .repair(Err(fake::retry("this should not be asked")));
    running.orders.send(Order::Repair).await.unwrap();
    // There is room for the next order once this one was taken.
    drop(running.orders.reserve().await.unwrap());
    assert!(running.snapshot().await.agent.in_force);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_failed_is_left_alone_for_a_while_then_gets_everything() {
    let running = Running::start(NEVER).await;
    let error = |after| {
        Err(SyncError::Retry {
            reason: "writing SETS: busy".to_owned(),
            after,
        })
    };
    running.fake.answer(error(Duration::from_millis(50)));
    running.tell(&[1]).await;
    running.messages.send(Message::Synced).await.unwrap();
    running.tell(&[2]).await;
    let facts = running.until(|facts| facts.revision == 1).await;
    assert!(facts.in_force);
    let calls = running.stop().await.calls();
    // At most two: one for what was there when it failed, one when it was tried again.
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert_eq!(calls[1], (true, vec!["+s1".to_owned(), "+s2".to_owned()]));
}

/// The Service `shop/s{number}`, on another port each time.
fn version(number: u8, version: u16) -> Update {
    let ClusterEvent::ServiceUpserted(mut service) = service(number) else {
        panic!("made above")
    };
    service.ports[0].port = version;
    Update {
        event: ClusterEvent::ServiceUpserted(service),
        trigger: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn under_load_the_source_waits_and_the_latest_of_thousands_of_events_is_one_revision() {
    let running = Running::start(NEVER).await;
    running.messages.send(Message::Synced).await.unwrap();
    running.until(|facts| facts.revision == 1).await;

    let held = running.fake.hold();
    running.tell(&[1]).await;
    block_in_place(|| held.entered());
    // The backend is busy. What comes in waits, and then whoever sends it.
    let mut versions = 1_u16..;
    let mut batch = || -> Vec<Update> {
        let few = [1, 2, 3].into_iter().cycle().take(999);
        few.map(|service| version(service, versions.next().unwrap()))
            .collect()
    };
    let mut batches = 0_usize;
    while let Ok(place) = running.messages.try_reserve() {
        place.send(Message::Updates(batch()));
        batches += 1;
    }
    assert_eq!(batches, running.messages.max_capacity());
    drop(held);
    let events = 1 + 999 * batches as u64;
    let facts = running.until(|facts| facts.events == events).await;
    assert_eq!(facts.revision, 3, "{facts:?}");

    // The last version of each is what counts.
    let state = running.snapshot().await.state;
    let last = u16::try_from(999 * batches).unwrap();
    let ports = state.services.values().map(|one| one.frontends[0].port);
    assert_eq!(ports.collect::<Vec<_>>(), [last - 2, last - 1, last]);

    // The same once more: nothing changes, so there is nothing to bring into force.
    let again = [(1, last - 2), (2, last - 1), (3, last)];
    let again = again.map(|(service, port)| version(service, port)).to_vec();
    let again = Message::Updates(again);
    running.messages.send(again).await.unwrap();
    let facts = running.until(|facts| facts.events == events + 3).await;
    assert_eq!(facts.revision, 3, "{facts:?}");
    let calls = running.stop().await.calls();
    let all = ["+s1", "+s2", "+s3"].map(str::to_owned).to_vec();
    assert_eq!(
        calls,
        [
            (true, vec![]),
            (false, vec!["+s1".to_owned()]),
            (false, all)
        ]
    );
}

fn names(services: &[u8]) -> Vec<String> {
    services.iter().map(|number| format!("s{number}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_is_published_before_the_backend_has_it_and_whatever_becomes_of_that() {
    let mut running = Running::start(NEVER).await;
    let held = running.fake.hold();
    running.fake.answer(Err(SyncError::Retry {
        reason: "writing SETS: busy".to_owned(),
        after: NEVER,
    }));
    running.tell(&[1]).await;
    running.until(|facts| facts.events == 1).await;
    assert!(running.published.try_recv().is_err());
    running.messages.send(Message::Synced).await.unwrap();
    block_in_place(|| held.entered());
    // The backend stands still.
    assert_eq!(running.published().await, (names(&[1]), 0));
    drop(held);
    // It failed, and is left alone for a long time.
    running.tell(&[2]).await;
    assert_eq!(running.published().await, (names(&[1, 2]), 0));
    // What changes nothing is nothing to publish; what only people want to know is.
    running.tell(&[2]).await;
    let trigger = Some(SystemTime::UNIX_EPOCH);
    let odd = vec![Update {
        event: ClusterEvent::Diagnosed {
            object: "Service shop/s1".into(),
            diagnostics: vec![Diagnostic {
                object: "Service shop/s1".into(),
                field: "spec".to_owned(),
                message: "odd".to_owned(),
            }],
        },
        trigger,
    }];
    running.messages.send(Message::Updates(odd)).await.unwrap();
    assert_eq!(running.published().await, (names(&[1, 2]), 0));
    let mut slice = EndpointSlice {
        name: SliceName::new("shop", "s1-x"),
        service: ServiceName::new("shop", "s1"),
        family: IpFamily::V4,
        ports: vec![SlicePort {
            name: "".into(),
            protocol: Protocol::Tcp,
            port: 8080,
        }],
        endpoints: vec![],
    };
    slice.endpoints.push(SliceEndpoint {
        address: IpAddr::from([10, 244, 0, 1]),
        conditions: Conditions {
            ready: true,
            serving: true,
            terminating: false,
        },
        node: None,
        hints: None,
    });
    let event = ClusterEvent::SliceUpserted(slice);
    let update = vec![Update { event, trigger }];
    running
        .messages
        .send(Message::Updates(update))
        .await
        .unwrap();
    assert_eq!(running.published().await, (names(&[1, 2]), 1));
    assert!(!running.snapshot().await.agent.in_force);
    let calls = running.stop().await.calls();
    assert_eq!(calls, [(true, vec!["+s1".to_owned()])]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_ends_is_an_error() {
    let running = Running::start(NEVER).await;
    drop(running.messages);
    let ended = timeout(LIMIT, running.task).await.unwrap().unwrap();
    assert!(matches!(ended, Err(RunError::SourceEnded)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_hangs_is_seen_from_outside_and_does_nobody_harm_who_does_not() {
    let running = Running::start(NEVER).await;
    let heart = Arc::clone(&running.serving.heart);
    let live = |later: Duration| {
        let mut now = Moment::now();
        now.instant += later;
        let answer = |probe| running.serving.health.answer(probe, now, Duration::ZERO);
        let live = answer(Probe::Livez).healthy;
        assert_eq!(answer(Probe::Healthz).healthy, live);
        live
    };
    running.messages.send(Message::Synced).await.unwrap();
    running.until(|facts| facts.revision == 1).await;

    let held = running.fake.hold();
    running.tell(&[1]).await;
    block_in_place(|| held.entered());
    let beat = heart.last();
    assert_eq!(beat.doing, "bringing the state into force");
    assert!(live(LONGEST / 2));
    assert!(!live(LONGEST));
    drop(held);
    running.until(|facts| facts.revision == 2).await;
    // It beats with nothing to do, too.
    let idle = heart.last().since;
    let beats = async {
        while !heart.last().idle || heart.last().since <= idle {
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, beats).await.expect("the owner goes round");
    assert!(live(LONGEST / 2));

    // A comparison hangs as well.
    let held = running.fake.hold();
    running.orders.send(Order::Repair).await.unwrap();
    block_in_place(|| held.entered());
    let doing = heart.last().doing;
    assert_eq!(
        doing,
        "comparing the kernel with the state, and repairing it"
    );
    assert!(!live(LONGEST));
    drop(held);
    running.until(|facts| facts.revision == 2).await;
    running.stop().await;
}
