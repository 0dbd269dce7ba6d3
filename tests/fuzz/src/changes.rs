//! What must hold after each update of a model, whatever its events were.

use std::{collections::BTreeMap, sync::Arc};

use proxy_model::{Change, Model, ServicePortKey, ServiceState};

/// The Service ports as a backend knows them that hears of changes alone.
#[derive(Default)]
pub(crate) struct Told(BTreeMap<ServicePortKey, Arc<ServiceState>>);

impl Told {
    /// Brings `model` up to date.
    ///
    /// # Panics
    ///
    /// If the change does not lead from the state before to the state now, or says more than that.
    pub(crate) fn update(&mut self, model: &mut Model) {
        let before = model.state().clone();
        let change = model.update();
        for change in &change.changes {
            match change {
                Change::Upsert { key, state } => {
                    let old = self.0.insert(key.clone(), Arc::clone(state));
                    assert_ne!(old.as_ref(), Some(state), "{key} changed to what it was");
                }
                Change::Delete { key } => {
                    assert!(self.0.remove(key).is_some(), "{key} was deleted twice");
                }
            }
        }
        let state = model.state();
        assert!(
            self.0.iter().eq(state.services.iter()),
            "the changes lead to\n{:#?}\nand not to\n{state:#?}",
            self.0
        );
        assert!(
            !change.is_empty() || before.services == state.services,
            "Service ports changed without a word"
        );
        assert!(
            model.update().is_empty(),
            "a second update changes something"
        );
    }
}
