//! Tells one client what it misses, for as long as it listens.

use proxy_model::NodeState;
use tokio::sync::{mpsc, watch};
use tonic::Status;

use super::{
    changes::{self, Whole},
    clients::Stream,
    publisher::{Newest, Published, Publisher},
};
use crate::{Item, Operation, Token, convert, wire};

/// Messages between a feed and its connection. Small: what waits there can no longer coalesce.
pub const QUEUE: usize = 16;

/// Where the messages of one call go.
type Sender<T> = mpsc::Sender<Result<T, Status>>;

/// The client is gone.
#[derive(Debug)]
pub struct Gone;

/// Answers a Watch.
pub async fn watch(
    publisher: Publisher,
    stream: Stream,
    resume: Option<Token>,
    sender: Sender<wire::Operation>,
) {
    // Held until the client is gone.
    let _stream = stream;
    let Err(Gone) = feed(&publisher, resume, &sender).await;
}

async fn feed(
    publisher: &Publisher,
    resume: Option<Token>,
    sender: &Sender<wire::Operation>,
) -> Result<std::convert::Infallible, Gone> {
    let mut states = publisher.follow();
    let resume = resume.and_then(|token| publisher.revision_of(token));
    unlike(&mut states, None, sender).await?;
    let mut has = resume.and_then(|revision| publisher.at(revision));
    loop {
        let at = has.as_ref().map(|has| has.revision);
        let now = unlike(&mut states, at, sender).await?;
        let triggers = match has.take() {
            None => {
                whole(now.state.clone(), sender).await?;
                Vec::new()
            }
            Some(before) => {
                let at = before.revision;
                let operations = changes::between(&before.state, &now.state);
                // It may be the last who knows this state.
                drop(before);
                for one in operations {
                    send(sender, operation(&one)).await?;
                }
                publisher.triggers(at, now.revision)
            }
        };
        let sync = wire::Sync {
            token: Some(publisher.token_of(now.revision).into()),
            triggers: triggers.into_iter().map(convert::encode::trigger).collect(),
        };
        send(sender, wire::operation::Operation::Sync(sync)).await?;
        has = Some(now);
    }
}

/// Answers a Next.
pub async fn next(
    publisher: Publisher,
    stream: Stream,
    seen: Option<Token>,
    sender: Sender<wire::NextPart>,
) {
    let _stream = stream;
    let Err(Gone) = async {
        let seen = seen.and_then(|token| publisher.revision_of(token));
        let now = unlike(&mut publisher.follow(), seen, &sender).await?;
        let token = publisher.token_of(now.revision);
        let mut items = Whole::of(now.state);
        send(&sender, wire::next_part::Part::Next(token.into())).await?;
        loop {
            let some = items.next_items();
            if some.is_empty() {
                return Err(Gone);
            }
            for item in some {
                let item = convert::encode::item(&item);
                send(&sender, wire::next_part::Part::Item(item)).await?;
            }
        }
    }
    .await
    .map(|never: std::convert::Infallible| never);
}

/// Waits for a state that has another revision.
async fn unlike<T>(
    states: &mut watch::Receiver<Option<Newest>>,
    seen: Option<u64>,
    sender: &Sender<T>,
) -> Result<Published, Gone> {
    let other = states.wait_for(|newest| {
        newest
            .as_ref()
            .is_some_and(|newest| Some(newest.revision()) != seen)
    });
    tokio::select! {
        newest = other => {
            newest.ok().and_then(|newest| Some(newest.as_ref()?.published())).ok_or(Gone)
        },
        () = sender.closed() => Err(Gone),
    }
}

async fn whole(state: NodeState, sender: &Sender<wire::Operation>) -> Result<(), Gone> {
    send(sender, wire::operation::Operation::Reset(wire::Reset {})).await?;
    let mut items = Whole::of(state);
    loop {
        let some = items.next_items();
        if some.is_empty() {
            return Ok(());
        }
        for item in &some {
            send(sender, upsert(item)).await?;
        }
    }
}

/// An item as it is sent.
pub fn upsert(item: &Item) -> wire::Operation {
    wire::operation::Operation::Upsert(convert::encode::item(item)).into()
}

fn operation(operation: &Operation) -> wire::Operation {
    match operation {
        Operation::Upsert(item) => upsert(item),
        Operation::Delete(key) => {
            wire::operation::Operation::Delete(convert::encode::key(key)).into()
        }
    }
}

async fn send<T>(sender: &Sender<T>, message: impl Into<T>) -> Result<(), Gone> {
    sender.send(Ok(message.into())).await.map_err(|_| Gone)
}

impl From<wire::operation::Operation> for wire::Operation {
    fn from(operation: wire::operation::Operation) -> Self {
        Self {
            operation: Some(operation),
        }
    }
}

impl From<wire::next_part::Part> for wire::NextPart {
    fn from(part: wire::next_part::Part) -> Self {
        Self { part: Some(part) }
    }
}
