//! Takes the lock of a directory, and tells who holds it. To tell, the lock is not tried: an agent that starts just
//! then would fail.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
    sys::stat::{major, minor},
};

/// How long a lock is waited for that no living process is seen to hold.
const MOMENT: Duration = Duration::from_secs(1);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Locks it, unless somebody else holds the lock. An agent that was killed may have left it, for a moment, to what it
/// had forked to run a program.
pub fn lock(mut directory: File) -> Result<Flock<File>, (File, Errno)> {
    let until = Instant::now() + MOMENT;
    loop {
        match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Err((again, Errno::EWOULDBLOCK)) if Instant::now() < until && !is_held(&again) => {
                directory = again;
                thread::sleep(LOOK);
            }
            ended => return ended,
        }
    }
}

/// Whether a living process is seen that holds the lock.
fn is_held(directory: &File) -> bool {
    let holders = holders(directory).into_iter();
    holders
        .map(|process| format!("/proc/{process}"))
        .any(|process| Path::new(&process).exists())
}

/// Process ids of those who hold a lock of this directory; of processes in other pid namespaces
/// nothing is seen.
pub fn holders(directory: &File) -> Vec<u32> {
    let Ok(there) = directory.metadata() else {
        return Vec::new();
    };
    let device = there.dev();
    let file = format!(
        "{:02x}:{:02x}:{}",
        major(device),
        minor(device),
        there.ino()
    );
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    of(&locks, &file)
}

/// `1: FLOCK  ADVISORY  WRITE 1234 00:1f:5678 0 EOF`, see `proc_locks(5)`. Those who wait for it
/// have an arrow behind the number.
fn of(locks: &str, file: &str) -> Vec<u32> {
    let holder = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields[..] {
            [_, "FLOCK", _, _, pid, at, ..] if at == file => pid.parse().ok(),
            _ => None,
        }
    };
    locks.lines().filter_map(holder).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn what_a_killed_agent_was_about_to_run_is_waited_for_and_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let open = || File::open(dir.path()).unwrap();
        // Its standard input is the lock, and who has taken that is gone.
        let mut left = Command::new("sh")
            .args(["-c", "flock 0 && echo && sleep 0.2"])
            .stdin(open())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        left.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        let locked = lock(open()).unwrap();
        left.wait().unwrap();
        assert!(is_held(&open()), "this process is there");
        assert!(lock(open()).is_err());
        drop(locked);
    }

    #[test]
    fn the_holder_of_the_lock_is_found_among_other_locks() {
        let locks = "\
1: POSIX  ADVISORY  WRITE 100 00:1f:5678 0 EOF
2: FLOCK  ADVISORY  WRITE 200 00:1f:567 0 EOF
2: -> FLOCK  ADVISORY  WRITE 250 00:1f:5678 0 EOF
3: FLOCK  ADVISORY  WRITE 300 00:1f:5678 0 EOF
4: FLOCK  ADVISORY  READ  400 00:1f:9 0 EOF
5: FLOCK  ADVISORY  READ  500 00:1f:9 0 EOF
";
        assert_eq!(of(locks, "00:1f:5678"), [300]);
        assert_eq!(of(locks, "00:1f:9"), [400, 500], "a lock can be shared");
        assert!(of(locks, "00:1f:1").is_empty());
    }

    #[test]
    fn a_lock_of_our_own_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let directory = File::open(dir.path()).unwrap();
        assert!(holders(&directory).is_empty());
        let file = directory.try_clone().unwrap();
        let lock = nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusive).unwrap();
        assert_eq!(holders(&directory), [std::process::id()]);
        drop(lock);
    }
}
