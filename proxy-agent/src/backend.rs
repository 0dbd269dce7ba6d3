//! Backends as the agent handles them: which there is reason to use (`choice`, pure), what this host
//! can do (`check`), and what stands in their place in a brain (`none`). Knows none of them by name:
//! `backends` is the list.

#[cfg(target_os = "linux")]
pub mod check;
pub mod choice;
pub mod layers;
#[cfg(target_os = "linux")]
pub mod none;
pub mod reference;
#[cfg(test)]
pub(crate) mod toy;
