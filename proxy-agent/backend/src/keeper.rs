//! What keeps the kernel translating: connections that kube-proxy or one of our backends began to
//! translate break when the last nat hook of a network namespace is removed.

use thiserror::Error;

/// Hooks that redirect nothing. They are installed before anything is removed, and stay for as long
/// as such connections are tracked.
pub trait Keeper: Send {
    /// What is installed, for the log and for people who find it.
    fn table(&self) -> &'static str;

    /// Whether it is installed, by this run or by an earlier one.
    fn is_there(&self) -> Result<bool, KeeperError>;

    /// Installs it, or what is missing of it. Returns whether it keeps something: it does not if
    /// the kernel has no such hooks.
    fn keep(&mut self) -> Result<bool, KeeperError>;

    /// Removes it, unless another agent uses it. Returns whether it did.
    fn let_go(&mut self) -> Result<bool, KeeperError>;
}

/// What the kernel refused.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct KeeperError(pub String);
