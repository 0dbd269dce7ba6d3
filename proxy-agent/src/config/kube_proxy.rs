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
mod conntrack;
mod convert;
mod document;
pub mod explained;
pub mod fields;
mod nearest;
mod order;
mod period;
pub mod schema;
mod section;
#[cfg(test)]
mod tests;
mod typed;
mod value;
pub mod version;

use std::{
    borrow::Cow,
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use proxy_backend::{BackendKind, Timeouts};
use proxy_model::{NodePortSelection, oracle::Traffic};
use serde_json::Value;

use crate::{backend::choice::Mode, host::settings::HostSettings};

pub use self::convert::Extent;
use self::{
    complete::Complete,
    document::Position,
    typed::{Origin, Typed},
    version::Version,
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
    /// Addresses of the node before those of its Node object.
    pub node_ips: Vec<IpAddr>,
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
    /// Everything, in the form of a file of v1alpha1, for `/configz`.
    pub effective: Value,
    /// The version of the file; the oldest if there is none.
    pub version: Version,
}

impl Settings {
    /// The part that decides where traffic goes, for the node called `node`.
    pub fn model(&self, node: Arc<str>) -> proxy_model::Settings {
        proxy_model::Settings {
            node,
            traffic: self.traffic.clone(),
            node_ips: self.node_ips.clone(),
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
    /// Where it stands in the file, if it does.
    pub at: Option<Position>,
}

impl Notice {
    fn new(field: &str, text: String) -> Self {
        Self {
            field: field.to_owned(),
            text,
            at: None,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => f.write_str(&shortened(&self.text)),
            field => write!(f, "{}: {}", shortened(field), shortened(&self.text)),
        }?;
        stands(f, self.at)
    }
}

/// How many mistakes of one file are told, and how many notices.
const MOST_TOLD: usize = 100;
/// Bytes of one name or text that are told: what somebody wrote may be as long as a file.
const LONGEST_TOLD: usize = 1000;

/// What is told of a text: its beginning, if it is long.
fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= LONGEST_TOLD {
        return text.into();
    }
    let end = text.floor_char_boundary(LONGEST_TOLD);
    format!("{}… ({} bytes)", &text[..end], text.len()).into()
}

/// The first of them, and how many more there are, as `one_more` makes it.
fn bounded<T>(all: &mut Vec<T>, one_more: impl FnOnce(String) -> T) {
    let more = all.len().saturating_sub(MOST_TOLD);
    if more > 0 {
        all.truncate(MOST_TOLD);
        all.push(one_more(format!("{more} more like these")));
    }
}

/// Says where something stands.
fn stands(f: &mut fmt::Formatter<'_>, at: Option<Position>) -> fmt::Result {
    at.map_or(Ok(()), |position| write!(f, " ({position})"))
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
    /// Where it stands in the file, if it does.
    pub at: Option<Position>,
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
            at: None,
        }
    }

    fn of_file(field: &str, text: String) -> Self {
        Self::new(field, Origin::File, text)
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.flag, self.field.as_str()) {
            (Some(flag), _) => write!(f, "--{flag}: {}", shortened(&self.text)),
            (None, "") => f.write_str(&shortened(&self.text)),
            (None, field) => write!(f, "{}: {}", shortened(field), shortened(&self.text)),
        }?;
        stands(f, self.at)
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
    let (_, settings) = settled(file, flags)?;
    Ok(settings)
}

/// A file that says the same.
#[derive(Debug)]
pub struct Converted {
    /// Its text.
    pub file: String,
    /// What it cannot say.
    pub lost: Vec<Notice>,
    /// What is to be known of the one before.
    pub notices: Vec<Notice>,
}

/// What a file and flags mean together, as a file of the version `to`; or every mistake in them.
pub fn convert(
    file: Option<&str>,
    flags: &[Given],
    to: Version,
    extent: Extent,
) -> Result<Converted, Vec<Mistake>> {
    let (complete, settings) = settled(file, flags)?;
    let (file, lost) = convert::convert(&complete, to, extent);
    Ok(Converted {
        file,
        lost,
        notices: settings.notices,
    })
}

/// What a file means by a field of the table.
#[derive(Debug)]
pub struct Meant {
    /// The field, as v1alpha1 names it.
    pub path: &'static str,
    /// What it holds.
    pub value: Value,
    /// Whether the selected mode reads it.
    pub is_read: bool,
}

/// Every field of the table, in its order; or every mistake in the file.
pub fn every_field(file: &str) -> Result<Vec<Meant>, Vec<Mistake>> {
    let (complete, _) = settled(Some(file), &[])?;
    let section = complete.section();
    let all = fields::FIELDS.iter().map(|field| Meant {
        path: field.path,
        value: complete.setting(field.path).to_value(),
        is_read: section.reads(field.path),
    });
    Ok(all.collect())
}

/// A file of the version with every field, each with its default.
pub fn defaults(version: Version) -> String {
    let all = version.spellings().iter();
    convert::file(
        version,
        all.map(|spelling| (spelling.path, spelling.default().to_value())),
    )
}

/// Why kube-proxy would not start with a file that may be right here. Empty if it is no file at all.
pub fn refused_by_kube_proxy(file: &str) -> Vec<Mistake> {
    let mut typed = Typed::default();
    typed.read_file(file);
    let mut refused = Vec::new();
    if typed.version != Version::V1Alpha1 {
        let text = "kube-proxy reads no other version than v1alpha1, which `config convert --to v1alpha1` writes";
        refused.push(Mistake::of_file("apiVersion", text.to_owned()));
    }
    if let Some((value::Setting::Text(mode), _)) = typed.settings.get(fields::MODE)
        && let "auto" | "ebpf" = mode.as_str()
    {
        let text = format!(
            "kube-proxy has no mode {mode}: leave one that it has, and write {mode} in {}, which it ignores",
            fields::OWN_MODE
        );
        refused.push(Mistake::of_file(fields::MODE, text));
    }
    if let Some((value::Setting::Text(cidrs), _)) = typed.settings.get("clusterCIDR")
        && cidrs.contains(char::is_whitespace)
    {
        let text = format!(
            "kube-proxy takes no blanks around CIDRs: write \"{}\"",
            cidrs.replace(' ', "")
        );
        refused.push(Mistake::of_file("clusterCIDR", text));
    }
    typed.mistakes = refused;
    typed.find_positions();
    typed.mistakes
}

fn settled(file: Option<&str>, flags: &[Given]) -> Result<(Complete, Settings), Vec<Mistake>> {
    let mut typed = Typed::default();
    if let Some(text) = file {
        typed.read_file(text);
    }
    for given in flags {
        typed.take_flag(given);
    }
    let complete = Complete::of(&mut typed);
    let settings = checked::check(&complete, &mut typed);
    typed.find_positions();
    if typed.mistakes.is_empty() {
        let notices = typed.notices;
        Ok((
            complete,
            Settings {
                notices,
                ..settings
            },
        ))
    } else {
        Err(typed.mistakes)
    }
}
