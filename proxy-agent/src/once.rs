//! Commands that compute the node-local state once, from manifests, without privileges.

use std::{path::PathBuf, sync::Arc};

use proxy_model::{Model, NodeState};

use crate::cluster::manifests::{self, ManifestError};

/// The node-local state of `node` that the manifests lead to.
pub fn state(paths: Vec<PathBuf>, node: Arc<str>) -> Result<NodeState, ManifestError> {
    let mut model = Model::new(node);
    for event in manifests::load_once(paths)? {
        model.apply(event);
    }
    model.update();
    Ok(model.state().clone())
}
