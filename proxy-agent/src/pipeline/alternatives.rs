//! What may take the place of a layer that cannot serve. The pipeline decides when; which backends
//! there are and how they are opened, it does not know.

use proxy_model::Backend;
use thiserror::Error;

use crate::backend::choice::{Choice, NoBackend};

/// What an agent has besides the layers in use.
pub trait Alternatives: Send {
    /// The layer called `name` can never serve on this host, for `reason`: it is not used again. An
    /// error if the node cannot do without it.
    fn instead(&mut self, name: &str, reason: &str) -> Result<Instead, NoneLeft>;

    /// The layers with these names have a state in force, and there are no others: what else is on
    /// this host is removed. Does not wait for that.
    fn retire_all_but(&mut self, names: &[&'static str]);
}

/// What takes the place of a layer.
pub struct Instead {
    /// The next backend for it; `None` if the other layers go on without it.
    pub backend: Option<Box<dyn Backend>>,
    /// What the node uses now, and why.
    pub choice: Choice,
}

/// Why nothing takes the place of a layer that can never serve on this host.
#[derive(Debug, Error)]
pub enum NoneLeft {
    /// It is required.
    #[error("{reason}")]
    Required {
        /// Why it cannot serve, and what to do.
        reason: String,
    },
    /// None of the others can be used either.
    #[error(transparent)]
    OfAll(#[from] NoBackend),
}
