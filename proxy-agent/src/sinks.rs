//! Where the node-local state goes besides the backend. Hands each state that differs from the last
//! one to everything that listens, and keeps none of it waiting: a sink that is slow must see to
//! itself. Knows no sink, and nothing of what a backend makes of the state.

pub mod api;
pub mod file;

use std::time::SystemTime;

use proxy_model::{IpFamily, NodeState};

/// Something that wants every state, or the newest.
pub trait Sink: Send {
    /// Takes a state that differs from the last one it was given. `triggers` tell when the cluster
    /// changed what is new in it.
    ///
    /// Called by the task that owns the state: must neither block nor copy the state, which costs
    /// nothing to clone.
    fn publish(&mut self, state: &NodeState, triggers: &[(IpFamily, SystemTime)]);
}

/// All sinks of an agent; there may be none.
#[derive(Default)]
pub struct Sinks {
    sinks: Vec<Box<dyn Sink>>,
    /// The last state that they were given.
    published: Option<NodeState>,
}

impl Sinks {
    /// These, which have been given nothing yet.
    pub fn new(sinks: Vec<Box<dyn Sink>>) -> Self {
        Self {
            sinks,
            published: None,
        }
    }

    /// Hands `state` on, unless it is the same as before. Costs what changed: the two states share
    /// the rest.
    pub fn publish(&mut self, state: &NodeState, triggers: &[(IpFamily, SystemTime)]) {
        // Without a sink there is no reason to look, nor to hold on to an old state.
        if self.sinks.is_empty() || self.published.as_ref() == Some(state) {
            return;
        }
        self.published = Some(state.clone());
        for sink in &mut self.sinks {
            sink.publish(state, triggers);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use proxy_model::{ClusterEvent, Diagnostic, Model, Node, Service, ServiceName, ServicePort};

    use super::*;

    /// Remembers how many Service ports, diagnostics and triggers it was given.
    #[derive(Clone, Default)]
    struct Heard(Arc<Mutex<Vec<(usize, usize, usize)>>>);

    impl Sink for Heard {
        fn publish(&mut self, state: &NodeState, triggers: &[(IpFamily, SystemTime)]) {
            let heard = (
                state.services.len(),
                state.diagnostics.len(),
                triggers.len(),
            );
            self.0.lock().unwrap().push(heard);
        }
    }

    impl Heard {
        fn take(&self) -> Vec<(usize, usize, usize)> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    #[test]
    fn every_sink_hears_of_every_state_once_and_of_what_no_backend_cares_for() {
        let (one, other) = (Heard::default(), Heard::default());
        let mut sinks = Sinks::new(vec![Box::new(one.clone()), Box::new(other.clone())]);
        let mut model = Model::new("node-a");
        let at = (IpFamily::V4, SystemTime::UNIX_EPOCH);
        let mut publish = |model: &Model| {
            sinks.publish(model.state(), &[at]);
            let heard = one.take();
            assert_eq!(other.take(), heard);
            heard
        };
        // An empty cluster is a state, too: whoever listens must know that it is empty.
        assert_eq!(publish(&model), [(0, 0, 1)]);
        assert_eq!(publish(&model), []);
        for (event, expected) in [
            (
                ClusterEvent::ServiceUpserted(Service {
                    name: ServiceName::new("shop", "web"),
                    cluster_ips: vec![[10, 96, 0, 1].into()],
                    ports: vec![ServicePort {
                        name: "".into(),
                        protocol: proxy_model::Protocol::Tcp,
                        port: 80,
                        node_port: None,
                    }],
                    ..Service::default()
                }),
                (1, 0, 1),
            ),
            (
                ClusterEvent::NodeUpserted(Node {
                    name: "node-a".into(),
                    zone: Some("a".into()),
                    pod_cidrs: vec![],
                    addresses: vec![],
                    eligible: true,
                }),
                (1, 0, 1),
            ),
            (
                ClusterEvent::Diagnosed {
                    object: "Service shop/web".into(),
                    diagnostics: vec![Diagnostic {
                        object: "Service shop/web".into(),
                        field: "spec".to_owned(),
                        message: "odd".to_owned(),
                    }],
                },
                (1, 1, 1),
            ),
        ] {
            model.apply(event.clone());
            let change = model.update();
            assert_eq!(publish(&model), [expected], "{change:?}");
            // Told again, it changes nothing.
            model.apply(event);
            model.update();
            assert_eq!(publish(&model), []);
        }
    }
}
