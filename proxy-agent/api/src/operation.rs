//! Changes of node-local state in commits.

use std::{fmt, time::SystemTime};

use proxy_model::IpFamily;

use crate::{Item, ItemKey, wire};

/// A state of one brain: how a client says what it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    /// Which brain: chosen at random when it starts, never 0.
    pub instance_id: u64,
    /// Which state of it: grows with each change; 1 is the first.
    pub revision: u64,
}

impl fmt::Display for Token {
    /// The flags of [`crate::driver`] that resume from here.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "--instance-id={} --rev={}",
            self.instance_id, self.revision
        )
    }
}

impl From<wire::Token> for Token {
    fn from(token: wire::Token) -> Self {
        Self {
            instance_id: token.instance_id,
            revision: token.revision,
        }
    }
}

impl From<Token> for wire::Token {
    fn from(token: Token) -> Self {
        Self {
            instance_id: token.instance_id,
            revision: token.revision,
        }
    }
}

/// A change of one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// It is new, or has this form now.
    Upsert(Item),
    /// It is gone.
    Delete(ItemKey),
}

/// All that leads from one complete state to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// What was there before and is not upserted here does not exist.
    pub reset: bool,
    /// In the order in which to apply them.
    pub operations: Vec<Operation>,
    /// The state that they lead to.
    pub token: Token,
    /// When the cluster changed what this batch brings, as far as is known.
    pub triggers: Vec<Trigger>,
}

/// A change of endpoints in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trigger {
    /// Family of the endpoints.
    pub family: IpFamily,
    /// When, by the cluster's clock.
    pub at: SystemTime,
}
