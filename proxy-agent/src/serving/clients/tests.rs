//! Real clients on a real socket.

use proxy_api::{
    Report, Target, Token, Trigger,
    client::{Client, ClientOptions},
    server::{Listener, SOCKET_MODE, serve},
};
use proxy_model::{IpFamily, NodeInfo, NodeState};
use tempfile::TempDir;

use super::*;
use crate::{backend::choice, serving::Metrics};

/// A brain with clients that report.
struct Rig {
    clients: Arc<Clients>,
    metrics: Metrics,
    target: Target,
    _directory: TempDir,
}

impl Rig {
    async fn new() -> Self {
        let clients = Clients::new();
        let directory = TempDir::new().unwrap();
        let target = Target::Unix(directory.path().join("api.sock"));
        let listener = Listener::open(target.clone(), SOCKET_MODE, None);
        let serving = serve(clients.publisher().clone(), listener.await.unwrap());
        tokio::spawn(serving);
        let chosen = choice::fixtures::lacking(&[]);
        let metrics = Metrics::new(
            &chosen,
            &[],
            &crate::serving::Conntrack::new(),
            vec![clients.collector()],
        );
        metrics.also(clients.latency());
        Self {
            clients,
            metrics,
            target,
            _directory: directory,
        }
    }

    /// Publishes another state, which a change of the cluster led to. Returns its number.
    fn publish(&self, name: &str, at: SystemTime) -> u64 {
        let state = NodeState {
            node: NodeInfo {
                name: name.into(),
                ..NodeInfo::default()
            },
            ..NodeState::default()
        };
        let family = IpFamily::V4;
        self.clients
            .publisher()
            .publish(&state, vec![Trigger { family, at }]);
        self.clients.publisher().revision()
    }

    async fn report(&self, name: &str, revision: u64) {
        let options = ClientOptions {
            target: self.target.clone(),
            tls: None,
            token_file: None,
            name: name.parse().unwrap(),
            lacks: vec![],
        };
        let report = Report {
            applied: Some(Token {
                revision,
                ..self.clients.publisher().token()
            }),
            ..Report::default()
        };
        let client = Client::connect(&options).await.unwrap();
        client.report(&report).await.unwrap();
    }

    fn shows(&self, line: &str) -> bool {
        self.metrics.text().unwrap().lines().any(|one| one == line)
    }
}

#[tokio::test]
async fn who_does_not_keep_up_is_behind_and_who_does_is_not() {
    let rig = Rig::new().await;
    let first = rig.publish("a", SystemTime::now());
    assert_eq!(rig.clients.behind_for(), Duration::ZERO);
    rig.report("good", first).await;
    rig.report("slow", first).await;
    assert_eq!(rig.clients.behind_for(), Duration::ZERO);
    let second = rig.publish("b", SystemTime::now());
    rig.report("good", second).await;
    assert!(rig.clients.behind_for() > Duration::ZERO);
    let facts = rig.clients.facts();
    assert_eq!(facts.revision, second);
    let of = |name: &str| facts.clients.iter().find(|one| one.name == name).unwrap();
    assert_eq!(of("good").applied, Some(second));
    assert_eq!(of("good").behind_for, None);
    assert!(of("slow").behind_for.is_some() && !of("slow").connected);
    assert!(rig.shows("culvert_clients 2"));
    assert!(rig.shows("culvert_published_revision 2"));
    assert!(rig.shows("culvert_client_revision{client=\"slow\"} 1"));
    assert!(rig.shows("culvert_client_behind_seconds{client=\"good\"} 0"));
    assert!(!rig.shows("culvert_client_behind_seconds{client=\"slow\"} 0"));
    rig.report("slow", second).await;
    assert_eq!(rig.clients.behind_for(), Duration::ZERO);
}

#[tokio::test]
async fn how_long_a_change_took_is_told_of_each_client_but_not_of_changes_before_the_start() {
    let rig = Rig::new().await;
    let first = rig.publish("a", SystemTime::now());
    rig.report("good", first).await;
    let old = rig.publish("b", SystemTime::UNIX_EPOCH);
    rig.report("good", old).await;
    let count = |count: u64| {
        format!(
            "culvert_client_network_programming_duration_seconds_count\
             {{client=\"good\",ip_family=\"IPv4\"}} {count}"
        )
    };
    assert!(!rig.shows(&count(1)));
    let second = rig.publish("c", SystemTime::now());
    rig.report("good", second).await;
    assert!(rig.shows(&count(1)));
}

#[test]
fn ever_new_names_share_one_and_those_that_are_forgotten_make_room() {
    let latency = Latency::new();
    let programmed = |name: &str| {
        latency.programmed(Programmed {
            client: &name.parse().unwrap(),
            trigger: Trigger {
                family: IpFamily::V4,
                at: SystemTime::now(),
            },
        });
    };
    let series = || {
        let families = prometheus::core::Collector::collect(&latency.histogram);
        families[0].get_metric().len()
    };
    for number in 0..3 * MOST_NAMED {
        programmed(&number.to_string());
    }
    assert_eq!(series(), MOST_NAMED + 1);
    latency.keep(&[]);
    assert_eq!(series(), 1);
    programmed("new");
    assert_eq!(series(), 2);
    // Nor does a scrape show more of them.
    let client = |number: usize| ClientStatus {
        name: number.to_string().parse().unwrap(),
        lacks: vec![],
        streams: 1,
        applied: (number == 3 * MOST_NAMED).then_some(1),
        behind_for: None,
        failures: vec![],
        more_failures: 0,
        error: None,
    };
    let all: Vec<_> = (0..=3 * MOST_NAMED).map(client).collect();
    let figures = figures(1, &all);
    assert_eq!(figures.len(), 2 + OF_CLIENT.len() * MOST_NAMED);
    let reporting = (3 * MOST_NAMED).to_string();
    assert!(figures.iter().any(|figure| {
        figure
            .labels
            .first()
            .is_some_and(|(_, name)| *name == reporting)
    }));
}
