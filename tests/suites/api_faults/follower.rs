//! The agent's source on a fake API server, and the model behind it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use proxy_agent::cluster::{
    Message,
    kube::{ApiServerOptions, ApiServerSource, Counters, Reason, Timing},
    manifests,
};
use proxy_model::{Model, NodeState, compute};
use proxy_tests::api_server::{ApiServer, Kind, Verb};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, timeout},
};

pub const NODE: &str = "node-a";

/// How long anything may take: far above what it needs.
const LIMIT: Duration = Duration::from_secs(30);

/// Quick to lose patience, so that tests of patience are quick.
pub fn timing() -> Timing {
    Timing {
        connect: Duration::from_millis(300),
        answer: Duration::from_millis(300),
        silence: Duration::from_millis(600),
        watch: Duration::from_mins(5),
        first_wait: Duration::from_millis(5),
        longest_wait: Duration::from_millis(50),
        token_age: Duration::from_mins(1),
        absent: Duration::from_mins(10),
    }
}

/// A timing under which silence is no failure.
pub fn patient() -> Timing {
    Timing {
        answer: LIMIT,
        silence: LIMIT,
        ..timing()
    }
}

/// What a source has said so far, folded.
pub struct Follower {
    pub model: Model,
    pub counters: Arc<Counters>,
    /// Whether everything has been told once.
    pub synced: bool,
    messages: mpsc::Receiver<Message>,
    task: JoinHandle<()>,
}

impl Follower {
    /// A source on `server`, quick to lose patience.
    pub async fn of(server: &ApiServer) -> Self {
        Self::start(vec![server.url()], timing()).await
    }

    pub async fn start(masters: Vec<String>, timing: Timing) -> Self {
        let mut options = ApiServerOptions::new(NODE);
        options.masters = masters;
        options.timing = timing;
        Self::with(options).await
    }

    pub async fn with(options: ApiServerOptions) -> Self {
        let source = ApiServerSource::new(options)
            .await
            .expect("the options are valid");
        let counters = source.counters();
        let (sender, messages) = mpsc::channel(16);
        Self {
            model: Model::new(NODE),
            counters,
            synced: false,
            messages,
            task: tokio::spawn(source.run(sender)),
        }
    }

    /// Folds messages until `wanted` holds.
    pub async fn until(&mut self, what: &str, mut wanted: impl FnMut(&Self) -> bool) {
        let folding = async {
            self.model.update();
            while !wanted(self) {
                match self.messages.recv().await {
                    Some(message) => self.fold(message),
                    None => panic!("the source ended and {what} never came"),
                }
            }
        };
        if timeout(LIMIT, folding).await.is_err() {
            let state = self.model.state();
            panic!(
                "{what} did not come in {LIMIT:?}; errors: {:?}; state: {state:#?}",
                self.counters.errors
            );
        }
    }

    /// Folds everything that has come.
    pub fn catch_up(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            self.fold(message);
        }
        self.model.update();
    }

    fn fold(&mut self, message: Message) {
        match message {
            Message::Updates(updates) => {
                for update in updates {
                    self.model.apply(update.event);
                }
                self.model.update();
            }
            Message::Synced => {
                assert!(!self.synced, "said twice that everything was told");
                self.synced = true;
            }
            Message::Batch(batch) => panic!("an API server is no brain: {batch:?}"),
        }
    }

    /// Folds messages until the state is that of what `server` holds.
    pub async fn agree(&mut self, server: &ApiServer) {
        let expected = expected(&server.objects());
        self.agree_with(&expected).await;
    }

    pub async fn agree_with(&mut self, expected: &NodeState) {
        let same = |follower: &Self| follower.synced && follower.model.state() == expected;
        let folding = self.fold_until(same);
        if timeout(LIMIT, folding).await.is_err() {
            let state = format!("{:#?}", self.model.state());
            let wanted = format!("{expected:#?}");
            let lines = wanted.lines().zip(state.lines());
            let differing: Vec<_> = lines.filter(|(a, b)| a != b).take(10).collect();
            panic!(
                "the state is not that of the objects after {LIMIT:?} (synced: {}; errors: {:?}); \
                 first lines that differ, wanted and found: {differing:#?}",
                self.synced, self.counters.errors
            );
        }
    }

    async fn fold_until(&mut self, wanted: impl Fn(&Self) -> bool) {
        self.model.update();
        while !wanted(self) {
            match self.messages.recv().await {
                Some(message) => self.fold(message),
                None => panic!("the source ended"),
            }
        }
    }

    /// The state is right, and what changes from now on is followed, of every kind.
    pub async fn goes_on(&mut self, server: &ApiServer) {
        self.agree(server).await;
        for kind in Kind::ALL {
            change(server, kind, 99);
            self.agree(server).await;
            undo(server, kind, 99);
            self.agree(server).await;
        }
    }

    /// How many failures of this sort there were.
    pub fn failures(&self, reason: Reason) -> u64 {
        self.counters.error(reason).load(Ordering::Relaxed)
    }

    /// Waits for a failure of this sort, which is no message.
    pub async fn fails(&self, reason: Reason) {
        eventually(&format!("{reason:?}"), || self.failures(reason) > 0).await;
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits for something that nobody tells.
pub async fn eventually(what: &str, wanted: impl Fn() -> bool) {
    let waiting = async {
        while !wanted() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(
        timeout(LIMIT, waiting).await.is_ok(),
        "{what} did not come in {LIMIT:?}"
    );
}

/// The state of the node in a cluster of these objects, read as manifests.
pub fn expected(objects: &[Value]) -> NodeState {
    let file = tempfile::Builder::new()
        .prefix("culvert-test-")
        .suffix(".json")
        .tempfile()
        .expect("a temporary file can be made");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(file.path(), list.to_string()).expect("a temporary file can be written");
    let events = manifests::load_once(vec![file.path().to_owned()]);
    compute(NODE, events.expect("what the server holds can be read"))
}

/// Requests that list objects of `kind`.
pub fn lists(server: &ApiServer, kind: Kind) -> usize {
    let sight = server.sight();
    sight.count(Verb::StreamingList, kind) + sight.count(Verb::List, kind)
}

/// A cluster with nearly every kind of Service and endpoint condition.
pub fn mixed() -> ApiServer {
    let server = ApiServer::new().expect("a server can be started");
    fill(&server);
    server
}

pub fn fill(server: &ApiServer) {
    server
        .apply_yaml(include_str!("../../data/cluster-mixed.yaml"))
        .expect("these objects are valid");
    change(server, Kind::ServiceCidr, 96);
}

/// A change of an object of `kind` that changes the state.
pub fn change(server: &ApiServer, kind: Kind, number: u8) {
    let object = match kind {
        Kind::Node => node(number),
        Kind::Service => service(number),
        Kind::EndpointSlice => slice("web", number),
        Kind::ServiceCidr => json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": format!("cidr{number}")},
            "spec": {"cidrs": [format!("10.{number}.0.0/16")]},
        }),
    };
    server.apply(&object).expect("the object is valid");
}

/// Another change that takes it back.
pub fn undo(server: &ApiServer, kind: Kind, number: u8) {
    let deleted = match kind {
        Kind::Node => {
            change(server, kind, number.wrapping_add(1));
            return;
        }
        Kind::Service => server.delete(kind, "shop", &format!("s{number}")),
        Kind::EndpointSlice => server.delete(kind, "shop", &format!("web-s{number}")),
        Kind::ServiceCidr => server.delete(kind, "", &format!("cidr{number}")),
    };
    assert!(deleted.is_some(), "{kind} {number} was there");
}

fn node(number: u8) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": NODE,
            "labels": {"topology.kubernetes.io/zone": format!("zone-{number}")},
        },
        "spec": {"podCIDRs": ["10.244.0.0/24"]},
    })
}

pub fn service(number: u8) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "shop", "name": format!("s{number}")},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": format!("10.96.1.{number}"), "clusterIPs": [format!("10.96.1.{number}")],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        },
    })
}

/// A slice of the Service `shop/<service>` with one endpoint.
pub fn slice(service: &str, number: u8) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "namespace": "shop", "name": format!("{service}-s{number}"),
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{
            "addresses": [format!("10.244.9.{number}")], "nodeName": NODE,
            "conditions": {"ready": true, "serving": true, "terminating": false},
        }],
    })
}
