//! The clients of the bench, all in one process that is not the brain's.

use std::{
    cell::Cell,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use proxy_api::{
    Replica, Target,
    client::{Client, ClientOptions, Event, Follower},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    runtime::Runtime,
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time::timeout,
};

use super::{
    super::orders::{self, now},
    brain::{self, Clock},
};

/// How long anything may take; far above what would be a figure.
const LIMIT: Duration = Duration::from_secs(30);

/// What the clients are told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// So many begin to watch, one after the other, until each has a state. Answered with `()`.
    Watch {
        clients: u32,
        /// Whether each keeps the state and hands changes to a backend; otherwise it only decodes.
        apply: bool,
    },
    /// To wait until all have this revision. Answered with the moments when they had.
    Await(u64),
    /// One asks for the whole state. Answered with [`Whole`].
    Next,
    /// The same through a relay that counts. Answered with the bytes from the brain.
    Count,
}

/// A whole state came.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Whole {
    /// Service ports of it.
    pub(super) services: usize,
    /// From the call to the state.
    pub(super) state: Duration,
    /// From the call until a backend was handed it.
    pub(super) backend: Duration,
}

/// A client has a revision, since a moment.
type Had = (u64, Duration);

/// The process: obeys, and talks to the brain behind `socket`.
pub(in super::super) fn clients(socket: PathBuf) -> Result<()> {
    let (had, hearing) = mpsc::unbounded_channel();
    let mut clients = Clients {
        runtime: brain::runtime()?,
        socket,
        watching: 0,
        caller: None,
        had,
        hearing,
    };
    orders::obey(|order| clients.obey(&order))
}

struct Clients {
    runtime: Runtime,
    socket: PathBuf,
    watching: u32,
    /// Calls Next, on one connection.
    caller: Option<Client>,
    had: UnboundedSender<Had>,
    hearing: UnboundedReceiver<Had>,
}

impl Clients {
    fn obey(&mut self, order: &Order) -> Result<serde_json::Value> {
        let answer = match order {
            Order::Watch { clients, apply } => serde_json::to_value(self.watch(*clients, *apply)?),
            Order::Await(revision) => serde_json::to_value(self.wait(*revision)?),
            Order::Next => serde_json::to_value(self.next()?),
            Order::Count => serde_json::to_value(self.count()?),
        };
        answer.context("cannot encode an answer")
    }

    fn watch(&mut self, clients: u32, apply: bool) -> Result<()> {
        for _ in 0..clients {
            self.watching += 1;
            let options = options(self.socket.clone(), &format!("client-{}", self.watching))?;
            let follower = Follower::new(options, None);
            let had = self.had.clone();
            if apply {
                self.runtime.spawn(keep_up(follower, had));
            } else {
                self.runtime.spawn(look_on(follower, had));
            }
            // Whole states of all clients at once are not what is measured.
            self.heard()?;
        }
        Ok(())
    }

    fn wait(&mut self, revision: u64) -> Result<Vec<Duration>> {
        let mut moments = Vec::new();
        for _ in 0..self.watching {
            let (has, since) = self.heard()?;
            ensure!(
                has == revision,
                "revision {has} came instead of {revision}: changes were told together"
            );
            moments.push(since);
        }
        Ok(moments)
    }

    fn heard(&mut self) -> Result<Had> {
        let had = self
            .runtime
            .block_on(async { timeout(LIMIT, self.hearing.recv()).await });
        had.ok()
            .flatten()
            .with_context(|| format!("a client was told nothing for {LIMIT:?}"))
    }

    fn next(&mut self) -> Result<Whole> {
        let options = options(self.socket.clone(), "caller")?;
        let caller = &mut self.caller;
        self.runtime.block_on(async {
            let client = match caller {
                Some(client) => client,
                None => caller.insert(Client::connect(&options).await?),
            };
            let began = now()?;
            let batch = client.next(None).await?;
            let mut replica = Replica::new();
            replica.apply(batch);
            let state = now()?;
            let mut backend = Clock::default();
            let change = replica.update();
            brain::hand_over(&mut backend, replica.state(), &change)?;
            Ok(Whole {
                services: replica.state().services.len(),
                state: state.saturating_sub(began),
                backend: backend.had.saturating_sub(began),
            })
        })
    }

    fn count(&self) -> Result<usize> {
        let path = self.socket.with_extension("relay");
        let options = options(path.clone(), "counted")?;
        self.runtime.block_on(async {
            let listener = UnixListener::bind(&path).context("cannot listen for a relay")?;
            let passed = Cell::new(0);
            let call = async {
                let client = Client::connect(&options).await?;
                client.next(None).await.map(drop)
            };
            tokio::select! {
                end = relay(&listener, &self.socket, &passed) => {
                    end.context("cannot pass on")?;
                    bail!("the connection ended before the state had come");
                }
                called = call => called.context("cannot ask through a relay")?,
            }
            Ok(passed.get())
        })
    }
}

/// Passes on for one client, and counts the bytes that come from the brain.
async fn relay(listener: &UnixListener, brain: &Path, passed: &Cell<usize>) -> io::Result<()> {
    let (client, _) = listener.accept().await?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_brain, mut to_brain) = UnixStream::connect(brain).await?.into_split();
    let back = async {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = from_brain.read(&mut buffer).await?;
            if read == 0 {
                return Ok(0);
            }
            passed.set(passed.get() + read);
            to_client.write_all(&buffer[..read]).await?;
        }
    };
    let there = tokio::io::copy(&mut from_client, &mut to_brain);
    tokio::try_join!(there, back).map(drop)
}

fn options(socket: PathBuf, name: &str) -> Result<ClientOptions> {
    Ok(ClientOptions {
        target: Target::Unix(socket),
        tls: None,
        name: name.parse()?,
        lacks: Vec::new(),
        token_file: None,
    })
}

/// A client that only decodes.
async fn look_on(mut follower: Follower, had: UnboundedSender<Had>) -> Result<()> {
    loop {
        if let Event::Batch(batch) = follower.next().await {
            had.send((batch.token.revision, now()?))
                .context("the bench is over")?;
        }
    }
}

/// A client that does with a change what a backend outside of the brain does.
async fn keep_up(mut follower: Follower, had: UnboundedSender<Had>) -> Result<()> {
    let mut replica = Replica::new();
    let mut backend = Clock::default();
    loop {
        match follower.next().await {
            Event::Batch(batch) => {
                let revision = batch.token.revision;
                replica.apply(batch);
                let change = replica.update();
                brain::hand_over(&mut backend, replica.state(), &change)?;
                had.send((revision, backend.had))
                    .context("the bench is over")?;
            }
            Event::Connected => {}
            Event::Lost(error) => bail!("the brain was lost: {error}"),
        }
    }
}
