//! Network namespaces held by a file descriptor.
//!
//! They have no name and no mount, so nothing is left when the process that holds them dies,
//! however it dies. Must not know what the namespaces are for.

use std::{
    fs::{self, File},
    io::Write as _,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context as _, Result, bail};
use nix::sched::{CloneFlags, setns, unshare};

use crate::process;

/// Per-namespace settings, written while the namespace is made.
const SYSCTLS: &[(&str, &str)] = &[
    // Addresses are usable at once: duplicate detection takes a second.
    ("ipv6/conf/all/accept_dad", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    // Who is refused is told so each time, however often it asks.
    ("ipv4/icmp_ratemask", "0"),
    ("ipv6/icmp/ratemask", "\n"),
    // All pods are on one wire: a node that forwards would send them past itself, and past what it
    // translates.
    ("ipv4/conf/all/accept_redirects", "0"),
    ("ipv4/conf/default/accept_redirects", "0"),
    ("ipv6/conf/all/accept_redirects", "0"),
    ("ipv6/conf/default/accept_redirects", "0"),
    // A load test opens more connections to one endpoint than there are ephemeral ports.
    ("ipv4/tcp_tw_reuse", "1"),
];

/// How often neighbours are to be forgotten before it is given up. One entry goes by itself at a time, if any does.
const NEIGHBOUR_TRIES: usize = 8;

/// A network namespace that lives as long as this value, its sockets and its processes.
#[derive(Debug)]
pub struct NetNs {
    fd: OwnedFd,
}

impl NetNs {
    /// Makes a namespace in which only the loopback device exists, and is down.
    pub fn new() -> Result<Self> {
        // A thread of its own, because the calling thread must stay where it is.
        let made = thread::scope(|scope| {
            scope
                .spawn(|| -> Result<OwnedFd> {
                    unshare(CloneFlags::CLONE_NEWNET)
                        .context("cannot make a network namespace (root is needed)")?;
                    set(SYSCTLS)?;
                    let path = "/proc/thread-self/ns/net";
                    Ok(File::open(path)
                        .with_context(|| format!("cannot open {path}"))?
                        .into())
                })
                .join()
        });
        match made {
            Ok(fd) => Ok(Self { fd: fd? }),
            Err(_) => bail!("the thread that makes a network namespace panicked"),
        }
    }

    /// A path that names this namespace to other programs (`ip link set … netns PATH`), valid
    /// while this value lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd())
    }

    /// Runs `work` on a thread inside this namespace: sockets it opens belong to the namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let done = thread::scope(|scope| {
            scope
                .spawn(|| {
                    setns(self.fd.as_fd(), CloneFlags::CLONE_NEWNET)
                        .context("cannot enter a network namespace")?;
                    Ok(work())
                })
                .join()
        });
        match done {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Sets sysctls of the namespace: names below `net/`, and values.
    pub fn sysctls(&self, settings: &[(&str, &str)]) -> Result<()> {
        self.run(|| set(settings))?
    }

    /// What is sent from the namespace has one of these ports, the first and the last one, unless it asks for
    /// another.
    pub fn sends_from(&self, [first, last]: [u16; 2]) -> Result<()> {
        self.sysctls(&[("ipv4/ip_local_port_range", &format!("{first} {last}"))])
    }

    /// Runs the lines of `script` as `ip` commands inside the namespace, in one process.
    pub fn ip(&self, script: &str) -> Result<()> {
        self.feed(&["ip", "-batch", "-"], script)
    }

    /// Forgets who answered on a device. `ip` deletes what it listed, one after the other, and fails when one has
    /// gone by itself in between: then it is asked again, a few times.
    pub fn forget_neighbours(&self, device: &str) -> Result<()> {
        let forget = || self.ip(&format!("neigh flush dev {device}\n"));
        let again = (1..NEIGHBOUR_TRIES).find_map(|_| forget().ok());
        again.map_or_else(forget, Ok)
    }

    /// Runs a program inside the namespace, with `input` to read.
    pub fn feed(&self, words: &[&str], input: &str) -> Result<()> {
        let (program, arguments) = words.split_first().context("no program is named")?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped());
        process::enter(&mut command, Some(self.fd.as_fd()), None)?;
        let mut child = process::fork(command)
            .with_context(|| format!("cannot run {program}; is its package installed?"))?;
        let mut stdin = child.stdin.take().context("it was started without stdin")?;
        stdin
            .write_all(input.as_bytes())
            .with_context(|| format!("cannot write to {program}"))?;
        drop(stdin);
        let output = child
            .wait_with_output()
            .with_context(|| format!("cannot wait for {program}"))?;
        if !output.status.success() {
            bail!(
                "{} failed: {}\nfor its input:\n{input}",
                words.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(())
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sets sysctls of the network namespace that the thread is in.
fn set(settings: &[(&str, &str)]) -> Result<()> {
    for (name, value) in settings {
        let path = format!("/proc/sys/net/{name}");
        fs::write(&path, value).with_context(|| format!("cannot set {path}"))?;
    }
    Ok(())
}
