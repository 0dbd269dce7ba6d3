//! Another brain as the source: what it says is to be done on this node, and what is told it in
//! turn. Takes a brain's word for everything but the node that it speaks for. Does not know what
//! becomes of the state.

mod contact;
mod figures;
mod reports;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use proxy_api::{
    Batch, Item, Operation, Target, Token,
    client::{self, Event, Follower},
};
use proxy_model::{Capability, ServiceFailure};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until},
};

use self::reports::Reports;
pub use self::{contact::Contact, figures::figures};
use super::{Message, Stale};
use crate::kept::keep;

/// How long a brain that speaks for another node is left alone.
const REFUSED: Duration = if cfg!(test) {
    Duration::from_millis(50)
} else {
    Duration::from_secs(10)
};

/// A brain that has not told a whole state for so long, and is connected, is worth a word.
const QUIET: Duration = Duration::from_secs(20);

/// A brain that is about to be followed.
#[derive(Debug)]
pub struct BrainSource {
    follower: Follower,
    target: Target,
    node: Option<Arc<str>>,
    contact: Arc<Contact>,
    reports: Reports,
}

/// What the rest of the agent has of the brain that it follows.
#[derive(Debug, Clone)]
pub struct Link {
    contact: Arc<Contact>,
    reports: Reports,
}

impl BrainSource {
    /// The brain that `options` name. It must be for `node`, if one is given.
    pub fn new(options: client::ClientOptions, node: Option<Arc<str>>) -> Self {
        let target = options.target.clone();
        Self {
            contact: Arc::new(Contact::new(target.to_string())),
            reports: Reports::default(),
            // A process that starts knows nothing, whatever an earlier one left in the kernel.
            follower: Follower::new(options, None),
            target,
            node,
        }
    }

    /// Where it is.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// What the rest of the agent asks and reports to.
    pub fn link(&self) -> Link {
        Link {
            contact: Arc::clone(&self.contact),
            reports: self.reports.clone(),
        }
    }

    /// Sends until nobody listens.
    pub async fn run(mut self, sender: mpsc::Sender<Message>) {
        let (clients, connected) = watch::channel(None);
        let reports = self.reports.clone();
        keep("reports to the brain", move || {
            reports.clone().deliver(connected.clone())
        });
        let mut refused = false;
        // When a word is due, if nothing has come by then.
        let mut awaited: Option<Instant> = None;
        loop {
            let event = tokio::select! {
                event = self.follower.next() => event,
                () = sender.closed() => return,
                () = sleep_until(awaited.unwrap_or_else(Instant::now)), if awaited.is_some() => {
                    awaited = None;
                    self.contact.quiet();
                    continue;
                }
            };
            match event {
                // Whether it is the right one shows with the state that it sends.
                Event::Connected if refused => {}
                Event::Connected => {
                    // Found once it says where it is: one that does not know its cluster is silent.
                    self.contact.silent();
                    awaited = Some(Instant::now() + QUIET);
                    clients.send_replace(self.follower.reporter());
                }
                Event::Lost(error) => {
                    awaited = None;
                    clients.send_replace(None);
                    self.contact.lost(&error.to_string());
                }
                Event::Batch(batch) => {
                    awaited = None;
                    let refusal = refusal(self.node.as_deref(), &batch);
                    refused = refusal.is_some();
                    if let Some(reason) = refusal {
                        clients.send_replace(None);
                        self.contact.refused(&reason);
                        self.follower.restart();
                        tokio::select! {
                            () = sleep(REFUSED) => continue,
                            () = sender.closed() => return,
                        }
                    }
                    self.contact.found();
                    if clients.borrow().is_none() {
                        clients.send_replace(self.follower.reporter());
                    }
                    if sender.send(Message::Batch(batch)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// Why `batch` is not for `node`, if it is not. A reset always names the node.
fn refusal(node: Option<&str>, batch: &Batch) -> Option<String> {
    let node = node?;
    let told = batch.operations.iter().find_map(|one| match one {
        Operation::Upsert(Item::Node(facts)) => Some(&facts.node.name),
        _ => None,
    })?;
    (**told != *node).then(|| {
        format!(
            "it serves node {told}, and this is node {node}: follow the brain of this node, or \
             leave out --node-name"
        )
    })
}

impl Link {
    /// Since when the brain cannot be heard, and why; `None` while it can, or before it was tried.
    pub fn stale(&self) -> Option<Stale> {
        self.contact.stale()
    }

    /// For metrics.
    pub fn contact(&self) -> Arc<Contact> {
        Arc::clone(&self.contact)
    }

    /// Tells the brain what became of the state: now, and again after each interruption. A newer
    /// report takes the place of one that was not delivered yet. `in_force` is `None` if what is in
    /// force is not known any better than before. `lacks` is that of the backend which is in use now.
    pub fn report(
        &self,
        lacks: &[Capability],
        in_force: Option<Token>,
        failures: Vec<ServiceFailure>,
        error: Option<String>,
    ) {
        self.reports.replace(lacks, in_force, failures, error);
    }
}

#[cfg(test)]
impl Link {
    /// The newest report.
    pub fn reported(&self) -> Option<proxy_api::Report> {
        self.reports.newest()
    }

    /// Waits until `wanted` is the newest report.
    pub async fn until_reported(&self, wanted: proxy_api::Report) {
        self.reports.until(&wanted).await;
    }
}
