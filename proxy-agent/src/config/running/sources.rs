//! Which source of cluster objects, or of what follows from them, the flags and the file name.

use std::path::PathBuf;

use super::node_api::Brain;
use crate::config::cli::AgentArgs;

/// Where cluster objects come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceOptions {
    /// Files and directories.
    Manifests(Vec<PathBuf>),
    /// The API server. Without kubeconfig and address: with the service account of the pod.
    ApiServer {
        /// How it is reached.
        kubeconfig: Option<PathBuf>,
        /// Addresses that replace the one in the kubeconfig, as typed.
        masters: Vec<String>,
    },
    /// Another brain, which knows the cluster.
    Brain(Brain),
}

const NO_SOURCE: &str = "no source of cluster objects was given, and this is not a pod with a \
                         service account: give --kubeconfig, --master, --manifests, or --target";

impl SourceOptions {
    /// Whether the state is decided elsewhere.
    pub const fn is_brain(&self) -> bool {
        matches!(self, Self::Brain(_))
    }
}

/// A flag wins over the file. `brain` is what --target means. `elsewhere`: something else may name
/// it, as a service account does in a pod.
pub(super) fn choose(
    args: &AgentArgs,
    brain: Option<Brain>,
    configured: Option<PathBuf>,
    elsewhere: bool,
    mistakes: &mut Vec<String>,
) -> Option<SourceOptions> {
    let typed = &args.api_server;
    let manifests = &args.model.node.manifests;
    let mut alone = |flag: &str, others: &[(&str, bool)]| {
        for (other, _) in others.iter().filter(|(_, given)| *given) {
            mistakes.push(format!(
                "{other}: there can be only one source of cluster objects: give either this or \
                 {flag}"
            ));
        }
    };
    let of_api_server = [
        ("--kubeconfig", typed.kubeconfig.is_some()),
        ("--master", !typed.master.is_empty()),
    ];
    if args.target.target.is_some() {
        alone("--target", &of_api_server);
        alone("--target", &[("--manifests", !manifests.is_empty())]);
        return brain.map(SourceOptions::Brain);
    }
    if !manifests.is_empty() {
        alone("--manifests", &of_api_server);
        return Some(SourceOptions::Manifests(manifests.clone()));
    }
    let kubeconfig = typed.kubeconfig.clone().or(configured);
    if kubeconfig.is_none() && typed.master.is_empty() && !elsewhere {
        mistakes.push(NO_SOURCE.to_owned());
        return None;
    }
    Some(SourceOptions::ApiServer {
        kubeconfig,
        masters: typed.master.clone(),
    })
}
