//! Virtual machines with other kernels, made for one command and thrown away.
//!
//! The guest sees the host's whole file system, read-only under a memory file system of its own,
//! so what was built here runs there as it is. Knows nothing of what the command does.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use xtask::paths;

use crate::progress::seconds;
use crate::stop::{StopSignals, Stopped};

mod cpio;
pub(crate) mod hypervisor;
mod initramfs;
pub(crate) mod kernels;
pub(crate) mod unpacked;

/// Processors of a guest.
pub(crate) const CPUS: usize = 2;

/// How often a running guest is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// After how much silence a line says that the guest is still at work.
const SILENCE: Duration = Duration::from_secs(20);

/// How long the file system daemons get to open their sockets.
const DAEMON_START: Duration = Duration::from_secs(10);

/// What to run in a guest.
pub(crate) struct Job<'a> {
    /// Which kernel.
    pub(crate) line: kernels::Line,
    /// A bash script, run by root.
    pub(crate) script: &'a str,
    /// Processors of the guest.
    pub(crate) cpus: usize,
    /// When to give up.
    pub(crate) time_limit: Duration,
}

/// Boots a guest, runs the job in it, and calls `on_line` with each line it prints. Returns the
/// exit code of the script.
///
/// Fails when the guest does not boot, dies, or takes longer than the limit, with the end of its
/// console. Whatever happens, `kill -9` of this process included, no process is left behind.
pub(crate) fn run(job: &Job<'_>, mut on_line: impl FnMut(&str)) -> Result<i32> {
    let cache = paths::cache_dir()?;
    let kernel = kernels::find(&cache, job.line)
        .with_context(|| format!("kernel {} is not in {}", job.line, cache.display()))?;
    let missing = |what| format!("{what} is not installed: run `cargo xtask setup --vm`");
    let qemu = hypervisor::emulator(&cache).with_context(|| missing("qemu"))?;
    let daemon = hypervisor::virtiofsd(&cache).with_context(|| missing("virtiofsd"))?;
    let busybox = hypervisor::static_busybox().with_context(|| missing("a static busybox"))?;

    // Blocked before the first child is there, so that no signal can end us between two of them.
    let stop = StopSignals::block()?;
    let work = tempfile::Builder::new().prefix("culvert-vm-").tempdir();
    let work = work.context("making a directory for the virtual machine")?;
    let control = work.path().join("control");
    write_control(&control, job.script)?;
    let initramfs = work.path().join("initramfs");
    initramfs::write(&initramfs, &kernel, &busybox)?;

    let shares = [
        ("host", work.path().join("host.sock")),
        ("control", work.path().join("control.sock")),
    ];
    let mut children = Children::default();
    for ((tag, socket), (dir, cached)) in shares
        .iter()
        .zip([(Path::new("/"), true), (&control, false)])
    {
        let mut command = hypervisor::share(&daemon, dir, socket, cached);
        let log = work.path().join(format!("{tag}.log"));
        children.start(command.stdout(create(&log)?).stderr(create(&log)?))?;
        wait_for_socket(socket, &log)?;
    }
    let console = work.path().join("console");
    let guest = hypervisor::Guest {
        kernel: &kernel,
        initramfs: &initramfs,
        shares: &shares,
        console: &console,
        cpus: job.cpus,
        take_turns: job.line.processors_take_turns(),
    };
    // A process group of its own: Ctrl-C is ours to handle, in order.
    let output = children.start(
        hypervisor::qemu(&qemu, &guest)
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(create(&work.path().join("qemu.log"))?),
    )?;
    let output = output.stdout.take().expect("standard output was piped");
    let ended = pump(&lines_of(output), job, &stop, &mut on_line);
    drop(children);
    ended?;
    match fs::read_to_string(control.join("exit-code")) {
        Ok(code) => code
            .trim()
            .parse()
            .context("the guest wrote an exit code that is no number"),
        Err(_) => bail!(
            "the virtual machine with kernel {} died without a result; the end of its console:\n{}{}",
            kernel.release,
            tail(&work.path().join("qemu.log")),
            tail(&console)
        ),
    }
}

fn write_control(control: &Path, script: &str) -> Result<()> {
    fs::create_dir(control).with_context(|| format!("making {}", control.display()))?;
    for (name, content) in [
        ("second.sh", include_str!("../vm/second.sh")),
        ("command.sh", script),
    ] {
        let file = control.join(name);
        fs::write(&file, content).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

fn create(file: &Path) -> Result<fs::File> {
    let opened = fs::OpenOptions::new().create(true).append(true).open(file);
    opened.with_context(|| format!("making {}", file.display()))
}

fn wait_for_socket(socket: &Path, log: &Path) -> Result<()> {
    let started = Instant::now();
    while !socket.exists() {
        if started.elapsed() > DAEMON_START {
            bail!("virtiofsd opened no socket; it said:\n{}", tail(log));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Lines that something prints, from a thread that ends when it does.
fn lines_of(output: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output
            .read_until(b'\n', &mut line)
            .is_ok_and(|length| length > 0)
        {
            let text = String::from_utf8_lossy(&line);
            if send
                .send(text.trim_end_matches(['\r', '\n']).to_owned())
                .is_err()
            {
                return;
            }
            line.clear();
        }
    });
    receive
}

/// Hands lines on until the guest has ended, the time is up or somebody wants to stop.
fn pump(
    lines: &Receiver<String>,
    job: &Job<'_>,
    stop: &StopSignals,
    on_line: &mut impl FnMut(&str),
) -> Result<()> {
    let started = Instant::now();
    let mut last_sign = Instant::now();
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(line) => {
                on_line(&line);
                last_sign = Instant::now();
            }
            // Its output ends when qemu does.
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(signal) = stop.pending()? {
            return Err(Stopped(signal).into());
        }
        if started.elapsed() > job.time_limit {
            let limit = seconds(job.time_limit);
            bail!(
                "the virtual machine with kernel {} ran longer than {limit}",
                job.line
            );
        }
        if last_sign.elapsed() > SILENCE {
            eprintln!(
                "    kernel {}: {} so far",
                job.line,
                seconds(started.elapsed())
            );
            last_sign = Instant::now();
        }
    }
}

/// The end of a log, empty if there is none.
fn tail(file: &Path) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(25)..].join(
        "
",
    )
}

/// Child processes that end with this value.
#[derive(Default)]
struct Children(Vec<(PathBuf, Child)>);

impl Children {
    fn start(&mut self, command: &mut std::process::Command) -> Result<&mut Child> {
        // All of them run under `setpriv`; what they are is its last plain argument.
        let name = PathBuf::from(command.get_program());
        let child = command
            .spawn()
            .with_context(|| format!("starting {}", name.display()))?;
        self.0.push((name, child));
        Ok(&mut self.0.last_mut().expect("one was just added").1)
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        // qemu first, or it would complain that its file systems are gone.
        for (name, child) in self.0.iter_mut().rev() {
            if let Err(error) = child.kill().and_then(|()| child.wait()) {
                eprintln!("ending {}: {error}", name.display());
            }
        }
    }
}
