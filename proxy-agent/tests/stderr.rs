//! Standard error decides nothing: an agent whose log nobody reads, or can be written, serves, hears
//! signals, and ends as any other.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    fs::{self, File},
    io::{PipeReader, Read as _, Write as _, pipe},
    process::{Child, Command, Stdio},
    sync::mpsc::channel,
    thread,
    time::Duration,
};

use nix::{
    fcntl::{FcntlArg, fcntl},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

/// How long anything may take; far above what it needs.
const LIMIT: Duration = Duration::from_secs(30);

const SERVICE: &str = "\
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], ports: [{port: 80}]}
";

/// What is behind standard error.
#[derive(Debug, Clone, Copy)]
enum Reader {
    /// Somebody who never reads, and a pipe that is full.
    Stalled,
    /// Nobody any more.
    Gone,
    /// A disk that is full.
    DiskFull,
}

const READERS: [Reader; 3] = [Reader::Stalled, Reader::Gone, Reader::DiskFull];

impl Reader {
    /// For a child; the end that nobody reads is held by whoever gets it.
    fn stderr(self) -> (Stdio, Option<PipeReader>) {
        let (reader, mut writer) = pipe().unwrap();
        match self {
            Self::Stalled => {
                let size = fcntl(&writer, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
                let full = vec![b'\n'; usize::try_from(size).unwrap()];
                writer.write_all(&full).unwrap();
                (writer.into(), Some(reader))
            }
            Self::Gone => (writer.into(), None),
            Self::DiskFull => (File::create("/dev/full").unwrap().into(), None),
        }
    }
}

fn agent(arguments: &[&str], reader: Reader) -> (Child, Option<PipeReader>) {
    let (stderr, held) = reader.stderr();
    let child = Command::new(env!("CARGO_BIN_EXE_proxy-agent"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .unwrap();
    (child, held)
}

/// The exit code, which must come in time.
fn code(mut child: Child) -> Option<i32> {
    let pid = Pid::from_raw(child.id().try_into().unwrap());
    let (ended, end) = channel();
    let waiting = thread::spawn(move || {
        ended.send(child.wait().unwrap().code()).ok();
    });
    let code = end.recv_timeout(LIMIT);
    if code.is_err() {
        kill(pid, Signal::SIGKILL).unwrap();
    }
    waiting.join().unwrap();
    code.expect("the agent should end")
}

#[test]
fn whoever_reads_the_log_or_does_not_the_agent_serves_until_it_is_told_to_stop() {
    let directory = tempfile::tempdir().unwrap();
    let manifest = directory.path().join("web.yaml");
    fs::write(&manifest, SERVICE).unwrap();
    for (number, reader) in READERS.into_iter().enumerate() {
        let socket = directory.path().join(format!("{number}.sock"));
        let arguments = [
            "brain",
            "--node-name=n",
            "--output-file=-",
            "--log-level=trace",
            "--healthz-bind-address=",
            "--metrics-bind-address=",
            "--admin-socket",
            socket.to_str().unwrap(),
            "--manifests",
            manifest.to_str().unwrap(),
        ];
        let (mut child, _held) = agent(&arguments, reader);
        let stdout = child.stdout.take().unwrap();
        let (told, states) = channel();
        thread::spawn(move || {
            for state in serde_json::Deserializer::from_reader(stdout).into_iter::<Value>() {
                if state.is_err() || told.send(()).is_err() {
                    return;
                }
            }
        });
        let served = states.recv_timeout(LIMIT);
        let pid = Pid::from_raw(child.id().try_into().unwrap());
        if served.is_ok() {
            kill(pid, Signal::SIGTERM).unwrap();
        } else {
            child.kill().unwrap();
        }
        assert_eq!((served.is_ok(), code(child)), (true, Some(0)), "{reader:?}");
    }
}

#[test]
fn an_error_has_its_exit_code_whoever_reads_it() {
    for reader in READERS {
        for arguments in [
            &["brain", "--node-name=n", "--manifests=missing.yaml"][..],
            &["run", "--node-name=n", "--manifests=missing.yaml"],
            &[
                "run",
                "--node-name=n",
                "--manifests=x",
                "--log-format=text",
                "--map-size=NOTHING=1",
            ],
            &["run", "--manifests=x", "--log-level=proxy_agent=loud"],
            &["state", "--node-name=n", "--manifests=missing.yaml"],
        ] {
            let (child, _held) = agent(arguments, reader);
            assert_eq!(code(child), Some(2), "{reader:?} {arguments:?}");
        }
    }
}

#[test]
fn a_result_that_cannot_be_written_is_an_error_that_nobody_has_to_read() {
    let directory = tempfile::tempdir().unwrap();
    let manifest = directory.path().join("web.yaml");
    fs::write(&manifest, SERVICE).unwrap();
    let (stderr, _held) = Reader::DiskFull.stderr();
    let child = Command::new(env!("CARGO_BIN_EXE_proxy-agent"))
        .args(["state", "--node-name=n", "--output=json", "--manifests"])
        .arg(&manifest)
        .stdin(Stdio::null())
        .stdout(File::create("/dev/full").unwrap())
        .stderr(stderr)
        .spawn()
        .unwrap();
    assert_eq!(code(child), Some(1));
}

#[test]
fn what_was_said_last_is_read() {
    let (mut reader, writer) = pipe().unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_proxy-agent"))
        .args(["run", "--node-name=n", "--manifests=missing.yaml"])
        .stdin(Stdio::null())
        .stderr(writer)
        .spawn()
        .unwrap();
    assert_eq!(code(child), Some(2));
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert!(said.contains("missing.yaml"), "{said}");
}
