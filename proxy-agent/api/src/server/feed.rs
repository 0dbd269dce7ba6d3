//! Tells one client what it misses, for as long as it listens.

use proxy_model::NodeState;
use tokio::sync::watch;

use super::{
    answers::Sender,
    changes::{self, AT_A_TIME, Whole},
    clients::Stream,
    publisher::{Newest, Published, Publisher},
};
use crate::{Item, Operation, Token, convert, wire};

/// A step of a Watch, before it is a message.
#[derive(Debug)]
pub enum Step {
    Reset,
    Change(Operation),
    Sync(wire::Sync),
}

/// A part of an answer to Next, before it is a message.
#[derive(Debug)]
pub enum Part {
    Next(Token),
    Item(Item),
}

/// The client is gone.
#[derive(Debug)]
pub struct Gone;

/// Answers a Watch.
pub async fn watch(
    publisher: Publisher,
    stream: Stream,
    resume: Option<Token>,
    sender: Sender<Step>,
) {
    // Held until the client is gone.
    let _stream = stream;
    let Err(Gone) = feed(&publisher, resume, &sender).await;
}

async fn feed(
    publisher: &Publisher,
    resume: Option<Token>,
    sender: &Sender<Step>,
) -> Result<std::convert::Infallible, Gone> {
    let mut states = publisher.follow();
    let resume = resume.and_then(|token| publisher.revision_of(token));
    // The first answer comes also if nothing is new: it says that this brain knows its cluster, and
    // that the client has what it knows.
    let mut now = unlike(&mut states, None, sender).await?;
    let mut has = resume.and_then(|revision| publisher.at(revision));
    loop {
        let (mut steps, triggers) = match has.take() {
            None => {
                whole(now.state.clone(), sender).await?;
                (Vec::new(), Vec::new())
            }
            Some(before) => {
                let at = before.revision;
                let operations = changes::between(&before.state, &now.state);
                // It may be the last who knows this state.
                drop(before);
                let rest = all_but_the_last(operations, sender).await?;
                (rest, publisher.triggers(at, now.revision))
            }
        };
        steps.push(Step::Sync(wire::Sync {
            token: Some(publisher.token_of(now.revision).into()),
            triggers: triggers.into_iter().map(convert::encode::trigger).collect(),
        }));
        send(sender, steps).await?;
        let told = now.revision;
        has = Some(now);
        now = unlike(&mut states, Some(told), sender).await?;
    }
}

/// Sends operations, and returns the last few of them: the end of the batch goes with those.
async fn all_but_the_last(
    operations: Vec<Operation>,
    sender: &Sender<Step>,
) -> Result<Vec<Step>, Gone> {
    let mut steps = Vec::with_capacity(operations.len().min(AT_A_TIME) + 1);
    for operation in operations {
        if steps.len() == AT_A_TIME {
            send(sender, std::mem::take(&mut steps)).await?;
        }
        steps.push(Step::Change(operation));
    }
    Ok(steps)
}

/// Answers a Next.
pub async fn next(publisher: Publisher, stream: Stream, seen: Option<Token>, sender: Sender<Part>) {
    let _stream = stream;
    let Err(Gone) = async {
        let seen = seen.and_then(|token| publisher.revision_of(token));
        let now = unlike(&mut publisher.follow(), seen, &sender).await?;
        let token = publisher.token_of(now.revision);
        let mut items = Whole::of(now.state);
        send(&sender, vec![Part::Next(token)]).await?;
        loop {
            let some = items.next_items();
            if some.is_empty() {
                return Err(Gone);
            }
            send(&sender, some.into_iter().map(Part::Item).collect()).await?;
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

async fn whole(state: NodeState, sender: &Sender<Step>) -> Result<(), Gone> {
    send(sender, vec![Step::Reset]).await?;
    let mut items = Whole::of(state);
    loop {
        let some = items.next_items();
        if some.is_empty() {
            return Ok(());
        }
        let upsert = |item| Step::Change(Operation::Upsert(item));
        send(sender, some.into_iter().map(upsert).collect()).await?;
    }
}

async fn send<P>(sender: &Sender<P>, parts: Vec<P>) -> Result<(), Gone> {
    sender.send(parts).await.map_err(|_| Gone)
}

/// An item as it is sent.
pub fn upsert(item: &Item) -> wire::Operation {
    wire::operation::Operation::Upsert(convert::encode::item(item)).into()
}

impl From<Step> for wire::Operation {
    fn from(step: Step) -> Self {
        use wire::operation::Operation as To;
        match step {
            Step::Reset => To::Reset(wire::Reset {}).into(),
            Step::Change(Operation::Upsert(item)) => upsert(&item),
            Step::Change(Operation::Delete(key)) => To::Delete(convert::encode::key(&key)).into(),
            Step::Sync(sync) => To::Sync(sync).into(),
        }
    }
}

impl From<wire::operation::Operation> for wire::Operation {
    fn from(operation: wire::operation::Operation) -> Self {
        Self {
            operation: Some(operation),
        }
    }
}

impl From<Part> for wire::NextPart {
    fn from(part: Part) -> Self {
        use wire::next_part::Part as To;
        let part = match part {
            Part::Next(token) => To::Next(token.into()),
            Part::Item(item) => To::Item(convert::encode::item(&item)),
        };
        Self { part: Some(part) }
    }
}
