//! What the state follows from: the objects of the cluster, which a model folds. Data only: who told
//! it, and who wants the state, it does not know.

use proxy_model::{ChangeSet, ClusterEvent, Model, NodeState};

/// Where the state is computed.
pub enum Mind {
    /// Here, from the objects of the cluster.
    Cluster(Box<Model>),
}

impl Mind {
    /// Folds one event. Returns whether it changed something.
    pub fn apply(&mut self, event: ClusterEvent) -> bool {
        match self {
            Self::Cluster(model) => model.apply(event),
        }
    }

    /// Brings the state up to date, and returns how it differs from before.
    pub fn update(&mut self) -> ChangeSet {
        match self {
            Self::Cluster(model) => model.update(),
        }
    }

    /// The state as of the last update.
    pub fn state(&self) -> &NodeState {
        match self {
            Self::Cluster(model) => model.state(),
        }
    }

    /// The model, for what the state does not tell; `None` where it is elsewhere.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "there will be minds that follow another brain"
    )]
    pub fn cluster(&self) -> Option<&Model> {
        match self {
            Self::Cluster(model) => Some(model),
        }
    }
}

impl From<Model> for Mind {
    fn from(model: Model) -> Self {
        Self::Cluster(Box::new(model))
    }
}
