//! What a real server once said, to be said again byte for byte.

use bytes::Bytes;

use super::{query::Verb, status::Status, watch::Opening};

/// The answers of a real server about one kind. What is absent is answered as usual, but for a
/// streaming list, which is then refused as a server refuses that has none.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    /// The answer to every list.
    pub list: Option<Bytes>,
    /// What every watch says. It stays open then.
    pub watch: Option<Bytes>,
    /// What every streaming list says. It stays open then.
    pub streaming_list: Option<Bytes>,
}

impl Transcript {
    pub(super) fn open(self, verb: Verb) -> Result<Opening, Status> {
        let said = match verb {
            Verb::StreamingList => Some(self.streaming_list.ok_or_else(|| Status::of(422))?),
            _ => self.watch,
        };
        Ok(Opening {
            first: said.into_iter().collect(),
            after: None,
        })
    }
}
