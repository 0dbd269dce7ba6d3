//! Open watches: first events, then what happens, until one side ends it.

use std::{future::pending, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};

use super::{
    body::{Gone, Writer},
    cluster::Cluster,
    fault::Disturbance,
    kind::Kind,
    object::{Happened, bookmark},
    query::{Query, Verb},
    seen::Seen,
    selector::Selector,
    status::Status,
    store::{Expired, Store},
};

/// How many of its last events a watch can send again.
const REPEATABLE: usize = 64;

/// How a watch begins.
#[derive(Debug)]
pub(super) struct Opening {
    /// What is sent first.
    pub(super) first: Vec<Bytes>,
    /// What happened after this version is sent next; `None` if nothing is.
    pub(super) after: Option<u64>,
}

/// What is told to an open watch.
#[derive(Debug, Clone)]
pub(super) enum Command {
    Disturb(Disturbance),
    Bookmark,
}

/// A command, and the version at which it was given: all events up to it go first.
pub(super) type Order = (u64, Command);

/// The first events of the watch that `query` asks for.
pub(super) fn open(store: &Store, query: &Query, selector: &Selector) -> Result<Opening, Status> {
    let version = query.number("resourceVersion")?.unwrap_or_default();
    if query.verb == Verb::Watch && version > 0 {
        // A version that is not reached yet is no error: the watch is silent until then.
        let known = store.check(version);
        known.map_err(|Expired { oldest }| Status::too_old(version, oldest))?;
        return Ok(Opening {
            first: Vec::new(),
            after: Some(version),
        });
    }
    if version > store.version() {
        return Err(Status::too_large(version, store.version()));
    }
    let objects = store.select(query.kind, selector, "");
    let mut first: Vec<Bytes> = objects
        .map(|object| {
            let mut line = Vec::new();
            object.write_event(Happened::Added, object.version, &mut line);
            line.into()
        })
        .collect();
    if query.verb == Verb::StreamingList && query.flag("allowWatchBookmarks") {
        first.push(bookmark(query.kind, store.version(), true));
    }
    Ok(Opening {
        first,
        after: Some(store.version()),
    })
}

/// A watch that is open.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) kind: Kind,
    pub(super) selector: Selector,
    pub(super) bookmarks: bool,
    /// Ends it, if the client asked for an end.
    pub(super) timeout: Option<Duration>,
    /// The next event is cut in the middle.
    pub(super) cut: bool,
    pub(super) orders: mpsc::UnboundedReceiver<Order>,
    /// Lines sent last, oldest first.
    pub(super) sent: Vec<Bytes>,
}

/// Why a watch sends no more.
enum End {
    /// The client is gone, or the end is a clean one.
    Clean,
    /// The connection is to break off.
    Cut,
}

impl From<Gone> for End {
    fn from(_: Gone) -> Self {
        Self::Clean
    }
}

impl Watch {
    /// Serves it to its end.
    pub(super) async fn run(
        mut self,
        opening: Opening,
        writer: Writer,
        cluster: Arc<Cluster>,
        seen: Arc<Seen>,
    ) {
        let end = tokio::select! {
            // A client that goes away is noticed even if there is nothing to send.
            () = writer.closed() => End::Clean,
            end = self.serve(opening, &writer, &cluster, &seen) => end,
        };
        if matches!(end, End::Cut) {
            writer.cut().await;
        }
    }

    async fn serve(
        &mut self,
        opening: Opening,
        writer: &Writer,
        cluster: &Cluster,
        seen: &Seen,
    ) -> End {
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        let first = self.send(opening.first, writer).await;
        if let Err(end) = first {
            return end;
        }
        let _open = Open::note(self.kind, seen);
        let mut changed = cluster.subscribe();
        let mut after = opening.after;
        let mut given = None;
        loop {
            // An order that was given before this version was reached is already here.
            let now = *changed.borrow_and_update();
            while let Some((at, command)) = given.take().or_else(|| self.orders.try_recv().ok()) {
                if let Err(end) = self.catch_up(&mut after, at, writer, cluster).await {
                    return end;
                }
                if let Err(end) = self.obey(at, command, writer).await {
                    return end;
                }
            }
            if let Err(end) = self.catch_up(&mut after, now, writer, cluster).await {
                return end;
            }
            tokio::select! {
                order = self.orders.recv() => match order {
                    Some(order) => given = Some(order),
                    None => return End::Clean,
                },
                result = changed.changed() => {
                    if result.is_err() {
                        return End::Clean;
                    }
                }
                () = until(deadline) => return End::Clean,
            }
        }
    }

    /// Sends what has happened up to the version `now`.
    async fn catch_up(
        &mut self,
        after: &mut Option<u64>,
        now: u64,
        writer: &Writer,
        cluster: &Cluster,
    ) -> Result<(), End> {
        let Some(position) = after.filter(|position| *position < now) else {
            return Ok(());
        };
        let lines = cluster.read(|store| store.events(position, now, self.kind, &self.selector));
        // Too slow: what would be next is forgotten. A real server closes such a watch.
        let lines = lines.map_err(|Expired { .. }| End::Clean)?;
        *after = Some(now);
        self.send(lines.into_iter().map(Bytes::from).collect(), writer)
            .await
    }

    async fn send(&mut self, lines: Vec<Bytes>, writer: &Writer) -> Result<(), End> {
        if self.cut && !lines.is_empty() {
            let (last, whole) = lines.split_last().ok_or(End::Cut)?;
            writer.send(whole.concat().into()).await?;
            writer.send(last.slice(..last.len() / 2)).await?;
            return Err(End::Cut);
        }
        let keep = lines.len().saturating_sub(REPEATABLE);
        self.sent.extend_from_slice(&lines[keep..]);
        let forget = self.sent.len().saturating_sub(REPEATABLE);
        self.sent.drain(..forget);
        Ok(writer.send(lines.concat().into()).await?)
    }

    async fn obey(&mut self, at: u64, command: Command, writer: &Writer) -> Result<(), End> {
        let disturbance = match command {
            Command::Disturb(disturbance) => disturbance,
            Command::Bookmark if self.bookmarks => {
                return Ok(writer.send(bookmark(self.kind, at, false)).await?);
            }
            Command::Bookmark => return Ok(()),
        };
        match disturbance {
            Disturbance::End => return Err(End::Clean),
            Disturbance::CutNextEvent => self.cut = true,
            Disturbance::Expire => {
                writer.send(Status::too_old(1, at).to_event()).await?;
                return Err(End::Clean);
            }
            Disturbance::FallSilent => pending().await,
            Disturbance::Send(bytes) => writer.send(bytes).await?,
            Disturbance::Drip(bytes, pause) => loop {
                writer.send(bytes.clone()).await?;
                sleep(pause).await;
            },
            Disturbance::Repeat(count) => {
                let from = self.sent.len().saturating_sub(count);
                writer.send(self.sent[from..].concat().into()).await?;
            }
        }
        Ok(())
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}

/// Counts a watch among the open ones while it lives.
struct Open<'a> {
    kind: Kind,
    seen: &'a Seen,
}

impl<'a> Open<'a> {
    fn note(kind: Kind, seen: &'a Seen) -> Self {
        seen.note(|sight| *sight.watches.entry(kind).or_default() += 1);
        Self { kind, seen }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.seen.note(|sight| {
            if let Some(open) = sight.watches.get_mut(&self.kind) {
                *open = open.saturating_sub(1);
            }
        });
    }
}
