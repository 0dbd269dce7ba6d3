//! Follows one kind of objects: lists them, watches them from there, and starts over as far as
//! it must whenever something fails. Decides what is sent and when to try again; what objects
//! mean is `known`'s, and bytes are `servers`'.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use ::kube::{
    api::{ListParams, WatchParams},
    core::Request,
};
use bytes::Bytes;
use http::Uri;
use tokio::{sync::mpsc, time::sleep};

use super::{
    Timing,
    backoff::{Backoff, random},
    contact::{Contact, Standing},
    counters::{Counters, KindCounters, Reason, count},
    decode::{self, Event, Malformed},
    failure::Failure,
    frames::{Items, Lines},
    kind::Followed,
    known::Known,
    servers::{Failed, Reply, Servers},
};
use crate::cluster::{Message, Update, object::Object};

/// Objects per page, for servers that do not answer from their watch cache; those that do send
/// all at once.
const PAGE: u32 = 500;
/// As many updates are sent at once at most, if they are there at once.
const BATCH: usize = 256;
/// A watch that ends sooner than this, and without a word, is a failure.
const TOO_SOON: Duration = Duration::from_secs(1);

/// What the followers of all kinds share.
pub(super) struct Shared {
    pub(super) servers: Servers,
    pub(super) counters: Arc<Counters>,
    pub(super) timing: Timing,
    pub(super) contact: Contact,
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
    /// Field selector.
    fields: Option<String>,
    known: Known<F>,
    /// Whether lists are asked for as streams.
    streaming: bool,
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
        Self {
            shared,
            sender,
            fields,
            known: Known::new(),
            streaming: true,
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
                None if self.streaming => {
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
        loop {
            let path = self.list_path(next_page.take());
            let mut reply = self.shared.servers.get(&path).await?;
            let failed = Failed::at(reply.server);
            let mut items = Items::default();
            let limit = self.shared.timing.answer;
            while let Some(piece) = reply.next(limit).await.map_err(failed)? {
                let mut updates = Vec::new();
                let mut result = self.take_items(&mut items, &piece, &mut updates);
                while let (Ok(()), Some(piece)) = (&result, more(&mut reply, &updates)) {
                    result = self.take_items(&mut items, &piece, &mut updates);
                }
                self.send(updates).await?;
                result.map_err(failed)?;
            }
            let head = items
                .finish()
                .and_then(|head| decode::list_head(&head))
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
        let path = self.watch_path(version, listing);
        let mut reply = self.shared.servers.get(&path).await?;
        let failed = Failed::at(reply.server);
        let started = Instant::now();
        count(&self.counters().watches);
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
        let silence = self.shared.timing.silence;
        while let Some(piece) = reply.next(silence).await.map_err(failed)? {
            silent = false;
            let mut updates = Vec::new();
            let mut result = self.take_lines(&mut progress, &piece, &mut updates);
            while let (Ok(()), Some(piece)) = (&result, more(&mut reply, &updates)) {
                result = self.take_lines(&mut progress, &piece, &mut updates);
            }
            self.send(updates).await?;
            if std::mem::take(&mut progress.listed) {
                self.worked(reply.server);
                self.told_all().await?;
            }
            result.map_err(failed)?;
            if !progress.listing {
                self.backoff.reset();
            }
        }
        let reason = if !progress.lines.is_between_lines() {
            "it ends in the middle of an event"
        } else if progress.listing {
            "it ends in the middle of a streaming list"
        } else if silent && started.elapsed() < TOO_SOON {
            "it ends as soon as it began"
        } else {
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
        self.shared.contact.made(self.shared.servers.url(server));
        self.standing.good();
    }

    /// Waits until it is time to try again, in the way that makes sense after `failed`.
    async fn recover(&mut self, failed: Failed) -> Result<(), Stop> {
        let failure = &failed.failure;
        count(self.shared.counters.error(failure.reason()));
        let code = failure.code();
        let starting = self.version.is_none();
        let no_streams = matches!(code, Some(400 | 422)) || matches!(failure, Failure::Silent(_));
        if starting && self.streaming && no_streams {
            self.streaming = false;
            let kind = F::KIND;
            tracing::info!(%kind, reason = %failure, "no streaming lists, plain ones are used");
            if code.is_some() {
                return Ok(());
            }
        }
        if F::OPTIONAL && matches!(code, Some(403 | 404)) {
            return self.do_without(failure).await;
        }
        let moved = self.shared.servers.failed(&failed);
        let url = self.shared.servers.url(failed.server);
        if failure.is_connection() {
            self.shared.contact.lost(url, failure);
        } else {
            self.standing.bad(url, failure);
        }
        if is_stale(failure) || self.is_mute(failure) {
            self.version = None;
        }
        let wait = self.backoff.wait(failure.retry_after(), random());
        let first = self.shared.timing.first_wait;
        let wait = if moved && failure.retry_after().is_none() {
            wait.min(first.mul_f64(random()))
        } else {
            wait
        };
        tracing::debug!(kind = %F::KIND, reason = %failure, ?wait, "trying again");
        sleep(wait).await;
        Ok(())
    }

    /// Whether watches from the present version tell nothing, not even bookmarks. So does a server
    /// whose cluster was set back to an earlier state: it waits for that version to come.
    fn is_mute(&mut self, failure: &Failure) -> bool {
        if !matches!(failure, Failure::Silent(_)) || self.version.is_none() {
            return false;
        }
        let before = std::mem::replace(&mut self.silent_from, self.version.clone());
        before == self.version
    }

    /// The cluster has no such objects, or does not show them: then there are none.
    async fn do_without(&mut self, failure: &Failure) -> Result<(), Stop> {
        if failure.reason() == Reason::Forbidden {
            self.standing.bad(
                self.shared.servers.url(self.shared.servers.current()),
                failure,
            );
        }
        let mut updates = Vec::new();
        self.known.begin_list();
        self.known.end_list(&mut updates);
        self.send(updates).await?;
        self.version = None;
        self.told_all().await?;
        sleep(self.shared.timing.absent).await;
        Ok(())
    }

    fn list_path(&self, next_page: Option<String>) -> Uri {
        let first_page = next_page.is_none();
        let params = ListParams {
            label_selector: F::LABELS.map(str::to_owned),
            field_selector: self.fields.clone(),
            limit: Some(PAGE),
            continue_token: next_page,
            ..ListParams::default()
        };
        let request = Request::new(F::path())
            .list(&params)
            .expect("these parameters are valid");
        let path = request.into_parts().0.uri;
        if self.listed || !first_page {
            return path;
        }
        // From memory, which may be a little old. `kube` would leave this out beside a limit;
        // servers that have all in memory ignore the limit instead.
        format!("{path}&resourceVersion=0")
            .parse()
            .expect("a parameter keeps a URI valid")
    }

    fn watch_path(&self, version: &str, listing: bool) -> Uri {
        // Not all nodes come back in the same moment.
        let timeout = self
            .shared
            .timing
            .watch
            .mul_f64(1.0 + random())
            .as_secs()
            .max(1);
        let params = WatchParams {
            label_selector: F::LABELS.map(str::to_owned),
            field_selector: self.fields.clone(),
            timeout: Some(u32::try_from(timeout).unwrap_or(u32::MAX)),
            bookmarks: true,
            send_initial_events: listing,
        };
        let request = Request::new(F::path()).watch(&params, version);
        request
            .expect("these parameters are valid")
            .into_parts()
            .0
            .uri
    }
}

/// What has come already, unless enough is waiting to be sent.
fn more(reply: &mut Reply, updates: &[Update]) -> Option<Bytes> {
    if updates.len() >= BATCH {
        return None;
    }
    reply.ready()
}

/// Whether what was known does not lead on from here, and everything must be listed again.
fn is_stale(failure: &Failure) -> bool {
    match failure {
        Failure::Expired(_) | Failure::Garbled(_) => true,
        // Of a cluster that was set back to an earlier state.
        Failure::Refused {
            code: 504, message, ..
        } => message.contains("Too large resource version"),
        Failure::Refused { code, .. } => matches!(code, 400 | 422),
        _ => false,
    }
}

fn version_of<F: Followed>(object: &Result<F::Object, Malformed>) -> Option<String> {
    match object {
        Ok(object) => object.metadata().resource_version.clone(),
        Err(malformed) => malformed.resource_version.clone(),
    }
    .filter(|version| !version.is_empty())
}
