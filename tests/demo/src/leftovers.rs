//! Looks for what the demo must not leave behind. Run after everything was taken down.

use std::{fs, path::Path};

use nix::{
    errno::Errno,
    sys::wait::{WaitPidFlag, waitpid},
    unistd::Pid,
};

use proxy_harness::{bpffs, cgroup};

/// Everything of this process that is still there: cgroups, pins, children, namespaces, and
/// `manifests`, the directory of the agent's manifests.
pub(super) fn find(manifests: &Path) -> Vec<String> {
    let mut left = Vec::new();
    let own = format!("{}{}-", cgroup::PREFIX, std::process::id());
    let mut places = vec![bpffs::MOUNT_POINT.into()];
    places.extend(cgroup::mount_point().ok());
    for place in places {
        let entries = fs::read_dir(place).into_iter().flatten();
        let ours = entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&own));
        left.extend(ours.map(|entry| entry.path().display().to_string()));
    }
    if manifests.exists() {
        left.push(manifests.display().to_string());
    }
    // ECHILD: there is neither a running child nor one that nobody waited for.
    if waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) != Err(Errno::ECHILD) {
        left.push("a child process".to_owned());
    }
    // A namespace without a name lives as long as a descriptor of it, or a process in it.
    let descriptors = fs::read_dir("/proc/self/fd").into_iter().flatten();
    for descriptor in descriptors.filter_map(Result::ok) {
        if let Ok(target) = fs::read_link(descriptor.path())
            && target.to_string_lossy().starts_with("net:[")
        {
            left.push(format!("the network namespace {}", target.display()));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_found() {
        // Needs no privileges: one's own namespace can be held as well as any other.
        let namespace = fs::File::open("/proc/self/ns/net").unwrap();
        let manifests = tempfile::tempdir().unwrap();
        let left = find(manifests.path()).join("\n");
        assert!(left.contains("the network namespace net:["), "{left}");
        assert!(left.contains(manifests.path().to_str().unwrap()), "{left}");
        drop(namespace);
    }
}
