//! What the agent knows about a backend, open or not ([`Descriptor`]), and code that backends
//! share. Names no backend, and does not depend on the agent.

pub mod connections;
mod conntrack_observer;
mod descriptor;
mod duration;
mod every_kind;
mod flag;
mod keeper;
mod kind;
mod open;
mod requirement;
mod retry;
mod timeouts;

pub use conntrack_observer::ConntrackObserver;
pub use descriptor::{
    Descriptor, Host, Page, Place, Probe, Retired, Settings, Surroundings, Translates,
};
pub use duration::milliseconds;
pub use every_kind::every_kind;
pub use flag::{Flag, FlagMistake, Given, Takes, one_of};
pub use keeper::{Keeper, KeeperError};
pub use kind::BackendKind;
pub use open::OpenError;
pub use requirement::Requirement;
pub use retry::Retry;
pub use timeouts::Timeouts;
