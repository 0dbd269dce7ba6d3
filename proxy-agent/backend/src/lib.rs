//! What the agent knows of a backend, open or not ([`Descriptor`]), and what backends share. Knows no
//! backend by name, and no agent.

mod conntrack_observer;
mod descriptor;
mod duration;
mod flag;
mod keeper;
mod kind;
mod open;
mod requirement;
mod retry;

pub use conntrack_observer::ConntrackObserver;
pub use descriptor::{Descriptor, Host, Page, Probe, Settings, Surroundings};
pub use duration::milliseconds;
pub use flag::{Flag, Given, Takes};
pub use keeper::{Keeper, KeeperError};
pub use kind::BackendKind;
pub use open::OpenError;
pub use requirement::Requirement;
pub use retry::Retry;
