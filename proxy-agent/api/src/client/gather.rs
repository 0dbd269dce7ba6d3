//! Operations until the Sync that makes them valid. Pure: the order that the API promises is
//! checked here, and nothing leaves that is not complete.

use prost::Message as _;

use crate::{Batch, DecodeError, Item, Operation, convert, wire};

/// Bytes of a batch, which is kept in memory until it is whole: eight million endpoints.
const LARGEST_BATCH: usize = 256 << 20;

/// Gathers messages until a batch is complete: for programs with their own connection, or with
/// bytes from elsewhere. [`super::Follower`] uses it by itself.
#[derive(Debug, Default)]
pub struct Gathering {
    /// Whether the client has a state to which operations can be applied.
    has_state: bool,
    reset: bool,
    has_node: bool,
    operations: Vec<Operation>,
    /// Bytes of these, as they came.
    bytes: usize,
    /// Of an answer to Next.
    next: Option<wire::Token>,
}

impl Gathering {
    /// The first batch of a Watch; `resumed` if it may go on from a state that the client has.
    pub fn of_watch(resumed: bool) -> Self {
        Self {
            has_state: resumed,
            ..Self::default()
        }
    }

    /// An answer to Next.
    pub(super) fn of_next() -> Self {
        Self {
            reset: true,
            ..Self::default()
        }
    }

    fn weigh(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.bytes += bytes;
        if self.bytes > LARGEST_BATCH {
            return Err(DecodeError::new(
                "batch",
                "has more than 256 MiB, and is not complete yet",
            ));
        }
        Ok(())
    }

    /// Takes an operation. Returns the batch, once it is complete.
    pub fn take(&mut self, operation: wire::Operation) -> Result<Option<Batch>, DecodeError> {
        use wire::operation::Operation as Of;
        self.weigh(operation.encoded_len())?;
        match operation.operation {
            None => Err(DecodeError::new("operation", "is of an unknown kind")),
            Some(Of::Reset(wire::Reset {})) => {
                if self.reset || !self.operations.is_empty() {
                    return Err(DecodeError::new("reset", "may only come first in a batch"));
                }
                self.reset = true;
                Ok(None)
            }
            Some(Of::Upsert(item)) => {
                self.upsert(item)?;
                Ok(None)
            }
            Some(Of::Delete(key)) => {
                self.needs_state("delete")?;
                let key = convert::decode::key(key)?;
                self.operations.extend(key.map(Operation::Delete));
                Ok(None)
            }
            Some(Of::Sync(sync)) => self.sync(sync).map(Some),
        }
    }

    /// Takes a part of an answer to Next.
    pub(super) fn take_part(&mut self, part: wire::NextPart) -> Result<(), DecodeError> {
        use wire::next_part::Part;
        self.weigh(part.encoded_len())?;
        match part.part {
            None => Err(DecodeError::new("part", "is of an unknown kind")),
            Some(Part::Next(token)) if self.next.is_none() => {
                self.next = Some(token);
                Ok(())
            }
            Some(Part::Item(item)) if self.next.is_some() => self.upsert(item),
            Some(_) => Err(DecodeError::new(
                "next",
                "must be the first part, and only that",
            )),
        }
    }

    /// The whole state, once the stream has ended.
    pub(super) fn end_of_next(mut self) -> Result<Batch, DecodeError> {
        let token = self.next.take();
        self.sync(wire::Sync {
            token,
            triggers: Vec::new(),
        })
    }

    fn upsert(&mut self, item: wire::Item) -> Result<(), DecodeError> {
        self.needs_state("upsert")?;
        let item = convert::decode::item(item)?;
        self.has_node |= matches!(item, Some(Item::Node(_)));
        self.operations.extend(item.map(Operation::Upsert));
        Ok(())
    }

    fn needs_state(&self, field: &str) -> Result<(), DecodeError> {
        if self.has_state || self.reset {
            return Ok(());
        }
        let problem = "came before a reset, to a client that has no state";
        Err(DecodeError::new(field, problem))
    }

    fn sync(&mut self, sync: wire::Sync) -> Result<Batch, DecodeError> {
        self.needs_state("sync")?;
        let token = convert::decode::required("sync.token", sync.token)?;
        if self.reset && !self.has_node {
            let problem = "ends a state without a node";
            return Err(DecodeError::new("sync", problem));
        }
        let whole = std::mem::replace(self, Self::of_watch(true));
        let triggers = sync.triggers.into_iter();
        Ok(Batch {
            reset: whole.reset,
            operations: whole.operations,
            token: token.into(),
            triggers: triggers.filter_map(convert::decode::trigger).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_without_an_end_is_given_up() {
        use wire::operation::Operation as Of;
        let reset = || wire::Operation {
            operation: Some(Of::Reset(wire::Reset {})),
        };
        let mut gathering = Gathering::of_watch(false);
        gathering.bytes = LARGEST_BATCH - reset().encoded_len();
        assert_eq!(gathering.take(reset()), Ok(None));
        let error = gathering.take(reset()).unwrap_err().to_string();
        assert!(error.contains("256 MiB"), "{error}");
    }
}
