//! What the state follows from: the objects of the cluster, which a model folds, or what another
//! brain made of them. Data only: who told it, and who wants the state, it does not know.

use proxy_api::{Batch, Replica, Token};
use proxy_model::{ChangeSet, ClusterEvent, Model, NodeState};

/// Where the state is computed.
pub enum Desired {
    /// Here, from the objects of the cluster.
    Cluster(Box<Model>),
    /// In another brain, which this one keeps to.
    Replica(Box<Replica>),
}

impl Desired {
    /// Folds one event. Returns whether it changed something: nothing where events are folded
    /// elsewhere.
    pub fn apply(&mut self, event: ClusterEvent) -> bool {
        match self {
            Self::Cluster(model) => model.apply(event),
            Self::Replica(_) => false,
        }
    }

    /// Takes what another brain said. Who folds events has none to keep to.
    pub fn replicate(&mut self, batch: Batch) {
        match self {
            Self::Cluster(_) => tracing::error!(
                token = %batch.token,
                "state of another brain ignored: this is a defect, please report it"
            ),
            Self::Replica(replica) => replica.apply(batch),
        }
    }

    /// Which state of another brain this is, if it is one.
    pub fn token(&self) -> Option<Token> {
        match self {
            Self::Cluster(_) => None,
            Self::Replica(replica) => replica.token(),
        }
    }

    /// Brings the state up to date, and returns how it differs from before.
    pub fn update(&mut self) -> ChangeSet {
        match self {
            Self::Cluster(model) => model.update(),
            Self::Replica(replica) => replica.update(),
        }
    }

    /// The state as of the last update.
    pub fn state(&self) -> &NodeState {
        match self {
            Self::Cluster(model) => model.state(),
            Self::Replica(replica) => replica.state(),
        }
    }

    /// The model, for what the state does not tell; `None` where it is elsewhere.
    pub fn cluster(&self) -> Option<&Model> {
        match self {
            Self::Cluster(model) => Some(model),
            Self::Replica(_) => None,
        }
    }
}

impl From<Model> for Desired {
    fn from(model: Model) -> Self {
        Self::Cluster(Box::new(model))
    }
}

impl From<Replica> for Desired {
    fn from(replica: Replica) -> Self {
        Self::Replica(Box::new(replica))
    }
}
