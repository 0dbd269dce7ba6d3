//! The loop that owns the state: one thing at a time, in the order in which it comes in.

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use proxy_model::ServiceFailure;
use tokio::{
    sync::mpsc,
    task::block_in_place,
    time::{Instant, MissedTickBehavior, interval, interval_at, sleep_until},
};

use super::{RunError, observed::Observer, signals::Order};
use crate::{
    admin::{Query, Snapshot},
    backend::choice::Choice,
    cluster::{Message, brain::Link},
    heart::BEAT,
    logging::list,
    own_node,
    pipeline::Pipeline,
    report::{
        AgentFacts, NotProgrammed,
        explain::{Known, explain_served},
    },
    serving::FiguresWanted,
    sinks::Sinks,
};

/// Batches that are taken together at most, so that a flood does not put off the first of it.
const MOST_TOGETHER: usize = 1024;
/// How often the backend is asked whether somebody else was at what it wrote, and may do what it owes.
const WATCH: Duration = Duration::from_secs(1);

/// State, backend, and all that listens to them.
pub struct Owner {
    pipeline: Pipeline,
    sinks: Sinks,
    observer: Observer,
    facts: Facts,
}

/// What [`AgentFacts`] tell and the pipeline does not know.
struct Facts {
    choice: Choice,
    origin: Origin,
    synced: bool,
    events: u64,
    last_sync: Option<Timestamp>,
    repaired: u64,
    /// No node has the own name, as far as the log was told.
    node_missing: bool,
}

/// Where the state, or what it follows from, comes from.
pub struct Origin {
    /// For people.
    pub name: String,
    /// The brain that is followed, if one is.
    pub link: Option<Link>,
    /// What it means that it tells of no Node object with the own name.
    pub nodes: own_node::Nodes,
    /// Whether that brain is told what is in force here: not by one that passes the state on and
    /// programs nothing. It would count as a backend that is always up to date.
    pub reports: bool,
}

/// What comes in.
pub struct Inbox {
    /// From the source.
    pub messages: mpsc::Receiver<Message>,
    /// From the admin socket.
    pub queries: mpsc::Receiver<Query>,
    /// From whoever scrapes.
    pub figures: mpsc::Receiver<FiguresWanted>,
    /// From outside.
    pub orders: mpsc::Receiver<Order>,
}

impl Owner {
    /// An owner that has heard nothing yet.
    pub fn new(
        pipeline: Pipeline,
        sinks: Sinks,
        observer: Observer,
        choice: Choice,
        origin: Origin,
    ) -> Self {
        Self {
            pipeline,
            sinks,
            observer,
            facts: Facts {
                choice,
                origin,
                synced: false,
                events: 0,
                last_sync: None,
                repaired: 0,
                node_missing: false,
            },
        }
    }

    /// Serves until told to stop. The kernel is compared with the state every `sync_period`, and
    /// when told; never without one. `first` is called once, when the first state is in force.
    pub async fn run(
        mut self,
        mut inbox: Inbox,
        sync_period: Option<Duration>,
        first: impl FnOnce(&proxy_model::NodeState),
    ) -> Result<&'static str, RunError> {
        let mut first = Some(first);
        let mut watch = interval(WATCH);
        watch.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let heart = Arc::clone(&self.observer.serving.heart);
        let mut retry: Option<Instant> = None;
        let never = || Instant::now() + Duration::from_hours(24);
        let period = sync_period.unwrap_or(Duration::from_hours(24));
        let mut repairs = interval_at(Instant::now() + period, period);
        repairs.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            heart.idle();
            tokio::select! {
                // Whoever looks from outside sees that this goes round.
                _ = beat.tick() => self.pipeline.summarise(),
                Some(order) = inbox.orders.recv() => match order {
                    Order::Stop(signal) => return Ok(signal),
                    Order::Repair if sync_period.is_none() => {
                        tracing::info!("SIGHUP: a brain programs nothing that could differ");
                    }
                    Order::Repair => {
                        tracing::info!("SIGHUP: comparing the kernel with the state");
                        retry = self.repair(retry)?;
                        repairs.reset();
                    }
                },
                message = inbox.messages.recv() => {
                    let message = message.ok_or(RunError::SourceEnded)?;
                    self.take(message);
                    for _ in 1..MOST_TOGETHER {
                        let Ok(message) = inbox.messages.try_recv() else { break };
                        self.take(message);
                    }
                    // A part of the cluster would make Services that are in force vanish.
                    if self.facts.synced {
                        self.settle();
                        // A backend that just failed is left alone for as long as it asked for.
                        if retry.is_none() {
                            retry = self.advance()?;
                        }
                    }
                }
                Some(query) = inbox.queries.recv() => self.answer(query),
                Some(wanted) = inbox.figures.recv() => {
                    heart.at("counting what the backend has in the kernel");
                    // A scrape that was given up waits for nothing.
                    let backend = self.pipeline.backend();
                    drop(wanted.send((backend.name(), backend.figures())));
                }
                () = sleep_until(retry.unwrap_or_else(never)), if retry.is_some() => {
                    retry = self.advance()?;
                }
                _ = watch.tick(), if sync_period.is_some() => {
                    heart.at("asking the kernel whether another process changed it");
                    let pipeline = &mut self.pipeline;
                    let disturbed = block_in_place(|| {
                        pipeline.tend();
                        pipeline.disturbed()
                    });
                    if disturbed {
                        retry = self.repair(retry)?;
                    }
                }
                _ = repairs.tick(), if sync_period.is_some() => retry = self.repair(retry)?,
            }
            if self.facts.last_sync.is_some()
                && let Some(first) = first.take()
            {
                first(self.pipeline.state());
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Updates(updates) => self.pipeline.fold(updates),
            Message::Synced => self.synced(),
            Message::Batch(batch) => {
                self.pipeline.replicate(batch);
                self.synced();
            }
        }
    }

    fn synced(&mut self) {
        self.facts.synced = true;
        self.observer.serving.metrics.source_synced();
    }

    /// Brings the state up to date with what was taken, and hands it to whoever listens: before
    /// the backend, which may take its time or fail.
    fn settle(&mut self) {
        self.at("computing the state");
        let triggers = block_in_place(|| self.pipeline.settle());
        self.look_for_own_node();
        self.sinks.publish(self.pipeline.state(), &triggers);
    }

    /// Says when no node has the own name, and when that is over. Lists are complete: kubelet may
    /// still register this node, but nothing else will change it.
    fn look_for_own_node(&mut self) {
        // Of a state that another brain computes, that one says so.
        let Some(model) = self.pipeline.cluster() else {
            return;
        };
        let nodes = self.facts.origin.nodes;
        let missing = block_in_place(|| own_node::is_missing(model, nodes));
        if std::mem::replace(&mut self.facts.node_missing, missing) == missing {
            return;
        }
        self.observer.serving.metrics.node_missing(missing);
        let node = &*model.state().node.name;
        if let Some(missing) = own_node::missing(model, nodes) {
            tracing::error!(
                node,
                nodes = %list(&missing.nodes),
                text = missing.text,
                "node not found"
            );
        } else {
            tracing::info!(node, "node found");
        }
    }

    /// Brings the state into force. Returns when to do so again by itself.
    fn advance(&mut self) -> Result<Option<Instant>, RunError> {
        self.observer.serving.queued();
        self.at("bringing the state into force");
        let advance = block_in_place(|| self.pipeline.advance())?;
        self.facts.events += advance.events;
        if let Some(choice) = &advance.chosen {
            self.facts.choice = choice.clone();
            self.observer.serving.metrics.chosen(choice);
        }
        self.look_at_lacks();
        if advance.sync.is_some() && advance.retry().is_none() {
            self.facts.last_sync = Some(Timestamp::now());
        }
        self.observer.advanced(&advance, &self.pipeline);
        self.report();
        Ok(advance.retry().map(|wait| Instant::now() + wait))
    }

    /// Compares and mends. Returns when to advance by itself, as `retry` said so far or sooner.
    fn repair(&mut self, retry: Option<Instant>) -> Result<Option<Instant>, RunError> {
        self.at("comparing the kernel with the state, and repairing it");
        let Some(repair) = block_in_place(|| self.pipeline.repair())? else {
            return Ok(retry);
        };
        self.facts.repaired += repair.differences.len() as u64;
        self.look_at_lacks();
        self.observer.repaired(&repair, &self.pipeline);
        self.report();
        let again = self.pipeline.looks_again().then_some(Duration::ZERO);
        let wait = repair.retry.or(again);
        Ok(wait.map(|wait| Instant::now() + wait).or(retry))
    }

    /// A backend may find out while it serves what it cannot do.
    fn look_at_lacks(&mut self) {
        let lacks = self.pipeline.backend().lacks();
        if lacks != self.facts.choice.lacks {
            self.facts.choice.lacks = lacks.to_vec();
            self.observer.serving.metrics.lacks(&self.facts.choice);
        }
    }

    /// Tells the brain that is followed what became of its state. Waits for nothing.
    fn report(&self) {
        let origin = &self.facts.origin;
        let Some(link) = origin.link.as_ref().filter(|_| origin.reports) else {
            return;
        };
        let pipeline = &self.pipeline;
        let token = pipeline.token().filter(|_| pipeline.in_force());
        let failure = |(key, reason): (&_, &str)| ServiceFailure {
            key: Clone::clone(key),
            reason: reason.to_owned(),
        };
        let failures = pipeline.not_programmed().map(failure).collect();
        link.report(
            &self.facts.choice.lacks,
            token,
            failures,
            pipeline.failure().map(str::to_owned),
        );
    }

    fn answer(&mut self, query: Query) {
        // Whoever asked may have gone away.
        match query {
            Query::State(answer) => drop(answer.send(Snapshot {
                state: self.pipeline.state().clone(),
                agent: self.facts(),
            })),
            Query::Differences(answer) => {
                self.at("comparing the kernel with the state, on request");
                let differences = block_in_place(|| self.pipeline.differences());
                drop(answer.send(differences));
            }
            Query::Explain {
                packet,
                arrival,
                answer,
            } => {
                self.at("explaining what becomes of a packet");
                let known = Known::new(self.pipeline.state(), self.pipeline.cluster());
                drop(answer.send(explain_served(known, &packet, arrival, &self.facts.choice)));
            }
        }
    }

    /// This may take its time.
    fn at(&self, doing: &'static str) {
        self.observer.serving.heart.at(doing);
    }

    fn facts(&self) -> AgentFacts {
        let not_programmed = self.pipeline.not_programmed();
        AgentFacts {
            choice: self.facts.choice.clone(),
            suffices: self.pipeline.suffices(),
            source: self.facts.origin.name.clone(),
            stale: self.facts.origin.link.as_ref().and_then(Link::stale),
            synced: self.facts.synced,
            node_missing: self
                .pipeline
                .cluster()
                .filter(|_| self.facts.synced)
                .and_then(|model| own_node::missing(model, self.facts.origin.nodes)),
            in_force: self.pipeline.in_force(),
            revision: self.pipeline.revision(),
            events: self.facts.events + self.pipeline.waiting_events(),
            last_sync: self.facts.last_sync,
            repaired: self.facts.repaired,
            api: self
                .observer
                .serving
                .clients
                .as_ref()
                .map(|all| all.facts()),
            not_programmed: not_programmed
                .map(|(service, reason)| NotProgrammed {
                    service: service.to_string(),
                    reason: reason.to_owned(),
                })
                .collect(),
        }
    }
}
