//! `KubeProxyConfiguration`, `kubeproxy.config.k8s.io/v1alpha1`, and the flags for the same
//! things, so that Culvert can take kube-proxy's place with the file that is already there.
//!
//! Three steps: as typed (`typed`), with defaults (`complete`), checked (`checked`). One table
//! (`fields`) says what there is. Pure: reads no file and prints nothing.
//!
//! A flag that is given wins over the file. kube-proxy ignores most flags when it has a file;
//! whoever has both in a manifest has them agree or wonders why one of them does nothing, so
//! here the flag counts, and a difference is told.

mod address;
mod backends;
mod checked;
mod complete;
pub mod fields;
mod order;
#[cfg(test)]
mod tests;
mod typed;
mod value;

use std::{fmt, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use proxy_backend::{BackendKind, Timeouts};
use proxy_model::{NodePortSelection, oracle::Traffic};
use serde_json::Value;

use crate::{backend::choice::Mode, host::settings::HostSettings};

pub(super) use self::typed::{API_VERSION, KIND};
use self::{
    complete::Complete,
    typed::{Origin, Typed},
};

/// What file and flags mean together.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Which layers are asked for.
    pub mode: Mode,
    /// In which order backends are preferred; others are not used. At least one.
    pub order: Vec<BackendKind>,
    /// Flags of backends that have a field, as far as the file or a flag says something.
    pub backends: proxy_backend::Given,
    /// How the API server is reached.
    pub kubeconfig: Option<PathBuf>,
    /// This node's name, as written.
    pub node_name: Option<String>,
    /// Where health is told.
    pub healthz: Option<SocketAddr>,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// Whether an address that cannot be bound stops the agent.
    pub hard_fail: bool,
    /// How often the kernel is compared with the desired state. Above zero.
    pub sync_period: Duration,
    /// Which traffic comes from pods of this node, and whether all of it is masqueraded.
    pub traffic: Traffic,
    /// For how long connections are remembered, by backends that do so themselves.
    pub timeouts: Timeouts,
    /// What connection tracking of the host is set to.
    pub host: HostSettings,
    /// The bit of the packet mark that packets to be masqueraded get, as a mask.
    pub masquerade_mark: u32,
    /// Where NodePorts answer.
    pub node_ports: NodePortSelection,
    /// Whether they answer on loopback addresses too.
    pub localhost_node_ports: bool,
    /// -1000 (never) to 1000 (first): how the kernel chooses whom to end when memory runs out.
    pub oom_score_adj: i32,
    /// What kube-proxy would log: zero for the least.
    pub verbosity: i32,
    /// What the log should say.
    pub notices: Vec<Notice>,
    /// Everything, in the form of a file, for `/configz`.
    pub effective: Value,
}

impl Settings {
    /// The part that decides where traffic goes, for the node called `node`.
    pub fn model(&self, node: Arc<str>) -> proxy_model::Settings {
        proxy_model::Settings {
            node,
            traffic: self.traffic.clone(),
            node_ports: self.node_ports.clone(),
            localhost_node_ports: self.localhost_node_ports,
            reserved: Vec::new(),
        }
    }
}

/// Something about a field that is no mistake, but that nobody would expect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The field, empty for the file as a whole.
    pub field: String,
    /// What is with it.
    pub text: String,
}

impl Notice {
    fn new(field: &str, text: String) -> Self {
        Self {
            field: field.to_owned(),
            text,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => f.write_str(&self.text),
            field => write!(f, "{field}: {}", self.text),
        }
    }
}

/// Something that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The field, empty for the file as a whole.
    pub field: String,
    /// The flag that set it, without the dashes; otherwise the file did.
    pub flag: Option<&'static str>,
    /// What is wrong.
    pub text: String,
}

impl Mistake {
    fn new(field: &str, origin: Origin, text: String) -> Self {
        let flag = match origin {
            Origin::Flag(flag) => Some(flag),
            Origin::File | Origin::Default => None,
        };
        Self {
            field: field.to_owned(),
            flag,
            text,
        }
    }

    fn of_file(field: &str, text: String) -> Self {
        Self::new(field, Origin::File, text)
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.flag, self.field.as_str()) {
            (Some(flag), _) => write!(f, "--{flag}: {}", self.text),
            (None, "") => f.write_str(&self.text),
            (None, field) => write!(f, "{field}: {}", self.text),
        }
    }
}

/// A flag that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The flag, without the dashes.
    pub flag: &'static str,
    /// The fields it sets.
    pub paths: &'static [&'static str],
    /// What was typed.
    pub text: String,
}

/// What a file, if there is one, and flags mean together; or every mistake in them.
pub fn settle(file: Option<&str>, flags: &[Given]) -> Result<Settings, Vec<Mistake>> {
    let mut typed = Typed::default();
    if let Some(text) = file {
        typed.read_file(text);
    }
    for given in flags {
        typed.take_flag(given);
    }
    let complete = Complete::of(&mut typed);
    let settings = checked::check(&complete, &mut typed);
    if typed.mistakes.is_empty() {
        Ok(Settings {
            notices: typed.notices,
            ..settings
        })
    } else {
        Err(typed.mistakes)
    }
}
