//! Reads and writes the files of [`HostSettings`]. Knows nothing of what they should hold.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use nix::{
    sched::{CpuSet, sched_getaffinity},
    unistd::Pid,
};
use thiserror::Error;

use super::HostSettings;
use crate::host::mounts;

/// In the file system `proc`.
const SYSCTLS: &str = "/sys/net/netfilter";

/// A setting that is not as it should be.
#[derive(Debug, Error)]
#[error(
    "setting {} to {value} failed: {error}; {advice}", file.display(), advice = advice(error)
)]
pub struct SettingError {
    /// The file.
    pub file: PathBuf,
    /// What it should hold.
    pub value: u64,
    /// Whether somebody asked for that, other than the defaults.
    pub is_asked_for: bool,
    /// Why it does not.
    pub error: io::Error,
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::InvalidInput => "the kernel takes no such value: give another one",
        _ => {
            "mount the host's /proc/sys/net into this container, run --init-only in a privileged one \
             before it, or set it on the host"
        }
    }
}

/// What came of all settings.
#[derive(Debug, Default)]
pub struct Applied {
    /// Files that were changed, and what they hold now.
    pub changed: Vec<(PathBuf, u64)>,
    /// Files that are not there: connection tracking is not loaded, or has no such setting.
    pub missing: Vec<PathBuf>,
    /// What could not be read or written.
    pub failed: Vec<SettingError>,
}

/// Brings the settings into force in a directory of sysctls. One that fails does not stop the others. What
/// is right already is not written.
fn apply(settings: &HostSettings, directory: &Path) -> Applied {
    let mut applied = Applied::default();
    for wanted in settings.wanted(cpus()) {
        let (file, value) = (directory.join(&wanted.file), wanted.value);
        let written = read(&file).and_then(|now| {
            let differs = wanted.differs(now);
            if differs {
                fs::write(&file, value.to_string())?;
            }
            Ok(differs)
        });
        match written {
            Ok(true) => applied.changed.push((file, value)),
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => applied.missing.push(file),
            Err(error) => applied.failed.push(SettingError {
                file,
                value,
                is_asked_for: wanted.is_asked_for,
                error,
            }),
        }
    }
    applied
}

/// Brings the settings into force on this host, with its connection tracking loaded: what is loaded
/// later would have other values, and whoever may load it need not have the right to set them.
pub fn apply_here(settings: &HostSettings) -> Applied {
    let table = fs::read_to_string(mounts::TABLE).unwrap_or_default();
    let directory = sysctls(&table);
    let applied = apply(settings, &directory);
    // It may have been loaded, and lack some of it.
    if applied.missing.is_empty() || proxy_conntrack::load().is_err() {
        return applied;
    }
    let mut loaded = apply(settings, &directory);
    loaded.changed.splice(0..0, applied.changed);
    loaded
}

/// Applies the settings to this host. What fails is told, and serving goes on without it.
pub fn apply_and_tell(settings: &HostSettings) {
    let applied = apply_here(settings);
    for (file, value) in &applied.changed {
        tracing::info!(file = %file.display(), value, "setting of connection tracking changed");
    }
    if !applied.missing.is_empty() {
        let files = applied.missing.len();
        tracing::debug!(
            files,
            "the kernel has no connection tracking, or not all of its settings"
        );
    }
    for error in &applied.failed {
        if error.is_asked_for {
            tracing::warn!(%error, "setting of connection tracking not as configured");
        } else {
            tracing::info!(%error, "setting of connection tracking not as kube-proxy has it");
        }
    }
}

/// Where the sysctls of netfilter can be written, if anywhere. Container runtimes make `/proc/sys` read-only
/// but for privileged containers; the host's `/proc/sys/net` can be mounted elsewhere, and shows the network
/// namespace of whoever looks there, too.
fn sysctls(table: &str) -> PathBuf {
    let mut elsewhere = mounts::each(table).filter_map(|mount| {
        let below = Path::new(SYSCTLS).strip_prefix(mount.root).ok()?;
        // Where all of it is mounted, something else may cover a part.
        let counts = mount.kind == "proc" && mount.writable && mount.root != "/";
        counts.then(|| mount.at.join(below))
    });
    elsewhere
        .next_back()
        .unwrap_or_else(|| format!("/proc{SYSCTLS}").into())
}

fn read(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    text.trim().parse().map_err(io::Error::other)
}

/// CPUs that this process may run on, as Go counts them. A quota of the cgroup, which
/// `available_parallelism` counts, says nothing about how many connections the host has.
fn cpus() -> u32 {
    let count = |set: CpuSet| {
        let all = 0..CpuSet::count();
        all.filter(|cpu| set.is_set(*cpu) == Ok(true)).count()
    };
    let counted = sched_getaffinity(Pid::from_raw(0)).map_or(1, count);
    u32::try_from(counted).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proxy_backend::Timeouts;

    use super::*;

    #[test]
    fn what_differs_is_written_and_each_failure_is_of_its_own_file() {
        let sysctls = tempfile::tempdir().unwrap();
        let sysctls = sysctls.path();
        let file = |name: &str| sysctls.join(format!("nf_conntrack_{name}"));
        fs::write(file("max"), "2000000\n").unwrap();
        fs::write(file("tcp_timeout_established"), "432000\n").unwrap();
        // A directory can be neither read nor written.
        fs::create_dir(file("udp_timeout")).unwrap();
        let settings = HostSettings {
            max_per_core: 32768,
            timeouts: Timeouts {
                tcp_established: Some(Duration::from_hours(24)),
                udp: Some(Duration::from_secs(40)),
                tcp_close_wait: None,
                udp_stream: None,
            },
            ..HostSettings::default()
        };
        let applied = apply(&settings, sysctls);
        let established = file("tcp_timeout_established");
        assert_eq!(fs::read_to_string(&established).unwrap(), "86400");
        assert_eq!(applied.changed, [(established, 86400)]);
        assert_eq!(fs::read_to_string(file("max")).unwrap(), "2000000\n");
        assert_eq!(applied.missing, [file("buckets")]);
        let [failed] = &*applied.failed else {
            panic!("{applied:?}");
        };
        assert!(failed.is_asked_for);
        let text = failed.to_string();
        assert!(
            text.contains("udp_timeout to 40") && text.contains("--init-only"),
            "{text}"
        );
        // A second time, nothing is left to do.
        assert!(apply(&settings, sysctls).changed.is_empty());
    }

    #[test]
    fn sysctls_are_written_where_a_container_may() {
        let host = "\
22 21 0:20 / /proc rw,nosuid shared:7 - proc proc rw
23 22 0:21 / /proc/sys/fs/binfmt_misc rw - binfmt_misc binfmt_misc rw
";
        assert_eq!(sysctls(host), Path::new("/proc/sys/net/netfilter"));
        // The host's has options of its own.
        let container = "\
30 29 0:50 / /proc rw,nosuid - proc proc rw
31 30 0:50 /sys /proc/sys ro,nosuid - proc proc rw
32 29 0:20 /sys/net /host/proc/sys/net rw,nosuid - proc proc rw
33 29 0:20 /sys/kernel /host/kernel rw,nosuid - proc proc rw
";
        let elsewhere = Path::new("/host/proc/sys/net/netfilter");
        assert_eq!(sysctls(container), elsewhere);
        let read_only = container.replace("/sys/net rw", "/sys/net ro");
        assert_eq!(sysctls(&read_only), Path::new("/proc/sys/net/netfilter"));
    }
}
