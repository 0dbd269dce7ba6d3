//! The newest state, and enough of the past for clients that come back. Never waits for a client.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::SystemTime,
};

use imbl::{OrdMap, Vector};
use proxy_model::NodeState;
use tokio::sync::watch;

use super::{
    changes,
    clients::{ClientStatus, Clients, Programmed},
};
use crate::{Token, Trigger};

/// What the states of the past may hold altogether beyond the newest one, in endpoints (32 bytes
/// each): 2 MiB.
const MOST_PAST_WEIGHT: usize = 65_536;
/// States of the past that are kept.
const MOST_PAST: usize = 1_024;
/// Triggers that are remembered for clients that have not been told them.
const MOST_TRIGGERS: usize = 4_096;

/// Where the owner of the state publishes each new state. Clones are one publisher.
#[derive(Debug, Clone)]
pub struct Publisher {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    instance_id: u64,
    newest: watch::Sender<Option<Newest>>,
    clients: Clients,
}

/// A state that was published. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Published {
    pub revision: u64,
    pub state: NodeState,
}

/// The newest state, and what came before it.
#[derive(Debug, Clone)]
pub struct Newest {
    published: Published,
    past: OrdMap<u64, Past>,
    past_weight: usize,
    triggers: Vector<(u64, Trigger)>,
}

#[derive(Debug, Clone)]
struct Past {
    state: NodeState,
    /// What it alone holds, at most.
    weight: usize,
}

impl Publisher {
    /// A publisher that has no state yet: clients wait. `programmed` is called when a client
    /// reports that it has brought a change of the cluster into force.
    pub fn new(programmed: impl Fn(Programmed<'_>) + Send + Sync + 'static) -> Self {
        let now = SystemTime::now();
        // Keys of a hasher are random: two brains never have one number, in all likelihood.
        let instance_id = RandomState::new()
            .hash_one((now, std::process::id()))
            .max(1);
        Self {
            shared: Arc::new(Shared {
                instance_id,
                newest: watch::Sender::new(None),
                clients: Clients::new(programmed),
            }),
        }
    }

    /// Makes `state` the newest one, if it is another one. `triggers`: when the cluster changed
    /// what is new in it.
    pub fn publish(&self, state: &NodeState, triggers: Vec<Trigger>) {
        let published = self.shared.newest.send_if_modified(|newest| {
            let next = match newest {
                None => Some(Newest::first(state.clone())),
                Some(before) => before.followed_by(state.clone(), triggers),
            };
            next.map(|next| *newest = Some(next)).is_some()
        });
        if published {
            self.shared.clients.published(self.revision());
        }
    }

    /// Number of the newest state; 0 before the first.
    pub fn revision(&self) -> u64 {
        let newest = self.shared.newest.borrow();
        newest.as_ref().map_or(0, Newest::revision)
    }

    /// Which brain this is, and which state it has published.
    pub fn token(&self) -> Token {
        self.token_of(self.revision())
    }

    /// What is known of each client, in the order of their names.
    pub fn clients(&self) -> Vec<ClientStatus> {
        self.shared.clients.all()
    }

    /// How many reports clients have made; changes with each, so that a caller can wait for one.
    pub fn reports(&self) -> watch::Receiver<u64> {
        self.shared.clients.reports()
    }

    pub(super) fn token_of(&self, revision: u64) -> Token {
        Token {
            instance_id: self.shared.instance_id,
            revision,
        }
    }

    pub(super) fn follow(&self) -> watch::Receiver<Option<Newest>> {
        self.shared.newest.subscribe()
    }

    pub(super) fn registry(&self) -> &Clients {
        &self.shared.clients
    }

    /// The revision that `token` stands for, if it is one of this brain's.
    pub(super) fn revision_of(&self, token: Token) -> Option<u64> {
        let ours = token.instance_id == self.shared.instance_id;
        (ours && (1..=self.revision()).contains(&token.revision)).then_some(token.revision)
    }

    /// The state that had `revision`, if it is still known.
    pub(super) fn at(&self, revision: u64) -> Option<Published> {
        let newest = self.shared.newest.borrow();
        let state = newest.as_ref()?.at(revision)?.clone();
        Some(Published { revision, state })
    }

    /// When the cluster changed what revisions after `after` brought, up to `until`.
    pub(super) fn triggers(&self, after: u64, until: u64) -> Vec<Trigger> {
        let newest = self.shared.newest.borrow();
        let newest = newest.as_ref();
        newest.map_or_else(Vec::new, |newest| newest.triggers(after, until))
    }
}

impl Newest {
    fn first(state: NodeState) -> Self {
        Self {
            published: Published { revision: 1, state },
            past: OrdMap::new(),
            past_weight: 0,
            // A first state holds all that the cluster ever did: there is nothing to measure.
            triggers: Vector::new(),
        }
    }

    /// The next one; `None` if the states are alike.
    fn followed_by(&self, state: NodeState, triggers: Vec<Trigger>) -> Option<Self> {
        let changes = changes::between(&self.published.state, &state);
        if changes.is_empty() {
            return None;
        }
        let weight = changes::weight(&self.published.state, &changes);
        let revision = self.revision() + 1;
        let mut next = self.clone();
        let past = Past {
            state: self.published.state.clone(),
            weight,
        };
        next.past.insert(self.revision(), past);
        next.past_weight += weight;
        while next.past_weight > MOST_PAST_WEIGHT || next.past.len() > MOST_PAST {
            let Some((oldest, past)) = next.past.get_min().map(|(at, past)| (*at, past.weight))
            else {
                break;
            };
            next.past.remove(&oldest);
            next.past_weight -= past;
        }
        next.triggers
            .extend(triggers.into_iter().map(|one| (revision, one)));
        let too_many = next.triggers.len().saturating_sub(MOST_TRIGGERS);
        next.triggers = next.triggers.skip(too_many);
        next.published = Published { revision, state };
        Some(next)
    }

    /// Number of the newest state.
    pub fn revision(&self) -> u64 {
        self.published.revision
    }

    /// The newest state. It alone: who waits for a slow client must not hold the past as well.
    pub fn published(&self) -> Published {
        self.published.clone()
    }

    fn at(&self, revision: u64) -> Option<&NodeState> {
        if revision == self.revision() {
            return Some(&self.published.state);
        }
        self.past.get(&revision).map(|past| &past.state)
    }

    fn triggers(&self, after: u64, until: u64) -> Vec<Trigger> {
        // The newest are last, and few clients miss more than those.
        let newer = self.triggers.iter().rev();
        let mut missed: Vec<_> = newer
            .take_while(|(at, _)| *at > after)
            .filter(|(at, _)| *at <= until)
            .map(|(_, one)| *one)
            .collect();
        missed.reverse();
        missed
    }
}
