//! Child processes that start inside a namespace and a cgroup and never outlive the test.
//!
//! A child gets SIGKILL when its parent dies (`PR_SET_PDEATHSIG`), so `kill -9` of a test leaves
//! no process behind.

use std::{
    io,
    os::{
        fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, OnceLock, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sched::{CloneFlags, setns},
    sys::{
        prctl,
        signal::{Signal, kill},
    },
    unistd::{Pid, write},
};

/// Makes `command` start in the network namespace and in the cgroup whose `cgroup.procs` file
/// is given. The descriptors are duplicated: they need not outlive the call.
pub fn enter(
    command: &mut Command,
    netns: Option<BorrowedFd<'_>>,
    cgroup_procs: Option<BorrowedFd<'_>>,
) -> Result<()> {
    let netns = netns.map(|fd| fd.try_clone_to_owned()).transpose()?;
    let procs = cgroup_procs.map(|fd| fd.try_clone_to_owned()).transpose()?;
    let parent = Pid::this();
    let prepare = move || {
        // The cgroup first: a socket belongs to the cgroup of its maker at that moment.
        if let Some(procs) = &procs {
            write(procs, b"0")?;
        }
        if let Some(netns) = &netns {
            setns(netns.as_fd(), CloneFlags::CLONE_NEWNET)?;
        }
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        // The parent may have died before the line above.
        if Pid::parent() != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    #[expect(
        unsafe_code,
        reason = "only a hook between fork and exec can enter a namespace"
    )]
    // SAFETY: the hook makes system calls on descriptors that it owns and allocates nothing, so
    // it is sound in a child forked from a process with threads.
    unsafe {
        command.pre_exec(prepare);
    }
    Ok(())
}

type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// Starts `command` from a thread that lives as long as this process.
///
/// The death signal of a child comes when the *thread* that forked it ends, and the threads of
/// a test runner end with their test.
///
/// The child gets a process group of its own: Ctrl-C on a terminal reaches this process only,
/// which then ends its children in order.
pub fn fork(mut command: Command) -> io::Result<Child> {
    static FORKER: OnceLock<Mutex<mpsc::Sender<Job>>> = OnceLock::new();
    command.process_group(0);
    let forker = FORKER.get_or_init(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for (mut command, reply) in jobs {
                // A caller that went away takes the child with it.
                if let Err(mpsc::SendError(Ok(mut orphan))) = reply.send(command.spawn()) {
                    reap(&mut orphan);
                }
            }
        });
        Mutex::new(sender)
    });
    let (reply, result) = mpsc::channel();
    forker
        .lock()
        .expect("no holder of the forker's lock can panic")
        .send((command, reply))
        .expect("the forker lives as long as the process");
    result.recv().expect("the forker answers every job")
}

fn reap(child: &mut Child) {
    // Both fail only when the child has already been waited for.
    child.kill().ok();
    child.wait().ok();
}

/// A child process, killed and reaped on drop.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    pidfd: OwnedFd,
}

impl Process {
    /// Starts `command`; `name` is what messages call it.
    pub fn spawn(name: &str, command: Command) -> Result<Self> {
        let program = command.get_program().to_owned();
        let mut child = fork(command)
            .with_context(|| format!("cannot start {name} ({})", program.display()))?;
        match pidfd_open(child.id()) {
            Ok(pidfd) => Ok(Self {
                name: name.to_owned(),
                child,
                pidfd,
            }),
            Err(error) => {
                reap(&mut child);
                Err(error).with_context(|| format!("cannot open a pidfd of {name}"))
            }
        }
    }

    /// The child, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Process id.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process id fits an i32"))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(self.pid(), signal).with_context(|| format!("cannot send {signal} to {}", self.name))
    }

    /// Waits for the end of the process, at most `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let timeout = PollTimeout::try_from(limit).context("the time limit is too long")?;
        let ended = loop {
            let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Err(nix::errno::Errno::EINTR) => {}
                result => break result.context("cannot poll a pidfd")?,
            }
        };
        if ended == 0 {
            bail!("{} did not end within {limit:?}", self.name);
        }
        self.child
            .wait()
            .with_context(|| format!("cannot wait for {}", self.name))
    }
}

/// What a program that ended by itself left.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// All it wrote to stdout.
    pub stdout: String,
    /// All it wrote to stderr.
    pub stderr: String,
}

impl Process {
    /// Runs `command` to its end, at most `limit`, and collects what it writes.
    pub fn run(name: &str, mut command: Command, limit: Duration) -> Result<Finished> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self::spawn(name, command)?.finish(limit)
    }

    /// Waits for the end of the process, at most `limit`, and collects what it writes to those
    /// of its outputs that are pipes and were not taken.
    pub fn finish(mut self, limit: Duration) -> Result<Finished> {
        let stdout = read_on_thread(self.child.stdout.take());
        let stderr = read_on_thread(self.child.stderr.take());
        let status = self.wait(limit);
        if status.is_err() {
            reap(&mut self.child);
        }
        let text = |reader: JoinHandle<String>| {
            reader
                .join()
                .map_err(|_| anyhow!("reading the output of {} failed", self.name))
        };
        let (stdout, stderr) = (text(stdout)?, text(stderr)?);
        let status =
            status.with_context(|| format!("stdout so far: {stdout}\nstderr so far: {stderr}"))?;
        Ok(Finished {
            code: status.code(),
            stdout,
            stderr,
        })
    }
}

fn read_on_thread(pipe: Option<impl io::Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is still worth showing.
            pipe.read_to_end(&mut bytes).ok();
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Drop for Process {
    fn drop(&mut self) {
        reap(&mut self.child);
    }
}

fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    #[expect(unsafe_code, reason = "neither std nor nix offers pidfd_open")]
    // SAFETY: pidfd_open takes two integers and returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = i32::try_from(fd).expect("a descriptor fits an i32");
    #[expect(unsafe_code, reason = "the descriptor comes from a raw system call")]
    // SAFETY: the kernel has just returned this descriptor to us and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `SIGKILL` for every process of `pids` that still exists.
pub(crate) fn kill_all(pids: impl IntoIterator<Item = i32>) {
    for pid in pids {
        // Gone already is what we want.
        kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
    }
}

/// Whether a process of this id exists.
pub(crate) fn is_alive(pid: u32) -> bool {
    std::path::Path::new("/proc").join(pid.to_string()).exists()
}
