//! Commands that compute the node-local state once, from manifests, without privileges.

use proxy_model::{Model, NodeState};

use crate::{
    cluster::manifests::{self, ManifestError},
    config::Once,
};

/// The node-local state that the manifests lead to.
pub fn state(once: Once) -> Result<NodeState, ManifestError> {
    let events = manifests::load_once(once.manifests)?;
    Ok(proxy_model::compute(once.model, events))
}

/// The model after the manifests, for questions that the state alone cannot answer.
pub fn model(once: Once) -> Result<Model, ManifestError> {
    let events = manifests::load_once(once.manifests)?;
    Ok(Model::after(once.model, events))
}
