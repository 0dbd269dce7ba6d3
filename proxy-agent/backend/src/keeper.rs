//! What keeps the kernel translating: connections that somebody has begun to translate, kube-proxy or
//! a backend of ours, break when the last nat hook of a network namespace goes.

use thiserror::Error;

/// Hooks that lead nowhere. Put in before anything of anybody is taken away, they stay for as long as
/// such connections are tracked.
pub trait Keeper: Send {
    /// What is put in, for the log and for whoever finds it.
    fn table(&self) -> &'static str;

    /// Whether it is there, of this run or of an earlier one.
    fn is_there(&self) -> Result<bool, KeeperError>;

    /// Puts it in, and what is missing of it. Returns whether it keeps something: not where the
    /// kernel has no such hooks.
    fn keep(&mut self) -> Result<bool, KeeperError>;

    /// Takes it away, unless another agent keeps by it. Returns whether it did.
    fn let_go(&mut self) -> Result<bool, KeeperError>;
}

/// What the kernel would not do.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct KeeperError(pub String);
