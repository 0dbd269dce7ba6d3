//! Follows one kind of objects: lists them, and watches them from there. What objects mean is
//! `known`'s, bytes are `servers`', and what happens after a failure is `recover`'s.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use proxy_model::Backoff;
use tokio::{sync::mpsc, time::sleep};

mod patience;
mod recover;

use patience::Patience;

use super::{
    Timing,
    backoff::{random, wait},
    contact::{Contact, Standing},
    counters::{Counters, KindCounters, count},
    decode::{self, Event, Malformed},
    failure::Failure,
    frames::{Items, Lines},
    kind::Followed,
    known::Known,
    requests::Requests,
    servers::{Failed, Reply, Servers},
};
use crate::cluster::{Message, Update, object::Object};

/// As many updates are sent at once at most, if they are there at once.
const BATCH: usize = 256;
/// A streaming list that ends between two events, as a watch does, and was not finished.
const UNFINISHED: &str = "it ended in the middle of a streaming list";
/// A list in more pages has no end. So many pages of the size that is asked for are ten million
/// objects.
const MOST_PAGES: usize = 20_000;
/// A watch that ends sooner than this is not asked for again at once; without a word, it is a
/// failure.
const TOO_SOON: Duration = Duration::from_secs(1);

/// What the followers of all kinds share.
pub(super) struct Shared {
    pub(super) servers: Servers,
    pub(super) counters: Arc<Counters>,
    pub(super) timing: Timing,
    pub(super) contact: Contact,
    /// Objects, ports and endpoints of one kind that are kept.
    pub(super) most: usize,
    /// How many kinds have not been told as a whole yet.
    pub(super) missing: AtomicUsize,
}

/// Why following is interrupted.
enum Stop {
    /// Nobody listens any more.
    Closed,
    Failed(Failed),
}

impl From<Failed> for Stop {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

/// Follows the objects of kind `F`.
pub(super) struct Follower<F: Followed> {
    shared: Arc<Shared>,
    sender: mpsc::Sender<Message>,
    requests: Requests,
    known: Known<F>,
    /// Whether lists are asked for as streams.
    streaming: bool,
    /// Not the next one, though.
    not_now: bool,
    /// Up to which version everything was told; `None` if a list is needed.
    version: Option<String>,
    /// From which version on a watch has told nothing at all, the last time that one did.
    silent_from: Option<String>,
    /// Whether a list was told as a whole, ever.
    listed: bool,
    backoff: Backoff,
    standing: Standing,
}

/// How far a watch has got.
struct Progress {
    lines: Lines,
    /// It is still telling the list that it began with.
    listing: bool,
    /// It has just told the end of that list.
    listed: bool,
}

impl<F: Followed> Follower<F> {
    pub(super) fn new(
        shared: Arc<Shared>,
        sender: mpsc::Sender<Message>,
        fields: Option<String>,
    ) -> Self {
        let timing = &shared.timing;
        let backoff = Backoff::new(timing.first_wait, timing.longest_wait);
        let most = shared.most;
        Self {
            shared,
            sender,
            requests: Requests {
                path: F::path(),
                labels: F::LABELS,
                fields: fields.or_else(|| F::FIELDS.map(str::to_owned)),
            },
            known: Known::new(most),
            streaming: true,
            not_now: false,
            version: None,
            silent_from: None,
            listed: false,
            backoff,
            standing: Standing::new(F::KIND, F::resource()),
        }
    }

    /// Until nobody listens any more.
    pub(super) async fn run(mut self) {
        loop {
            let step = match self.version.clone() {
                Some(version) => self.watch(&version, false).await,
                // After the first list from memory, which may be a little old, only what is
                // certainly new: what was told must not be told back.
                None if self.streaming && !std::mem::take(&mut self.not_now) => {
                    self.watch(if self.listed { "" } else { "0" }, true).await
                }
                None => self.list().await,
            };
            let recovered = match step {
                Ok(()) => Ok(()),
                Err(Stop::Failed(failed)) => self.recover(failed).await,
                Err(Stop::Closed) => Err(Stop::Closed),
            };
            if recovered.is_err() {
                return;
            }
        }
    }

    fn counters(&self) -> &KindCounters {
        self.shared.counters.kind(F::KIND)
    }

    /// Lists everything, page by page.
    async fn list(&mut self) -> Result<(), Stop> {
        self.known.begin_list();
        let mut next_page = None;
        for _ in 0..MOST_PAGES {
            let path = self.requests.list(next_page.take(), !self.listed);
            let path = path.map_err(|failure| self.current(failure))?;
            let mut reply = self.shared.servers.get(&path).await?;
            let failed = Failed::at(reply.server);
            let mut items = Items::default();
            let mut patience = Patience::new(self.shared.timing.answer);
            while let Some(piece) = patience.next(&mut reply).await.map_err(failed)? {
                let before = self.told();
                let mut updates = Vec::new();
                let mut result = self.take_items(&mut items, &piece, &mut updates);
                let mut pieces = 1;
                while let (Ok(()), Some(piece)) = (&result, more(&mut reply, &updates, pieces)) {
                    result = self.take_items(&mut items, &piece, &mut updates);
                    pieces += 1;
                }
                self.progress(before, &mut patience);
                self.send(updates).await?;
                result.map_err(failed)?;
            }
            self.counters().heard.now();
            let head = items
                .finish()
                .and_then(|head| decode::list_head(&F::object_kind(), &head))
                .map_err(failed)?;
            next_page = head.next_page;
            if next_page.is_none() {
                let Some(version) = head.resource_version else {
                    let message = "a list without a resource version".to_owned();
                    return Err(failed(Failure::Garbled(message)).into());
                };
                self.version = Some(version);
                let mut updates = Vec::new();
                self.known.end_list(&mut updates);
                self.send(updates).await?;
                self.worked(reply.server);
                return self.told_all().await;
            }
        }
        let message = format!("a list in more than {MOST_PAGES} pages");
        Err(self.current(Failure::Garbled(message)).into())
    }

    /// A failure of the server that is asked at present.
    fn current(&self, failure: Failure) -> Failed {
        let server = self.shared.servers.current();
        Failed { server, failure }
    }

    /// How many objects and bookmarks were told so far.
    fn told(&self) -> u64 {
        let counters = self.counters();
        counters.events.load(Ordering::Relaxed) + counters.bookmarks.load(Ordering::Relaxed)
    }

    /// Takes note of it if more was told than `before`.
    fn progress(&self, before: u64, patience: &mut Patience) {
        if self.told() > before {
            self.counters().heard.now();
            patience.told();
        }
    }

    fn take_items(
        &mut self,
        items: &mut Items,
        piece: &[u8],
        updates: &mut Vec<Update>,
    ) -> Result<(), Failure> {
        let counters = self.shared.counters.kind(F::KIND);
        items.push(piece, &mut |item| {
            self.known.seen(decode::object(item), counters, updates);
            Ok(())
        })
    }

    /// Watches from `version` on; `listing` asks for all objects first. Returns when the server
    /// ends the watch, as it does every few minutes.
    async fn watch(&mut self, version: &str, listing: bool) -> Result<(), Stop> {
        let path = self
            .requests
            .watch(version, listing, self.shared.timing.watch)
            .map_err(|failure| self.current(failure))?;
        let mut reply = self.shared.servers.get(&path).await?;
        let failed = Failed::at(reply.server);
        let started = Instant::now();
        count(&self.counters().watches);
        self.counters().heard.now();
        if listing {
            self.known.begin_list();
        } else {
            self.worked(reply.server);
        }
        let mut progress = Progress {
            lines: Lines::default(),
            listing,
            listed: false,
        };
        let mut silent = true;
        let mut patience = Patience::new(self.shared.timing.silence);
        while let Some(piece) = patience.next(&mut reply).await.map_err(failed)? {
            silent = false;
            let before = self.told();
            let was_listing = progress.listing;
            let mut updates = Vec::new();
            let mut result = self.take_lines(&mut progress, &piece, &mut updates);
            let mut pieces = 1;
            while let (Ok(()), Some(piece)) = (&result, more(&mut reply, &updates, pieces)) {
                result = self.take_lines(&mut progress, &piece, &mut updates);
                pieces += 1;
            }
            self.progress(before, &mut patience);
            if !progress.listing {
                self.known.tell_room(&mut updates);
            }
            self.send(updates).await?;
            if std::mem::take(&mut progress.listed) {
                self.worked(reply.server);
                self.told_all().await?;
            }
            result.map_err(failed)?;
            if !progress.listing && self.known.wants_list() {
                self.version = None;
                return Ok(());
            }
            // Not for a list: one that is followed by nothing good must not be repeated quickly.
            if !was_listing && started.elapsed() >= TOO_SOON {
                self.backoff.reset();
            }
        }
        let reason = if !progress.lines.is_between_lines() {
            "it ended in the middle of an event"
        } else if progress.listing {
            UNFINISHED
        } else if silent && started.elapsed() < TOO_SOON {
            "it ended as soon as it began"
        } else {
            if started.elapsed() < TOO_SOON {
                // One that told something, but ended at once: not to be asked again in a loop.
                sleep(wait(&mut self.backoff, None, random())).await;
            }
            return Ok(());
        };
        Err(failed(Failure::BrokeOff(reason.to_owned())).into())
    }

    fn take_lines(
        &mut self,
        progress: &mut Progress,
        piece: &[u8],
        updates: &mut Vec<Update>,
    ) -> Result<(), Failure> {
        let counters = self.shared.counters.kind(F::KIND);
        let Progress {
            lines,
            listing,
            listed,
        } = progress;
        lines.push(piece, &mut |line| {
            let version = match decode::event(line)? {
                Event::Changed(object) => {
                    let version = version_of::<F>(&object);
                    self.known.seen(object, counters, updates);
                    version
                }
                Event::Deleted(object) => {
                    let version = version_of::<F>(&object);
                    self.known.gone(object, counters, updates);
                    version
                }
                Event::Bookmark {
                    resource_version,
                    ends_list,
                } => {
                    count(&counters.bookmarks);
                    if *listing && ends_list {
                        self.known.end_list(updates);
                        *listing = false;
                        *listed = true;
                    }
                    resource_version
                }
                Event::Error(failure) => return Err(failure),
                Event::Unknown => None,
            };
            // Until a list is complete, no version stands for all of it.
            if !*listing && version.is_some() {
                self.version = version;
            }
            Ok(())
        })
    }

    async fn send(&self, updates: Vec<Update>) -> Result<(), Stop> {
        let left_out = u64::try_from(self.known.left_out()).unwrap_or(u64::MAX);
        self.counters().left_out.store(left_out, Ordering::Relaxed);
        if updates.is_empty() {
            return Ok(());
        }
        let sent = self.sender.send(Message::Updates(updates)).await;
        sent.map_err(|_| Stop::Closed)
    }

    /// Everything of this kind has been told. The last kind says so for all.
    async fn told_all(&mut self) -> Result<(), Stop> {
        count(&self.counters().lists);
        if std::mem::replace(&mut self.listed, true) {
            return Ok(());
        }
        if self.shared.missing.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Ok(());
        }
        let sent = self.sender.send(Message::Synced).await;
        sent.map_err(|_| Stop::Closed)
    }

    fn worked(&mut self, server: usize) {
        self.shared.servers.worked(server);
        self.shared.contact.made(self.shared.servers.url(server));
        self.standing.good();
    }
}

/// What has come already, unless enough is waiting to be sent, or was looked through in vain.
fn more(reply: &mut Reply, updates: &[Update], pieces: usize) -> Option<Bytes> {
    if updates.len() >= BATCH || pieces >= BATCH {
        return None;
    }
    reply.ready()
}

fn version_of<F: Followed>(object: &Result<F::Object, Malformed>) -> Option<String> {
    match object {
        Ok(object) => object.metadata().resource_version.clone(),
        Err(malformed) => malformed.resource_version.clone(),
    }
    .filter(|version| !version.is_empty())
}
