//! What the agent knows of a backend while it is not open: what it needs of a host, and why it could
//! not be opened; and what backends share. Knows no backend, and no agent.

mod duration;
mod open;
mod requirement;
mod retry;

pub use duration::milliseconds;
pub use open::OpenError;
pub use requirement::Requirement;
pub use retry::Retry;
