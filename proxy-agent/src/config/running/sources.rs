//! Which source of cluster objects the flags and the file name.

use std::path::PathBuf;

use crate::config::cli::AgentArgs;

/// Where cluster objects come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Files and directories.
    Manifests(Vec<PathBuf>),
    /// The API server. Without kubeconfig and address: with the service account of the pod.
    ApiServer {
        /// How it is reached.
        kubeconfig: Option<PathBuf>,
        /// Addresses that replace the one in the kubeconfig, as typed.
        masters: Vec<String>,
    },
}

const NO_SOURCE: &str = "no source of cluster objects was given, and this is not a pod that \
                         could use its service account: give --kubeconfig, --master, or \
                         --manifests";

/// A flag wins over the file. `elsewhere`: something else may name
/// it, as a service account does in a pod.
pub(super) fn choose(
    args: &AgentArgs,
    configured: Option<PathBuf>,
    elsewhere: bool,
    mistakes: &mut Vec<String>,
) -> Option<Source> {
    let typed = &args.api_server;
    if !args.model.node.manifests.is_empty() {
        for (flag, given) in [
            ("--kubeconfig", typed.kubeconfig.is_some()),
            ("--master", !typed.master.is_empty()),
        ] {
            if given {
                mistakes.push(format!(
                    "{flag}: there can be one source of cluster objects: give either this or \
                     --manifests"
                ));
            }
        }
        return Some(Source::Manifests(args.model.node.manifests.clone()));
    }
    let kubeconfig = typed.kubeconfig.clone().or(configured);
    if kubeconfig.is_none() && typed.master.is_empty() && !elsewhere {
        mistakes.push(NO_SOURCE.to_owned());
        return None;
    }
    Some(Source::ApiServer {
        kubeconfig,
        masters: typed.master.clone(),
    })
}
