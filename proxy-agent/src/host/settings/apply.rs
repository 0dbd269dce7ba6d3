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

/// A setting that is not as it should be.
#[derive(Debug, Error)]
#[error(
    "setting {} to {value} failed: {error}; run an init container with --init-only, privileged and \
     in the network namespace of the host, or set it on the host", file.display()
)]
pub struct SettingError {
    /// The file.
    pub file: PathBuf,
    /// What it should hold.
    pub value: u64,
    /// Why it does not.
    pub error: io::Error,
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

/// Brings the settings into force below `root`, which is `/` but in tests. One that fails does not
/// stop the others. What is right already is not written.
pub fn apply(settings: &HostSettings, root: &Path) -> Applied {
    let mut applied = Applied::default();
    for wanted in settings.wanted(cpus()) {
        let (file, value) = (root.join(&wanted.file), wanted.value);
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
            Err(error) => applied.failed.push(SettingError { file, value, error }),
        }
    }
    applied
}

/// Applies the settings to this host. What fails is told, and serving goes on without it.
pub fn apply_and_tell(settings: &HostSettings) {
    let applied = apply(settings, Path::new("/"));
    for (file, value) in &applied.changed {
        tracing::info!(file = %file.display(), value, "setting of connection tracking changed");
    }
    if !applied.missing.is_empty() {
        let files = applied.missing.len();
        tracing::debug!(
            files,
            "connection tracking is not loaded: its settings are not there"
        );
    }
    for error in &applied.failed {
        if settings.explicit {
            tracing::warn!(%error, "setting of connection tracking not as configured");
        } else {
            tracing::info!(%error, "setting of connection tracking not as kube-proxy has it");
        }
    }
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
        let root = tempfile::tempdir().unwrap();
        let sysctl = root.path().join("proc/sys/net/netfilter");
        fs::create_dir_all(&sysctl).unwrap();
        let file = |name: &str| sysctl.join(format!("nf_conntrack_{name}"));
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
        let applied = apply(&settings, root.path());
        let established = file("tcp_timeout_established");
        assert_eq!(fs::read_to_string(&established).unwrap(), "86400");
        assert_eq!(applied.changed, [(established, 86400)]);
        assert_eq!(fs::read_to_string(file("max")).unwrap(), "2000000\n");
        let missing = root
            .path()
            .join("sys/module/nf_conntrack/parameters/hashsize");
        assert_eq!(applied.missing, [missing]);
        let [failed] = &*applied.failed else {
            panic!("{applied:?}");
        };
        let text = failed.to_string();
        assert!(
            text.contains("udp_timeout to 40") && text.contains("--init-only"),
            "{text}"
        );
        // A second time, nothing is left to do.
        assert!(apply(&settings, root.path()).changed.is_empty());
    }
}
