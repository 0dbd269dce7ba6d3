//! Commands that compute the node-local state once, from manifests, without privileges.

use proxy_model::Model;

use crate::{
    cluster::manifests::{self, ManifestError},
    config::Once,
};

/// The model after the manifests, up to date.
pub fn model(once: Once) -> Result<Model, ManifestError> {
    let events = manifests::load_once(once.manifests)?;
    Ok(Model::after(once.model, events))
}
