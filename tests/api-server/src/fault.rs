//! What can be told to go wrong, and for which requests.

use std::time::Duration;

use bytes::Bytes;

use super::{
    kind::Kind,
    query::{Query, Verb},
};

/// Something that goes wrong with a request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It is refused with this HTTP status and, if seconds are given, `Retry-After`.
    Refused(u16, Option<u64>),
    /// The connection is closed without an answer.
    Disconnected,
    /// It is accepted and never answered.
    NeverAnswered,
    /// The headers come, and then nothing, for as long as the client waits.
    Silent,
    /// The body ends in the middle of the last object, and with it the connection. A watch
    /// without first events ends in the middle of the next one.
    CutMidObject,
    /// The version is too old: a watch tells so by an event, anything else is refused with 410.
    Expired,
    /// A watch begins with this line, a list consists of it.
    Garbage(Bytes),
    /// The body comes in pieces of so many bytes, with a pause after each.
    Slow(usize, Duration),
}

/// Which requests a fault strikes.
#[derive(Debug, Clone, Copy, Default)]
pub struct On {
    verb: Option<Verb>,
    kind: Option<Kind>,
    continued: bool,
    times: Option<usize>,
}

impl On {
    /// Each request for objects, until faults are cleared.
    pub const fn any() -> Self {
        Self {
            verb: None,
            kind: None,
            continued: false,
            times: None,
        }
    }

    /// Lists: plain ones only.
    pub const fn list() -> Self {
        Self::any().verb(Verb::List)
    }

    /// Watches from a version on.
    pub const fn watch() -> Self {
        Self::any().verb(Verb::Watch)
    }

    /// Streaming lists.
    pub const fn streaming_list() -> Self {
        Self::any().verb(Verb::StreamingList)
    }

    /// Pages of a list after the first.
    pub const fn continued() -> Self {
        Self {
            continued: true,
            ..Self::list()
        }
    }

    const fn verb(mut self, verb: Verb) -> Self {
        self.verb = Some(verb);
        self
    }

    /// Of this kind only.
    pub const fn kind(mut self, kind: Kind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// The first `times` of them only.
    pub const fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }

    fn strikes(&self, query: &Query) -> bool {
        self.verb.is_none_or(|verb| verb == query.verb)
            && self.kind.is_none_or(|kind| kind == query.kind)
            && (!self.continued || query.parameter("continue").is_some())
    }
}

/// Faults that wait for their requests.
#[derive(Debug, Default)]
pub(super) struct Armed(Vec<(On, Fault)>);

impl Armed {
    pub(super) fn add(&mut self, fault: Fault, on: On) {
        self.0.push((on, fault));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The fault that strikes `query`, the one told first if there are several.
    pub(super) fn take(&mut self, query: &Query) -> Option<Fault> {
        let found = self.0.iter_mut().position(|(on, _)| on.strikes(query))?;
        let (on, fault) = &mut self.0[found];
        let fault = fault.clone();
        if let Some(times) = &mut on.times {
            *times = times.saturating_sub(1);
            if *times == 0 {
                self.0.remove(found);
            }
        }
        Some(fault)
    }

    /// How many wait for a fixed number of requests.
    pub(super) fn pending(&self) -> usize {
        self.0.iter().filter(|(on, _)| on.times.is_some()).count()
    }
}

/// Something that happens to watches that are open.
#[derive(Debug, Clone)]
pub enum Disturbance {
    /// It ends, as it does after its time.
    End,
    /// The next event is sent to the half, and the connection is closed.
    CutNextEvent,
    /// The version has become too old: an event tells so, and the watch ends.
    Expire,
    /// Nothing is sent any more, and the connection stays.
    FallSilent,
    /// These bytes are sent, whatever they are.
    Send(Bytes),
    /// These bytes are sent again and again, with so much time between, and nothing else.
    Drip(Bytes, Duration),
    /// The last so many events are sent again.
    Repeat(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_as_often_as_it_was_told() {
        let query = |path: &str, query: &str| Query::parse(path, query).unwrap();
        let (list, watch) = (
            query("/api/v1/services", ""),
            query("/api/v1/services", "watch=1"),
        );
        let nodes = query("/api/v1/nodes", "continue=x");
        let mut armed = Armed::default();
        armed.add(Fault::Silent, On::list().kind(Kind::Service).times(2));
        armed.add(Fault::Expired, On::continued());
        assert!(armed.take(&watch).is_none());
        assert!(matches!(armed.take(&list), Some(Fault::Silent)));
        assert_eq!(armed.pending(), 1);
        assert!(matches!(armed.take(&list), Some(Fault::Silent)));
        assert!(armed.take(&list).is_none());
        for _ in 0..3 {
            assert!(matches!(armed.take(&nodes), Some(Fault::Expired)));
        }
        armed.clear();
        assert!(armed.take(&nodes).is_none());
    }
}
