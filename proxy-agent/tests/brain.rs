//! `brain` as a process: any source in, states out, no rights needed, and none of it left behind.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Deserializer, Value};

/// How long anything may take; far above what it needs.
const LIMIT: Duration = Duration::from_secs(30);

/// Ended when dropped, if it is not over.
struct Brain(Child);

impl Drop for Brain {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn agent(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_proxy-agent"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Puts a Service on this port into `file`, in one step.
fn describe(file: &Path, port: u16) {
    let staged = file.with_extension("new");
    let service = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: shop}}\n\
         spec: {{clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], ports: [{{port: {port}}}]}}\n"
    );
    fs::write(&staged, service).unwrap();
    fs::rename(&staged, file).unwrap();
}

/// The states that are written, one after the other.
fn states(from: impl Read + Send + 'static) -> Receiver<Value> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for state in Deserializer::from_reader(from).into_iter() {
            if sender.send(state.unwrap()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Waits for a state with the Service on this port; addresses of this host may change meanwhile.
fn until(states: &Receiver<Value>, port: u16) {
    let is_there = |state: &Value| state["services"][0]["frontends"][0]["port"] == port;
    while !is_there(&states.recv_timeout(LIMIT).unwrap()) {}
}

#[test]
fn a_brain_tells_each_state_answers_questions_and_goes_when_told() {
    let directory = tempfile::tempdir().unwrap();
    let manifest = directory.path().join("web.yaml");
    describe(&manifest, 80);
    let socket = directory.path().join("brain.sock");
    let socket = socket.to_str().unwrap();
    let mut brain = agent(&["brain", "--node-name=n", "--output-file=-"])
        .args(["--healthz-bind-address=", "--metrics-bind-address="])
        .args(["--admin-socket", socket, "--manifests"])
        .arg(&manifest)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map(Brain)
        .unwrap();
    let states = states(brain.0.stdout.take().unwrap());
    until(&states, 80);
    let asked = agent(&["state", "--output=json", "--admin-socket", socket]).output();
    let told: Value = serde_json::from_slice(&asked.unwrap().stdout).unwrap();
    assert_eq!(told["agent"]["backend"], "none", "{told}");
    assert_eq!(told["agent"]["suffices"], true, "{told}");
    let asked = agent(&["state", "--kernel", "--admin-socket", socket]).output();
    let asked = asked.unwrap();
    let reason = String::from_utf8_lossy(&asked.stderr);
    assert!(!asked.status.success() && reason.contains("this is a brain"));
    describe(&manifest, 81);
    until(&states, 81);
    let pid = Pid::from_raw(brain.0.id().try_into().unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    assert!(brain.0.wait().unwrap().success());
    assert!(!Path::new(socket).exists(), "the socket was left behind");
}
