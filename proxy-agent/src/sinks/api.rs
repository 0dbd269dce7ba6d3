//! The node API as a sink: backends in other processes hear of each state. Does not know them:
//! they are the publisher's.

use std::time::SystemTime;

use proxy_api::{Trigger, server::Publisher};
use proxy_model::{IpFamily, NodeState};

use super::Sink;

/// Publishes each state.
#[derive(Debug)]
pub struct ApiSink(Publisher);

impl ApiSink {
    /// A sink that publishes through `publisher`.
    pub fn new(publisher: Publisher) -> Self {
        Self(publisher)
    }
}

impl Sink for ApiSink {
    fn publish(&mut self, state: &NodeState, triggers: &[(IpFamily, SystemTime)]) {
        let trigger = |(family, at): &(IpFamily, SystemTime)| Trigger {
            family: *family,
            at: *at,
        };
        self.0
            .publish(state, triggers.iter().map(trigger).collect());
    }
}
