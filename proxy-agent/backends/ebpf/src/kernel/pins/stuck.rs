//! A lock that is held by somebody who can be no agent. While others could look into the directory
//! (mode 0755 in earlier versions), anybody could lock it, and go on holding it. So that nobody
//! without rights decides whether there is a proxy, what is pinned moves to a new directory.

use std::{
    fs::{self, File},
    io,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
};

use nix::fcntl::{Flock, FlockArg};

use super::{
    super::{OpenError, rights},
    bpffs, holders,
    strangers::is_trusted,
    way::{self, Way},
};

/// Who holds the lock, if that can only be users without rights. What cannot be seen may be an
/// agent in a container.
pub fn stranger_with(directory: &File) -> Option<String> {
    let holders = holders(directory);
    let strangers: Option<Vec<_>> = holders.iter().map(|process| stranger(*process)).collect();
    strangers?.into_iter().next()
}

/// `None` if that process may be an agent.
fn stranger(process: u32) -> Option<String> {
    let Ok(status) = fs::read_to_string(format!("/proc/{process}/status")) else {
        // An agent holds its lock itself, and every one of this host can be seen from there.
        let ended = bpffs::sees_every_process();
        return ended.then(|| format!("whom process {process}, which has ended, left it to"));
    };
    let user = real_user(&status)?;
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/user"));
    // In a user namespace of their own everybody has all rights, which count for nothing here.
    let ours = match (namespace(&process.to_string()), namespace("self")) {
        (Ok(theirs), Ok(ours)) => theirs == ours,
        _ => true,
    };
    let may_be_agent = is_trusted(user) || (ours && rights::suffices(&status));
    (!may_be_agent).then(|| format!("process {process} of user {user}"))
}

/// The user who started it, whatever rights the program that it executes gives it.
fn real_user(status: &str) -> Option<u32> {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().next()?.parse().ok()
}

/// Puts a new directory with all that is pinned in the place of the one that is locked.
pub fn replace(path: &Path, holder: &str) -> Result<(), OpenError> {
    let refused = |reason: String| {
        OpenError::Host(format!(
            "{holder}, which is no agent, holds the lock of pin directory {}{reason}; end that \
             process",
            path.display()
        ))
    };
    let failed = |what: &Path, error: &io::Error| {
        refused(format!(", and moving {}: {error}", what.display()))
    };
    let (Some(name), false) = (path.file_name(), bpffs::root(path) == Some(path)) else {
        return Err(refused(String::new()));
    };
    let Way::Directory(old) = way::find(path)? else {
        return Ok(());
    };
    let mut beside = name.to_owned();
    beside.push("-next");
    let beside = path.with_file_name(beside);
    let (new, _) = way::make(&beside)?;
    // Another agent may be at the same. What one that was killed has moved is there already.
    let new = Flock::lock(new, FlockArg::LockExclusiveNonblock)
        .map_err(|_| OpenError::Locked(beside.clone()))?;
    let [from, to] =
        [&old, &*new].map(|one| PathBuf::from(format!("/proc/self/fd/{}", one.as_raw_fd())));
    for entry in fs::read_dir(&from).map_err(|error| failed(path, &error))? {
        let name = entry.map_err(|error| failed(path, &error))?.file_name();
        fs::rename(from.join(&name), to.join(&name))
            .map_err(|error| failed(&path.join(&name), &error))?;
    }
    fs::rename(&beside, path).map_err(|error| failed(&beside, &error))?;
    tracing::warn!(
        path = %path.display(),
        holder,
        "pins moved from a directory that another user locks"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_who_started_a_process_counts() {
        let status = "Name:\tsu\nUid:\t65534\t0\t0\t0\nGid:\t0\t0\t0\t0\n";
        assert_eq!(real_user(status), Some(65534));
        assert_eq!(real_user("Name:\tx\n"), None);
        // This process may be an agent.
        assert_eq!(stranger(std::process::id()), None);
    }
}
