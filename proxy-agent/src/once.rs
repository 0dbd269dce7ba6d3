//! Commands that compute the node-local state once, from manifests, without privileges.

use std::{path::PathBuf, sync::Arc};

use proxy_model::{Model, NodeState};

use crate::cluster::manifests::{self, ManifestError};

/// The node-local state of `node` that the manifests lead to.
pub fn state(paths: Vec<PathBuf>, node: Arc<str>) -> Result<NodeState, ManifestError> {
    Ok(proxy_model::compute(node, manifests::load_once(paths)?))
}

/// The model of `node` after the manifests, for questions that the state alone cannot answer.
pub fn model(paths: Vec<PathBuf>, node: Arc<str>) -> Result<Model, ManifestError> {
    Ok(Model::after(node, manifests::load_once(paths)?))
}
