//! The loop that owns the state: one thing at a time, in the order in which it comes in.

mod layers;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::{
    sync::mpsc,
    task::block_in_place,
    time::{Instant, Interval, MissedTickBehavior, interval, interval_at, sleep_until},
};

use super::{RunError, observed::Observer, signals::Order};
use crate::{
    admin::{Query, Snapshot},
    backend::choice::Choice,
    cluster::{Message, brain::Link},
    heart::BEAT,
    logging::list,
    own_node,
    pipeline::{Pipeline, Which},
    report::{
        AgentFacts,
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

/// Ticks with this period, for the first time when one is over.
fn every(period: Duration) -> Interval {
    let mut interval = interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
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

    /// Serves until an order ends it, and returns that. The kernel is compared with the state every `sync_period`, and
    /// when told; never without one. `first` is called once, when the first state is in force.
    pub async fn run(
        mut self,
        mut inbox: Inbox,
        sync_period: Option<Duration>,
        first: impl FnOnce(&proxy_model::NodeState),
    ) -> Result<Order, RunError> {
        let mut first = Some(first);
        let mut watch = interval(WATCH);
        watch.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let heart = Arc::clone(&self.observer.serving.heart);
        let never = || Instant::now() + Duration::from_hours(24);
        let period = sync_period.unwrap_or(Duration::from_hours(24));
        let mut repairs = every(period);
        loop {
            heart.idle();
            // A layer that failed is left alone for as long as it asked for; the others are not.
            let due = self.pipeline.due().map(Instant::from_std);
            tokio::select! {
                // Whoever looks from outside sees that this goes round.
                _ = beat.tick() => self.pipeline.summarise(),
                Some(order) = inbox.orders.recv() => match order {
                    Order::Stop(_) | Order::Anew(_) => return Ok(order),
                    Order::SyncPeriod(period) => {
                        self.observer.sync_period(period);
                        repairs = every(period);
                    }
                    Order::Repair if sync_period.is_none() => {
                        tracing::info!("SIGHUP: a brain programs nothing that could differ");
                    }
                    Order::Repair => {
                        tracing::info!("SIGHUP: comparing the kernel with the state");
                        self.pipeline.hurry(Instant::now().into_std());
                        self.repair(Which::All);
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
                        self.advance()?;
                    }
                }
                Some(query) = inbox.queries.recv() => self.answer(query),
                Some(wanted) = inbox.figures.recv() => {
                    heart.at("counting what the backends have in the kernel");
                    let layers = self.pipeline.layers();
                    let figures = layers.map(|layer| (layer.name(), layer.figures()));
                    // A scrape that was given up waits for nothing.
                    drop(wanted.send(figures.collect()));
                }
                () = sleep_until(due.unwrap_or_else(never)), if due.is_some() => self.advance()?,
                _ = watch.tick(), if sync_period.is_some() => {
                    heart.at("asking the kernel whether another process changed it");
                    block_in_place(|| self.pipeline.tend());
                    self.look_at_lacks();
                    self.repair(Which::Disturbed);
                }
                _ = repairs.tick(), if sync_period.is_some() => self.repair(Which::All),
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
        self.observer.serving.source_synced();
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

    /// Brings the state into force.
    fn advance(&mut self) -> Result<(), RunError> {
        self.observer.serving.queued();
        self.at("bringing the state into force");
        let now = Instant::now().into_std();
        let advance = block_in_place(|| self.pipeline.advance(now))?;
        self.facts.events += advance.events;
        if let Some(choice) = &advance.chosen {
            self.facts.choice = choice.clone();
            self.observer.serving.metrics.chosen(choice);
        }
        self.look_at_lacks();
        if advance.sync.is_some() {
            self.facts.last_sync = Some(Timestamp::now());
        }
        self.observer.advanced(&advance, &self.pipeline);
        self.report();
        Ok(())
    }

    /// Compares and mends.
    fn repair(&mut self, which: Which) {
        self.at("comparing the kernel with the state, and repairing it");
        let now = Instant::now().into_std();
        let Some(repair) = block_in_place(|| self.pipeline.repair(which, now)) else {
            return;
        };
        let mended = repair.differences.iter().map(|(_, all)| all.len() as u64);
        self.facts.repaired += mended.sum::<u64>();
        self.look_at_lacks();
        self.observer.repaired(&repair, &self.pipeline);
        self.report();
    }

    /// What is lacking changes with the layers that serve, and with what one finds out.
    fn look_at_lacks(&mut self) {
        let lacks = self.pipeline.lacks();
        if lacks != self.facts.choice.lacks {
            self.facts.choice.lacks = lacks;
            self.observer.serving.metrics.lacks(&self.facts.choice);
            self.observer.health_checks(&self.pipeline);
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
        link.report(
            &self.facts.choice.lacks,
            token,
            layers::failures(pipeline),
            layers::failure(pipeline),
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
                let compared = block_in_place(|| self.pipeline.differences());
                drop(answer.send(compared));
            }
            Query::Explain {
                packet,
                arrival,
                answer,
            } => {
                self.at("explaining what becomes of a packet");
                let known = Known::new(self.pipeline.state(), self.pipeline.cluster());
                let in_force = layers::in_force(&self.pipeline, &self.facts.choice);
                drop(answer.send(explain_served(known, &packet, arrival, &in_force)));
            }
        }
    }

    /// This may take its time.
    fn at(&self, doing: &'static str) {
        self.observer.serving.heart.at(doing);
    }

    fn facts(&self) -> AgentFacts {
        AgentFacts {
            layers: layers::facts(&self.pipeline),
            not_programmed: layers::not_programmed(&self.pipeline),
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
        }
    }
}
