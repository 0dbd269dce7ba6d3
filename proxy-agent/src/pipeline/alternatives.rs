//! What may take the place of the backend. The pipeline decides when; which there are and how they
//! are opened, it does not know.

use std::collections::BTreeSet;

use proxy_model::{Backend, Capability, NodeState};

use crate::backend::choice::Choice;

/// The backends that an agent may use.
pub trait Alternatives: Send {
    /// One that is not in use, and lacks none of `needs`. Opened; nothing leads to it yet.
    fn better(&mut self, needs: &[Capability]) -> Option<Box<dyn Backend>>;

    /// The backend in use can never serve on this host, for `reason`: it is not used again. The next
    /// one that can be used, opened; the error says of every one why it cannot, and what to do.
    fn instead(&mut self, reason: &str) -> Result<Box<dyn Backend>, String>;

    /// The backend called `name` has the state in force, for the first time or for the first time
    /// after another one. Takes away what others left. Returns the choice if it is another one.
    fn serves(&mut self, name: &str) -> Option<Choice>;
}

/// All that Services of `state` need of a backend.
pub(super) fn needs(state: &NodeState) -> Vec<Capability> {
    let services = state.services.iter();
    let needs: BTreeSet<_> = services
        .flat_map(|(key, service)| service.needs(key))
        .collect();
    needs.into_iter().collect()
}
