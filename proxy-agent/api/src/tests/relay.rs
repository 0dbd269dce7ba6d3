//! A connection that a test has in its hand: it can be cut after any byte, and let bytes through
//! one by one.

use std::{path::PathBuf, sync::Arc};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Semaphore,
    task::JoinHandle,
};

/// Passes bytes on between clients and a brain.
pub struct Relay {
    pub path: PathBuf,
    /// Bytes that may still pass from the brain to the client.
    pub budget: Arc<Semaphore>,
    task: JoinHandle<()>,
}

impl Relay {
    /// What the brain says passes freely.
    pub const FREE: usize = Semaphore::MAX_PERMITS / 2;

    /// Lets `budget` bytes through, then holds the rest back.
    pub fn throttled(path: PathBuf, brain: PathBuf, budget: usize) -> Self {
        Self::start(path, brain, budget, None)
    }

    /// Cuts the first connection after `bytes` bytes of the brain; later ones pass freely.
    pub fn cutting(path: PathBuf, brain: PathBuf, bytes: usize) -> Self {
        Self::start(path, brain, Self::FREE, Some(bytes))
    }

    fn start(path: PathBuf, brain: PathBuf, budget: usize, cut: Option<usize>) -> Self {
        let budget = Arc::new(Semaphore::new(budget));
        let listener = UnixListener::bind(&path).unwrap();
        Self {
            task: tokio::spawn(relay(listener, brain, Arc::clone(&budget), cut)),
            budget,
            path,
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn relay(
    listener: UnixListener,
    brain: PathBuf,
    budget: Arc<Semaphore>,
    mut cut: Option<usize>,
) {
    loop {
        let (client, _) = listener.accept().await.unwrap();
        // Refused: as if the relay were not there.
        let Ok(brain) = UnixStream::connect(&brain).await else {
            continue;
        };
        let (from_client, to_client) = client.into_split();
        let (from_brain, to_brain) = brain.into_split();
        let there = tokio::spawn(pass(from_client, to_brain, None, None));
        let back = pass(from_brain, to_client, Some(Arc::clone(&budget)), cut.take());
        let back = tokio::spawn(back);
        tokio::spawn(async move {
            // Either end takes the other one with it.
            let (mut there, mut back) = (there, back);
            tokio::select! {
                _ = &mut there => back.abort(),
                _ = &mut back => there.abort(),
            }
        });
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    budget: Option<Arc<Semaphore>>,
    mut cut: Option<usize>,
) {
    let mut buffer = [0; 4096];
    loop {
        let mut most = cut.unwrap_or(buffer.len()).min(buffer.len());
        if let Some(budget) = &budget {
            let Ok(one) = budget.acquire().await else {
                return;
            };
            one.forget();
            most = most.min(1 + budget.forget_permits(most.saturating_sub(1)));
        }
        if most == 0 {
            return;
        }
        let Ok(count @ 1..) = from.read(&mut buffer[..most]).await else {
            return;
        };
        if let Some(budget) = &budget {
            budget.add_permits(most - count);
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
        cut = cut.map(|left| left - count);
    }
}
