//! How many files an agent may have open, and what it says where that is too few.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

/// An agent of no use, with these limits.
fn brain(limits: &str) -> Child {
    let nothing = tempfile::tempdir().unwrap();
    let agent = env!("CARGO_BIN_EXE_proxy-agent");
    Command::new("sh")
        .arg("-c")
        .arg(format!(
            "ulimit -Sn 64; ulimit -H{limits}; exec \"$0\" \"$@\""
        ))
        .args([
            agent,
            "brain",
            "--node-name=n",
            "--output-file=-",
            "--manifests",
        ])
        .arg(nothing.path())
        .args(["--healthz-bind-address=", "--metrics-bind-address="])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn too_few_are_an_error_that_says_how_many_it_takes() {
    let output = brain("n 100").wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("may have 100 files open, and an agent needs 512"),
        "{said}"
    );
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn an_agent_takes_as_many_as_it_may_have() {
    let mut child = brain("n 600");
    // It runs once it says something.
    let mut line = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut line).unwrap();
    let limits = fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let open = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let words: Vec<_> = open.unwrap().split_whitespace().skip(3).take(2).collect();
    assert_eq!(words, ["600", "600"], "{line}");
}
