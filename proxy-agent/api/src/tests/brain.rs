//! A brain to talk to, and what clients see of it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use proxy_model::{Capability, NodeState};
use tempfile::TempDir;
use tokio::{task::JoinHandle, time::timeout};

use crate::{
    Batch, Replica, Target, Token,
    client::{self, Client, Event, Follower},
    server::{ListenError, Listener, Publisher, SOCKET_MODE, serve},
};

/// Longer than anything here takes; a test that waits for it has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// Waits for what must come.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what)
        .await
        .expect("it should not take this long")
}

/// A place for sockets, gone with the last who knows it.
#[derive(Clone)]
pub struct Place(Arc<TempDir>);

impl Place {
    pub fn new() -> Self {
        Self(Arc::new(tempfile::tempdir().unwrap()))
    }

    pub fn socket(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A brain that listens on a socket; gone when dropped, as if it had been killed.
pub struct Brain {
    pub publisher: Publisher,
    pub path: PathBuf,
    serving: JoinHandle<Result<(), ListenError>>,
}

impl Brain {
    /// One with a publisher of its own: another instance than any before.
    pub async fn start(path: PathBuf) -> Self {
        Self::serve(Publisher::new(|_| {}), path).await
    }

    pub async fn serve(publisher: Publisher, path: PathBuf) -> Self {
        let listener = Listener::open(Target::Unix(path.clone()), SOCKET_MODE, None);
        let listener = listener.await.unwrap();
        Self {
            serving: tokio::spawn(serve(publisher.clone(), listener)),
            publisher,
            path,
        }
    }

    pub fn publish(&self, state: &NodeState) {
        self.publisher.publish(state, vec![]);
    }

    pub fn follower(&self, name: &str) -> Follower {
        Follower::new(options(self.path.clone(), name), None)
    }

    pub async fn client(&self, name: &str) -> Client {
        let options = options(self.path.clone(), name);
        soon(Client::connect(&options)).await.unwrap()
    }

    /// Ends it, and waits until it has ended.
    pub async fn kill(mut self) {
        self.serving.abort();
        let ended = (&mut self.serving).await;
        assert!(ended.is_err_and(|error| error.is_cancelled()));
    }

    /// Until nobody has a call open any more.
    pub async fn until_nobody_is_served(&self) {
        soon(async {
            while self.publisher.clients().iter().any(|one| one.streams > 0) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

impl Drop for Brain {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// How to reach the brain behind a socket.
pub fn options(path: PathBuf, name: &str) -> client::ClientOptions {
    client::ClientOptions {
        target: Target::Unix(path),
        tls: None,
        token_file: None,
        name: name.parse().unwrap(),
        lacks: vec![Capability::Sctp],
    }
}

/// The next batch, whatever happens before it.
pub async fn batch(follower: &mut Follower) -> Batch {
    soon(async {
        loop {
            if let Event::Batch(batch) = follower.next().await {
                return batch;
            }
        }
    })
    .await
}

/// Follows until `token`, and returns how many batches and operations that took.
pub async fn until(follower: &mut Follower, replica: &mut Replica, token: Token) -> (usize, usize) {
    let (mut batches, mut operations) = (0, 0);
    while replica.token() != Some(token) {
        let batch = batch(follower).await;
        batches += 1;
        operations += batch.operations.len();
        replica.apply(batch);
    }
    (batches, operations)
}
