//! What may take the place of the backend. The pipeline decides when; which there are and how they
//! are opened, it does not know.

use std::{collections::BTreeSet, fmt};

use proxy_model::{Backend, Capability, NodeState, ServicePortKey};
use thiserror::Error;

use crate::backend::choice::{Choice, NoBackend};

/// The backends that an agent may use.
pub trait Alternatives: Send {
    /// One that is not in use, and lacks nothing of what Services need and what decides. Opened;
    /// nothing leads to it yet.
    fn better(&mut self, wanting: Wanting) -> Option<Box<dyn Backend>>;

    /// The backend in use can never serve on this host, for `reason`: it is not used again. The next
    /// one that can be used, opened.
    fn instead(&mut self, reason: &str) -> Result<Box<dyn Backend>, NoneLeft>;

    /// The backend called `name` has the state in force, for the first time or for the first time
    /// after another one: what others left is taken away. Does not wait for that.
    fn retire_others(&mut self, name: &str);

    /// Why the backend called `name` serves, if that is another one than was said before.
    fn chosen(&mut self, name: &str) -> Option<Choice>;
}

/// Why no other backend takes the place of one that can never serve on this host.
#[derive(Debug, Error)]
pub enum NoneLeft {
    /// There was none to choose from.
    #[error("{reason}")]
    Only {
        /// Why the one there is cannot serve, and what to do.
        reason: String,
    },
    /// None of the others can be used either.
    #[error(transparent)]
    OfAll(#[from] NoBackend),
}

/// Why another backend is looked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanting {
    /// All that Services need and what decides.
    pub needs: Vec<Capability>,
    /// What of it the backend in use lacks.
    pub missing: Vec<Capability>,
    /// Service ports that miss it, the first few.
    pub services: Vec<ServicePortKey>,
    /// How many there are.
    pub count: usize,
}

impl fmt::Display for Wanting {
    /// `shop/web/TCP/IPv4 and 3 more need external-traffic, sctp`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |all: &[ServicePortKey]| -> Vec<String> {
            all.iter().map(ToString::to_string).collect()
        };
        f.write_str(&names(&self.services).join(", "))?;
        match self.count.saturating_sub(self.services.len()) {
            0 if self.count == 1 => f.write_str(" needs ")?,
            0 => f.write_str(" need ")?,
            more => write!(f, " and {more} more need ")?,
        }
        let missing: Vec<_> = self.missing.iter().map(|one| one.as_str()).collect();
        f.write_str(&missing.join(", "))
    }
}

/// All that Services of `state` need of a backend, and that decides which one serves.
pub(super) fn needs(state: &NodeState) -> Vec<Capability> {
    let services = state.services.iter();
    let needs: BTreeSet<_> = services
        .flat_map(|(key, service)| state.needs(key, service))
        .filter(|capability| capability.decides())
        .collect();
    needs.into_iter().collect()
}
