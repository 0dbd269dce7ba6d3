//! A real brain on a real socket.

use std::path::Path;

use proxy_api::{
    Report,
    server::{ClientStatus, Listener, Publisher, SOCKET_MODE, serve},
};
use proxy_model::{NodeInfo, NodeState};
use tempfile::TempDir;
use tokio::{task::JoinHandle, time::timeout};

use super::*;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_mins(1);

/// A brain on a socket.
struct Brain {
    publisher: Publisher,
    serving: JoinHandle<()>,
}

impl Brain {
    async fn start(socket: &Path, node: &str) -> Self {
        let brain = Self::ignorant(socket).await;
        brain.publisher.publish(&state(node), vec![]);
        brain
    }

    /// One that knows nothing yet.
    async fn ignorant(socket: &Path) -> Self {
        let publisher = Publisher::new(|_| {});
        let target = Target::Unix(socket.to_path_buf());
        let listener = Listener::open(target, SOCKET_MODE, None).await.unwrap();
        let served = publisher.clone();
        let serving = tokio::spawn(async move { serve(served, listener).await.unwrap() });
        Self { publisher, serving }
    }

    async fn kill(mut self) {
        self.serving.abort();
        assert!((&mut self.serving).await.is_err());
    }

    /// What is known of the client, once `wanted` holds for it.
    async fn until(&self, wanted: impl Fn(&ClientStatus) -> bool) -> ClientStatus {
        soon(async {
            loop {
                if let Some(client) = self.publisher.clients().into_iter().find(|one| wanted(one)) {
                    return client;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(LIMIT, what)
        .await
        .expect("it should not take this long")
}

fn state(node: &str) -> NodeState {
    NodeState {
        node: NodeInfo {
            name: node.into(),
            ..NodeInfo::default()
        },
        ..NodeState::default()
    }
}

/// A source behind `socket`, for node-a.
fn follow(socket: &Path) -> (Link, mpsc::Receiver<Message>) {
    let options = client::ClientOptions {
        target: Target::Unix(socket.to_path_buf()),
        tls: None,
        token_file: None,
        name: "fake".parse().unwrap(),
        lacks: vec![],
    };
    let source = BrainSource::new(options, Some("node-a".into()));
    let link = source.link();
    let (sender, messages) = mpsc::channel(1);
    tokio::spawn(source.run(sender));
    (link, messages)
}

async fn batch(messages: &mut mpsc::Receiver<Message>) -> Batch {
    match soon(messages.recv()).await.unwrap() {
        Message::Batch(batch) => batch,
        other => panic!("{other:?}"),
    }
}

async fn until_stale(link: &Link) -> Stale {
    soon(async {
        loop {
            if let Some(stale) = link.stale() {
                return stale;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

#[tokio::test]
async fn a_brain_that_goes_away_leaves_a_stale_state_until_one_comes_that_is_reported_to() {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("brain.sock");
    let (link, mut messages) = follow(&socket);
    let contact = link.contact();
    // Not there yet.
    until_stale(&link).await;
    assert!(!contact.is_connected());
    let brain = Brain::start(&socket, "node-a").await;
    let token = batch(&mut messages).await.token;
    assert!(contact.is_connected());
    assert_eq!((link.stale(), contact.losses()), (None, 1));
    assert_eq!(contact.stale_for(), Duration::ZERO);
    link.report(&[], Some(token), vec![], None);
    brain
        .until(|client| client.applied == Some(token.revision))
        .await;

    brain.kill().await;
    let stale = until_stale(&link).await;
    assert!(contact.stale_for() > Duration::ZERO);
    assert_eq!(contact.losses(), 2);
    // A newer reason is no newer loss.
    link.contact.lost("another reason");
    assert_eq!(link.stale().unwrap().since, stale.since);
    assert_eq!(
        (link.stale().unwrap().reason, contact.losses()),
        ("another reason".to_owned(), 2)
    );

    // One that knows nothing is there, and makes the state no newer.
    let ignorant = Brain::ignorant(&socket).await;
    soon(async {
        while !link
            .stale()
            .unwrap()
            .reason
            .contains("has not sent its state")
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(link.stale().unwrap().since, stale.since);
    assert!(!contact.is_connected());
    ignorant.kill().await;

    // What was not delivered is, once somebody is there: only the newest.
    link.report(&[], None, vec![], Some("old".to_owned()));
    link.report(
        &[Capability::Sctp],
        None,
        vec![],
        Some("no room".to_owned()),
    );
    let brain = Brain::start(&socket, "node-a").await;
    assert!(batch(&mut messages).await.reset);
    assert_eq!(link.stale(), None);
    let client = brain.until(|client| client.error.is_some()).await;
    assert_eq!(client.error.as_deref(), Some("no room"));
    assert_eq!(
        client.lacks,
        [Capability::Sctp],
        "of the backend that is in use now"
    );
    let report = Report {
        // As long as nothing else is in force.
        applied: Some(token),
        failures: vec![],
        error: Some("no room".to_owned()),
        lacks: Some(vec![Capability::Sctp]),
    };
    soon(link.until_reported(report)).await;
}

#[tokio::test]
async fn a_brain_of_another_node_is_not_heeded() {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("brain.sock");
    let (link, mut messages) = follow(&socket);
    let brain = Brain::start(&socket, "node-b").await;
    let refused = soon(async {
        loop {
            let stale = until_stale(&link).await;
            if stale.reason.contains("node-b") {
                return stale;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(refused.reason.contains("node-a"), "{refused:?}");
    brain.kill().await;
    let brain = Brain::start(&socket, "node-a").await;
    // Nothing of the other one came through.
    let batch = batch(&mut messages).await;
    assert_eq!(batch.token, brain.publisher.token());
    assert_eq!(link.stale(), None);
}

#[test]
fn only_a_node_that_is_named_and_another_one_is_refused() {
    let batch = |name: &str| Batch {
        reset: true,
        operations: vec![Operation::Upsert(Item::Node(Box::new(
            proxy_api::NodeFacts::of(&state(name)),
        )))],
        token: Token {
            instance_id: 1,
            revision: 1,
        },
        triggers: vec![],
    };
    assert_eq!(refusal(None, &batch("node-b")), None);
    assert_eq!(refusal(Some("node-a"), &batch("node-a")), None);
    assert!(refusal(Some("node-a"), &batch("node-b")).is_some());
    let later = Batch {
        operations: vec![],
        ..batch("node-b")
    };
    assert_eq!(refusal(Some("node-a"), &later), None);
}
