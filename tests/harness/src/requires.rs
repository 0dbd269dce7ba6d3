//! The one rule about skipping tests.
//!
//! A skip is always told on stderr. A skip that `tests/allowed-skips.txt` does not list is a
//! failure wherever it must not happen: in CI (`CI=true`), and for root, who can do everything
//! that tests need.

use std::{
    env, fmt, fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::Result;
use xtask::chart_tools;

use crate::{bpf, cgroup, journey::tun::CLONE_DEVICE, launcher::MemoryLimit, netns::NetNs};

/// Which skips are allowed: `SUITE NEED` per line.
const ALLOWED: &str = include_str!("../../allowed-skips.txt");

/// Something a test cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// To be root, to make namespaces and cgroups.
    Root,
    /// A kernel that lets us use BPF, and a cgroup v2 hierarchy.
    Bpf,
    /// A kernel that tells the cookie of a network namespace (Linux 5.14).
    NetnsCookie,
    /// A kernel with virtual servers, loaded.
    Ipvs,
    /// A kernel that the nftables backend can use (Linux 5.13).
    Nftables,
    /// A kernel that gives a packet over IPv6 to the right socket of its own after it translated it
    /// (Linux 6.7). Before, one that is looked up early may be that of an older connection, if
    /// both have the same port: docs/ARCHITECTURE.md, "Choosing, and changing".
    RightSocket,
    /// To be in the host's own pid namespace, from which every process is seen.
    EveryProcess,
    /// To see the host's own root of cgroups, which a cgroup namespace hides.
    RootOfCgroups,
    /// A kernel with a client of NFS, and what mounts with it.
    Nfs,
    /// A kernel that tells how many instructions its verifier went through (Linux 5.16).
    VerifiedInstructions,
    /// Memory cgroups of version 1.
    MemoryLimit,
    /// A Python with gRPC.
    Grpc,
    /// A kernel that lets us make TUN devices.
    Tun,
    /// What renders the chart.
    Helm,
    /// What tests rules of Prometheus.
    Promtool,
    /// The schemas of Kubernetes' API.
    KubernetesValidate,
    /// A kernel with traces.
    Tracing,
    /// Netfilter that can be told of what bridges carry: loaded, because loading it tells it of those of the
    /// host, too.
    BridgeNetfilter,
    /// A kernel that makes devices of this kind, as `ip` calls it.
    Device(&'static str),
    /// A program on the PATH.
    Tool(&'static str),
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.pad("root"),
            Self::Bpf => f.pad("bpf"),
            Self::NetnsCookie => f.pad("netns-cookie"),
            Self::Ipvs => f.pad("ipvs"),
            Self::Nftables => f.pad("nftables"),
            Self::RightSocket => f.pad("right-socket"),
            Self::EveryProcess => f.pad("every-process"),
            Self::RootOfCgroups => f.pad("root-of-cgroups"),
            Self::Nfs => f.pad("nfs"),
            Self::VerifiedInstructions => f.pad("verified-instructions"),
            Self::MemoryLimit => f.pad("memory-limit"),
            Self::Grpc => f.pad("python-grpc"),
            Self::Tun => f.pad("tun"),
            Self::Helm => f.pad("helm"),
            Self::Promtool => f.pad("promtool"),
            Self::KubernetesValidate => f.pad("kubernetes-validate"),
            Self::Tracing => f.pad("tracing"),
            Self::BridgeNetfilter => f.pad("bridge-netfilter"),
            Self::Device(name) | Self::Tool(name) => f.pad(name),
        }
    }
}

/// What privileged suites need.
pub const PRIVILEGED: &[Need] = &[Need::Root, Need::Bpf, Need::Tool("ip")];

/// What suites need that run the nftables backend, and look at what it did.
pub const NFTABLES: &[Need] = &[Need::Root, Need::Nftables, Need::Tool("nft")];

/// What suites need that send packets through a node by themselves.
pub const PACKETS: &[Need] = &[Need::Root, Need::Tun, Need::Tool("ip")];

/// The first of `needs` that is not met here, and why.
pub fn unmet(needs: &[Need]) -> Option<(Need, String)> {
    needs.iter().find_map(|need| Some((*need, missing(*need)?)))
}

/// Whether the tests of `suite` can run here. If not, says so on stderr.
///
/// # Panics
///
/// If a skip is not allowed.
#[must_use]
pub fn met(suite: &str, needs: &[Need]) -> bool {
    let Some((need, reason)) = unmet(needs) else {
        return true;
    };
    eprintln!("SKIPPED: {suite} needs {need}: {reason}");
    let strict = env::var("CI").is_ok_and(|ci| ci == "true") || is_root();
    assert!(
        !strict || is_allowed(ALLOWED, suite, need),
        "{suite} cannot be skipped here: {reason}; provide it, or list `{suite} {need}` in \
         tests/allowed-skips.txt"
    );
    false
}

fn is_allowed(list: &str, suite: &str, need: Need) -> bool {
    list.lines()
        .map(|line| line.split('#').next().unwrap_or_default())
        .any(|line| line.split_whitespace().eq([suite, &need.to_string()]))
}

/// Why `need` is not met; `None` if it is.
fn missing(need: Need) -> Option<String> {
    match need {
        Need::Root if is_root() => None,
        Need::Root => Some("this process is not root".to_owned()),
        Need::Bpf => missing_bpf(),
        // It came with the kernel that also has this way to ask: a version is all there is to see
        // without a socket option that no library knows.
        Need::NetnsCookie => older_than((5, 14)),
        Need::Ipvs if has_ipvs() => None,
        Need::Ipvs => Some("this kernel has no IPVS, or it is not loaded (ip_vs)".to_owned()),
        Need::Nftables => older_than((5, 13)),
        Need::RightSocket => older_than((6, 7)),
        Need::EveryProcess if in_initial_pid_namespace() => None,
        Need::EveryProcess => Some("this is a pid namespace below the host's".to_owned()),
        Need::RootOfCgroups if sees_root_of_cgroups() => None,
        Need::RootOfCgroups => Some("this is a cgroup namespace below the host's".to_owned()),
        Need::Nfs if loads("nfsv4") => None,
        Need::Nfs => Some("this kernel has no module nfsv4".to_owned()),
        Need::VerifiedInstructions => older_than((5, 16)),
        Need::MemoryLimit if MemoryLimit::is_possible() => None,
        Need::MemoryLimit => Some("there is no hierarchy of memory cgroups".to_owned()),
        Need::Grpc if python_with_grpc().is_some() => None,
        Need::Grpc => Some("no python3 has the modules grpc and google.protobuf".to_owned()),
        Need::Tun if Path::new(CLONE_DEVICE).exists() => None,
        Need::Tun => Some(format!("this kernel has no {CLONE_DEVICE}")),
        Need::Helm => chart_tools::helm().err().map(|error| error.to_string()),
        Need::Promtool => chart_tools::promtool().err().map(|error| error.to_string()),
        Need::KubernetesValidate => {
            let found = chart_tools::kubernetes_validate();
            found.err().map(|error| error.to_string())
        }
        Need::Tracing if knows_file_system("tracefs") => None,
        Need::Tracing => Some("this kernel has no tracefs".to_owned()),
        Need::BridgeNetfilter if Path::new("/proc/sys/net/bridge").exists() => None,
        Need::BridgeNetfilter => Some("the module br_netfilter is not loaded".to_owned()),
        Need::Device(kind) => {
            let error = makes_devices(kind).err();
            error.map(|error| format!("this kernel makes no device of the kind {kind}: {error:#}"))
        }
        Need::Tool(name) if is_on_path(name) => None,
        Need::Tool(name) => Some(format!("there is no {name} on the PATH")),
    }
}

/// A Python that has gRPC: the first on the PATH may be one of the user's own, without it.
pub fn python_with_grpc() -> Option<&'static str> {
    ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        Command::new(python)
            .args(["-c", "import grpc, google.protobuf"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    })
}

/// Its number is the same on every host (`PROC_PID_INIT_INO`).
fn in_initial_pid_namespace() -> bool {
    fs::metadata("/proc/self/ns/pid").is_ok_and(|file| file.ino() == 0xefff_fffc)
}

/// Its number is the same on every host.
fn sees_root_of_cgroups() -> bool {
    let root = cgroup::mount_point()
        .ok()
        .and_then(|root| fs::metadata(root).ok());
    root.is_some_and(|root| root.ino() == 1)
}

/// Tries, in a network namespace of its own.
fn makes_devices(kind: &str) -> Result<()> {
    let link = match kind {
        "vlan" => "link probed0 name probed type vlan id 1",
        // Without another end, there is one already where the kernel has them.
        "sit" => "probed type sit remote 192.0.2.1",
        "ip6tnl" => "probed type ip6tnl remote 2001:db8::1",
        "vxlan" => "probed type vxlan id 1 dstport 4789",
        _ => &format!("probed type {kind}"),
    };
    let below = "link add probed0 type veth peer name probed1";
    NetNs::new()?.ip(&format!("{below}\nlink add {link}\n"))
}

fn loads(module: &str) -> bool {
    let loaded = Command::new("modprobe")
        .arg(module)
        .stderr(Stdio::null())
        .status();
    loaded.is_ok_and(|status| status.success())
}

fn knows_file_system(name: &str) -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.split_whitespace().any(|word| word == name)
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Loads it where it is a module.
fn has_ipvs() -> bool {
    let there = || Path::new("/proc/net/ip_vs").exists();
    let load = || {
        let mut modprobe = Command::new("modprobe");
        modprobe.args(["-aq", "ip_vs", "ip_vs_rr"]);
        modprobe
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    there() || (load() && there())
}

/// Whether there is a program of this name; a name with a slash is that of a file.
pub fn is_on_path(name: &str) -> bool {
    if name.contains('/') {
        return Path::new(name).is_file();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

fn missing_bpf() -> Option<String> {
    if let Err(error) = cgroup::mount_point() {
        return Some(error.to_string());
    }
    if !Path::new(crate::bpffs::MOUNT_POINT).is_dir() {
        return Some(format!("this kernel has no {}", crate::bpffs::MOUNT_POINT));
    }
    bpf::missing().map(|error| format!("the bpf system call fails: {error}"))
}

/// Why this kernel will not do, if it is older.
fn older_than(least: (u32, u32)) -> Option<String> {
    let name = nix::sys::utsname::uname().ok()?;
    let release = name.release().to_str()?;
    let mut numbers = release.split(['.', '-']).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return None;
    };
    let (wanted, its) = least;
    ((major, minor) < least).then(|| format!("this is Linux {release}, not {wanted}.{its}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_pairs_are_allowed() {
        let list = "# comment\n\ntraffic bpf # no BPF in the build container\n";
        assert!(is_allowed(list, "traffic", Need::Bpf));
        assert!(!is_allowed(list, "traffic", Need::Root));
        assert!(!is_allowed(list, "restart", Need::Bpf));
    }
}
