//! The layers of a node's dataplane, the one that decides first on top. Each gets every change, is
//! tried again and compared by itself: one that fails leaves the others at work. Does not know how
//! a layer that can never serve is replaced.

use std::time::Instant;

use proxy_model::{Capability, ChangeSet, NodeState, PacketLayer};

use super::layer::{Advanced, Layer};

/// All layers. There is always one.
pub struct Layers(Vec<Layer>);

impl Layers {
    /// Of these, top first.
    pub fn new(layers: Vec<Layer>) -> Self {
        assert!(
            !layers.is_empty(),
            "a dataplane of no layers serves nothing"
        );
        Self(layers)
    }

    /// Each, top first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Layer> {
        self.0.iter()
    }

    /// Each to change, top first.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Layer> {
        self.0.iter_mut()
    }

    /// Their names, top first.
    pub fn names(&self) -> Vec<&'static str> {
        self.iter().map(Layer::name).collect()
    }

    /// Whether each of them had a state in force.
    pub fn all_serve(&self) -> bool {
        self.iter().all(Layer::serves)
    }

    /// Whether all of them hold the state of now.
    pub fn in_force(&self) -> bool {
        self.iter().all(Layer::in_force)
    }

    /// Whether all of them need the whole state next.
    pub fn are_behind(&self) -> bool {
        self.iter().all(Layer::is_behind)
    }

    /// When the first of them is tried again, if one failed.
    pub fn due(&self) -> Option<Instant> {
        self.iter().filter_map(Layer::due).min()
    }

    /// What none of them can do: of those that serve, or before one does, of all.
    pub fn lacks(&self) -> Vec<Capability> {
        let one_serves = self.iter().any(Layer::serves);
        let counts = |layer: &&Layer| layer.serves() || !one_serves;
        let all = Capability::ALL.into_iter();
        all.filter(|one| {
            self.iter()
                .filter(counts)
                .all(|layer| layer.lacks().contains(one))
        })
        .collect()
    }

    /// Whether every layer that can do `capability` holds the state of now.
    pub fn in_force_for(&self, capability: Capability) -> bool {
        let can = |layer: &&Layer| !layer.lacks().contains(&capability);
        self.iter().filter(can).all(Layer::in_force)
    }

    /// The state has changed.
    pub fn changed(&mut self, change: &ChangeSet) {
        for layer in self.iter_mut() {
            layer.changed(change);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Brings `state` into force in one of them. `index` counts from the top.
    pub fn advance(&mut self, index: usize, state: &NodeState, now: Instant) -> Advanced {
        let (layer, beneath) = self.0[index..].split_first_mut().expect("there is one");
        layer.lies_over(if beneath.is_empty() {
            PacketLayer::Absent
        } else if beneath.iter().any(Layer::serves) {
            PacketLayer::Serves
        } else {
            PacketLayer::Waits
        });
        layer.advance(state, now)
    }

    /// Puts `layer` in the place of one, or takes that away. `index` counts from the top. Whoever
    /// takes the last one away has none.
    pub fn replace(&mut self, index: usize, layer: Option<Layer>) {
        // The other one lets go of what it holds, so that it can be taken away.
        self.0.splice(index..=index, layer);
        assert!(
            !self.0.is_empty(),
            "a dataplane of no layers serves nothing"
        );
    }
}
