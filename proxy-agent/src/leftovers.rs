//! What kube-proxy left in this network namespace: rules and objects of its three modes, which go on
//! working when it is gone, and stand in the way of whoever serves in its place.
//!
//! [`find`] only looks. [`remove`] takes away what was found, once the rules of somebody else are in
//! force. Nothing of others is touched: kubelet's chains, those of CNI plugins, and chains of
//! kube-proxy that theirs lead to. A connection that kube-proxy translated lives on in the kernel's
//! conntrack, as long as that and its translation stay hooked in: whoever calls sees to that. IPVS
//! keeps its connections to itself, so a virtual server stays until it has none.

mod error;
mod iptables;
mod ipvs;
mod nft_chains;
mod nftables;
mod owned;
mod removal;
mod ruleset;
mod sets;
mod virtual_servers;

use std::fmt;

use proxy_model::IpFamily;

/// A mode of kube-proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Chains in the tables of iptables, of either kind.
    Iptables,
    /// Virtual servers, a device that holds their addresses, sets, and chains of iptables.
    Ipvs,
    /// Tables of its own.
    Nftables,
}

impl Mode {
    /// The name that kube-proxy's `--proxy-mode` takes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Ipvs => "ipvs",
            Self::Nftables => "nftables",
        }
    }
}

/// Something that kube-proxy left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// The mode that made it.
    pub mode: Mode,
    /// The family that it is for; `None` if it is for both.
    pub family: Option<IpFamily>,
    /// What it is, in words: ``table `nat` of iptables-nft``.
    pub what: String,
    /// Chains in it, or whatever else it consists of.
    pub parts: usize,
    /// Rules, of all chains.
    pub rules: usize,
    removal: Removal,
}

impl fmt::Display for Leftover {
    /// ``iptables mode, IPv4: table `nat` of iptables-nft, 65 parts, 172 rules``.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} mode", self.mode.as_str())?;
        if let Some(family) = self.family {
            write!(f, ", {family}")?;
        }
        write!(f, ": {}", self.what)?;
        let number = |f: &mut fmt::Formatter<'_>, count, one| match count {
            0 => Ok(()),
            1 => write!(f, ", 1 {one}"),
            _ => write!(f, ", {count} {one}s"),
        };
        number(f, self.parts, "part")?;
        number(f, self.rules, "rule")
    }
}

/// How to remove a leftover.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Removal {
    /// Give `input` to this `iptables-restore`.
    Restore { program: String, input: String },
    /// Delete these chains and rules of iptables-nft.
    Chains(nft_chains::Deletion),
    /// Delete this table of nftables.
    Table(nftables::Table),
    /// Delete these virtual servers.
    VirtualServers(Vec<virtual_servers::VirtualServer>),
    /// Delete this device.
    Device(&'static str),
    /// Destroy these sets.
    Sets(Vec<String>),
}

/// What kube-proxy left, and what could not be told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// In the order in which it has to be removed.
    pub leftovers: Vec<Leftover>,
    /// What could not be looked at, each with the reason.
    pub problems: Vec<String>,
    /// Chains that stay for rules of others: empty, but for what has packets masqueraded.
    pub kept: Vec<String>,
}

impl Found {
    /// The modes that left something, each once.
    pub fn modes(&self) -> Vec<Mode> {
        let mut modes: Vec<Mode> = self.leftovers.iter().map(|left| left.mode).collect();
        modes.sort_unstable();
        modes.dedup();
        modes
    }
}

/// What became of a removal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removed {
    /// What is gone now.
    pub removed: Vec<Leftover>,
    /// What stays for now, because connections go through it.
    pub waiting: Vec<Leftover>,
    /// What could not be removed, each with the reason. It kept nothing else from being removed.
    pub problems: Vec<String>,
}

/// Looks for what kube-proxy left in the network namespace of this thread. Writes nothing. Needs
/// the rights to look at rules: `CAP_NET_ADMIN`.
///
/// It runs the programs of iptables, because only they know their rules' form. Where there are none,
/// the kernel is asked for what `iptables-nft` left, which is all that there is on most hosts; rules
/// of `iptables-legacy` are a problem to tell then, and nothing else.
pub fn find() -> Found {
    let mut found = Found::default();
    nftables::find(&mut found);
    iptables::find(&mut found);
    ipvs::find(&mut found);
    found
}

/// Looks for what IPVS mode left besides chains, as [`find`] does: for what was waiting.
pub fn find_again() -> Found {
    let mut found = Found::default();
    ipvs::find(&mut found);
    found
}

/// Removes what was found. To be called when the rules of somebody else are in force: no new
/// connection is translated by kube-proxy's after this.
///
/// What changed since it was found may be in the way, so find it just before.
pub fn remove(found: &Found) -> Removed {
    let mut removed = Removed::default();
    for leftover in &found.leftovers {
        let is_waited_for = !removed.waiting.is_empty();
        let done = match &leftover.removal {
            Removal::Restore { program, input } => iptables::restore(program, input),
            Removal::Chains(deletion) => nft_chains::delete(deletion),
            Removal::Table(table) => nftables::delete(*table),
            Removal::VirtualServers(servers) => {
                let (busy, idle): (Vec<_>, Vec<_>) =
                    servers.iter().partition(|server| server.connections > 0);
                if !busy.is_empty() {
                    let parts = busy.len();
                    let leftover = leftover.clone();
                    removed.waiting.push(Leftover { parts, ..leftover });
                }
                virtual_servers::delete(&idle)
            }
            // They hold the addresses that those need, and tell whose those are.
            Removal::Device(_) | Removal::Sets(_) if is_waited_for => {
                removed.waiting.push(leftover.clone());
                continue;
            }
            Removal::Device(name) => ipvs::delete_device(name),
            Removal::Sets(names) => sets::destroy(names),
        };
        match done {
            Ok(()) if is_waited_for || removed.waiting.is_empty() => {
                removed.removed.push(leftover.clone());
            }
            Ok(()) => {}
            Err(error) => removed
                .problems
                .push(format!("removing {leftover}: {error}")),
        }
    }
    removed
}
