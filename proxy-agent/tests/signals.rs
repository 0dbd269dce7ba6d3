//! A signal is heard at any moment: an agent that is told to stop ends in order, and soon, whatever
//! it is caught in.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    fs::{self, File, OpenOptions},
    io::Read as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        signal::{Signal, kill},
        stat::Mode,
    },
    unistd::{Pid, mkfifo},
};

/// How long anything may take; far above what it needs.
const LIMIT: Duration = Duration::from_secs(30);

fn fifo(directory: &Path, name: &str) -> PathBuf {
    let path = directory.join(name);
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    path
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap())
}

fn agent(command: &str, arguments: &[&str]) -> (Child, ChildStderr) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_proxy-agent"))
        .args([command, "--node-name=n", "--log-format=json"])
        .args(["--healthz-bind-address=", "--metrics-bind-address="])
        .args(["--output-file=-"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = child.stderr.take().unwrap();
    (child, stderr)
}

/// Tells it to stop. It must end as one that was told to, and say what it was at.
#[track_caller]
fn stop((mut child, mut stderr): (Child, ChildStderr), doing: &str) {
    let pid = pid(&child);
    kill(pid, Signal::SIGTERM).unwrap();
    let (ended, end) = channel();
    let waiting = thread::spawn(move || {
        let code = child.wait().unwrap().code();
        ended.send(code).ok();
    });
    let code = end.recv_timeout(LIMIT);
    if code.is_err() {
        kill(pid, Signal::SIGKILL).unwrap();
    }
    waiting.join().unwrap();
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(code, Ok(Some(0)), "{said}");
    let last = said.lines().last().unwrap();
    assert!(
        last.contains("SIGTERM: stopping") && last.contains(doing),
        "{said}"
    );
}

/// Waits until somebody reads there, and goes on without ever writing.
fn read_from(fifo: &Path) -> File {
    let started = Instant::now();
    loop {
        // The kernel tells nobody when a reader comes: there is nothing to wait on but to ask.
        let opened = OpenOptions::new()
            .write(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open(fifo);
        if let Ok(file) = opened {
            return file;
        }
        assert!(started.elapsed() < LIMIT, "nobody reads {}", fifo.display());
        thread::yield_now();
    }
}

#[test]
fn while_a_file_is_read_that_never_ends() {
    let directory = tempfile::tempdir().unwrap();
    let manifest = fifo(directory.path(), "web.yaml");
    let socket = directory.path().join("agent.sock");
    for (command, flag, doing) in [
        ("brain", "--manifests", "reading the manifests"),
        ("brain", "--config", "reading the configuration"),
        ("run", "--config", "reading the configuration"),
    ] {
        let arguments = [
            "--admin-socket",
            socket.to_str().unwrap(),
            flag,
            manifest.to_str().unwrap(),
        ];
        let agent = agent(command, &arguments);
        let _nothing = read_from(&manifest);
        stop(agent, doing);
    }
}

/// Ended when dropped.
struct Plugin(Pid);

impl Drop for Plugin {
    fn drop(&mut self) {
        kill(self.0, Signal::SIGKILL).unwrap();
    }
}

#[test]
fn while_a_program_that_gives_credentials_hangs() {
    let directory = tempfile::tempdir().unwrap();
    let started = fifo(directory.path(), "started");
    let kubeconfig = directory.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         users:\n\
         - name: u\n  user:\n    exec:\n\
         \x20     apiVersion: client.authentication.k8s.io/v1\n\
         \x20     interactiveMode: Never\n\
         \x20     command: sh\n\
         \x20     args: ['-c', 'echo $$ > {}; exec sleep 1000']\n",
        started.display()
    );
    fs::write(&kubeconfig, text).unwrap();
    let agent = agent("brain", &["--kubeconfig", kubeconfig.to_str().unwrap()]);
    let (told, tells) = channel();
    thread::spawn(move || told.send(fs::read_to_string(&started).unwrap()).ok());
    let plugin = tells.recv_timeout(LIMIT).expect("the program is started");
    let _plugin = Plugin(Pid::from_raw(plugin.trim().parse().unwrap()));
    stop(agent, "getting credentials");
}
