//! Runs a command inside of a bare root: in namespaces of its own, with the kernel and the network
//! of this machine.
//!
//! Mounts, processes and the cgroup end with the command, and with this process, `kill -9`
//! included.

use std::fs;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use super::cgroup::Cgroup;
use super::machine::Machine;
use super::root::{CHECKOUT, Root};
use crate::stop::{StopSignals, Stopped};

const OUTSIDE: &str = include_str!("../../fresh/outside.sh");
const INSIDE: &str = include_str!("../../fresh/inside.sh");

/// Where the script inside notes what is left, seen from there.
const LEFT: &str = "/var/tmp/left-behind";

/// How often the command is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How long a command that got Ctrl-C, as all of the terminal did, has to take down what it made.
const TIDYING: Duration = Duration::from_secs(30);

/// How a command ended.
pub(super) struct Ended {
    /// Its exit code.
    pub(super) code: i32,
    /// What it left behind.
    pub(super) left: Vec<String>,
}

/// Runs it, with the terminal of this process.
pub(super) fn run(
    root: &Root,
    machine: &Machine,
    cgroup: &Cgroup,
    command: &str,
    stop: &StopSignals,
) -> Result<Ended> {
    let left = root.path().join(LEFT.trim_start_matches('/'));
    match fs::remove_file(&left) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("removing {}", left.display()));
        }
        _ => {}
    }
    let mut enter = Command::new("setpriv");
    enter
        .args(["--pdeathsig", "KILL", "--", "sh", "-c", OUTSIDE, "sh"])
        .arg(cgroup.path())
        .arg(INSIDE)
        .arg(root.path())
        .args([machine.rustup(), machine.proxies()])
        .args([CHECKOUT, command, LEFT])
        .env_clear()
        .envs(machine.environment());
    let mut child = Running(
        enter
            .spawn()
            .context("starting a shell in the bare root (`setpriv`, `unshare` of util-linux)")?,
    );
    let code = child.wait(stop)?;
    let left = fs::read_to_string(&left).with_context(|| {
        format!(
            "the bare root {} could not be entered (exit code {code}): the first process inside \
             wrote nothing; what stopped it is above",
            root.path().display()
        )
    })?;
    Ok(Ended {
        code,
        left: left.lines().map(str::to_owned).collect(),
    })
}

/// All that runs inside, killed with this value.
struct Running(Child);

impl Running {
    fn wait(&mut self, stop: &StopSignals) -> Result<i32> {
        let mut asked: Option<(Signal, Instant)> = None;
        loop {
            let ended = self.0.try_wait().context("waiting for the bare root")?;
            asked = match asked {
                None => stop.pending()?.map(|signal| (signal, Instant::now())),
                some => some,
            };
            match (ended, asked) {
                (Some(_), Some((signal, _))) => return Err(Stopped(signal).into()),
                (Some(status), None) => return Ok(status.code().unwrap_or(-1)),
                (None, Some((signal, since)))
                    if signal != Signal::SIGINT || since.elapsed() > TIDYING =>
                {
                    return Err(Stopped(signal).into());
                }
                (None, _) => thread::sleep(LOOK),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The first process inside dies with its parent, and takes all others along.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;
    use crate::setup::apt;

    /// A root of links into what the machine lends. None without the rights to enter it.
    fn root(place: &Path) -> Option<Root> {
        if !apt::is_root() {
            eprintln!("SKIPPED: entering a root takes root");
            return None;
        }
        for dir in ["dev", "proc", "run", "sys", "tmp", "var/tmp"] {
            fs::create_dir_all(place.join(dir)).unwrap();
        }
        fs::create_dir_all(place.join(CHECKOUT.trim_start_matches('/'))).unwrap();
        for dir in ["bin", "lib", "lib64", "sbin"] {
            symlink(format!("usr/{dir}"), place.join(dir)).unwrap();
        }
        Some(Root::again(place).unwrap())
    }

    /// Nothing of it is mounted, and nothing runs in its cgroup.
    fn assert_clean(place: &Path, cgroup: Cgroup) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(place.to_str().unwrap()), "{mounts}");
        let path = cgroup.path().to_owned();
        drop(cgroup);
        assert!(!path.exists(), "{}", path.display());
    }

    #[test]
    fn a_command_sees_a_machine_of_its_own_and_what_it_leaves_is_told() {
        let place = tempfile::tempdir().unwrap();
        let Some(root) = root(place.path()) else {
            return;
        };
        let stop = StopSignals::block().unwrap();
        let machine = Machine::lending_all();
        let cgroup = Cgroup::new().unwrap();
        let runs = |command: &str| run(&root, &machine, &cgroup, command, &stop).unwrap();

        let tidy = runs("test -c /dev/null && test $(pwd) = /root/culvert && ! test -w /usr");
        assert_eq!((tidy.code, tidy.left), (0, Vec::new()));
        let place_outside = place.path().display();
        let alone = runs(&format!(
            "test $(ls -d /proc/[0-9]* | wc -l) -lt 8 && ! grep -q {place_outside} /proc/mounts"
        ));
        assert_eq!(alone.code, 0, "it sees processes or mounts of others");
        let untidy = runs(
            "touch /tmp/a; mkdir /sys/fs/bpf/b /sys/fs/cgroup/c /mnt; mount -t tmpfs none /mnt; \
             sleep 1000 & exit 3",
        );
        assert_eq!(untidy.code, 3);
        let left = [
            "/sys/fs/bpf/b",
            "/sys/fs/cgroup/c",
            "/tmp/a",
            "mount /mnt",
            "process (sleep)",
        ];
        assert_eq!(untidy.left, left);
        assert_clean(place.path(), cgroup);
    }

    #[test]
    fn asked_to_stop_it_ends_all_that_runs_inside() {
        let place = tempfile::tempdir().unwrap();
        let Some(root) = root(place.path()) else {
            return;
        };
        let stop = StopSignals::block().unwrap();
        let cgroup = Cgroup::new().unwrap();
        let started = place.path().join("tmp/started");
        nix::unistd::mkfifo(&started, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let waiting = nix::sys::pthread::pthread_self();
        let asker = thread::spawn(move || {
            // Opens once the command does.
            drop(fs::File::open(&started).unwrap());
            // To that thread alone: the other tests of this process do not hold it back.
            nix::sys::pthread::pthread_kill(waiting, Signal::SIGTERM).unwrap();
        });
        let command = "sleep 1000 & echo >/tmp/started; sleep 1000";
        let ended = run(&root, &Machine::lending_all(), &cgroup, command, &stop);
        asker.join().unwrap();
        assert!(ended.err().unwrap().is::<Stopped>());
        assert_clean(place.path(), cgroup);
    }
}
