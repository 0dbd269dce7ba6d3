//! The demo: it proves what it shows, leaves nothing behind however it ends, and every command
//! it hands out works. Needs root and BPF.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use nix::sys::signal::Signal;
use proxy_harness::{
    agent, bpffs, cgroup,
    executable::AGENT_VARIABLE,
    process::Process,
    requires::{self, Need},
};

const NEEDS: &[Need] = &[Need::Root, Need::Bpf, Need::Tool("ip")];
/// How long one demo may take; far above what it needs.
const LIMIT: Duration = Duration::from_mins(2);

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command
        .args(arguments)
        .env(AGENT_VARIABLE, agent::path().expect("the agent builds"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Everything in shared places that the process `pid` has made.
fn left_by(pid: i32) -> Vec<String> {
    let name = format!("{}{pid}-", cgroup::PREFIX);
    let places = [
        cgroup::mount_point().expect("cgroup v2 is mounted"),
        Path::new(bpffs::MOUNT_POINT).to_owned(),
    ];
    places
        .iter()
        .flat_map(|place| std::fs::read_dir(place).expect("it is mounted"))
        .map(|entry| entry.expect("it can be read").path().display().to_string())
        .filter(|path| path.contains(&name))
        .collect()
}

#[test]
fn it_proves_its_claims_without_escape_codes_and_leaves_nothing() {
    if !requires::met("demo", NEEDS) {
        return;
    }
    let process = Process::spawn("demo", demo(&["--seconds", "4"])).unwrap();
    let pid = process.pid().as_raw();
    let done = process.finish(LIMIT).unwrap();
    assert_eq!(
        (done.code, done.stderr.as_str()),
        (Some(0), ""),
        "{}",
        done.stdout
    );
    for line in [
        "1 Requests to ClusterIPs reach every endpoint",
        "2 A Service without endpoints is refused at once",
        "3 A pod is replaced under traffic",
        "4 The agent is killed and restarted under traffic",
        "none failed",
        "✓ left behind: nothing",
    ] {
        assert!(
            done.stdout.contains(line),
            "{line:?} is not in\n{}",
            done.stdout
        );
    }
    assert!(!done.stdout.contains('\x1b'), "{}", done.stdout);
    assert_eq!(left_by(pid), [""; 0]);
}

#[test]
fn a_signal_at_any_moment_leaves_nothing() {
    if !requires::met("demo", NEEDS) {
        return;
    }
    // The signal comes when the demo has said this.
    for (line, signal) in [
        ("Culvert,", Signal::SIGTERM),
        ("1 ", Signal::SIGINT),
        ("3 ", Signal::SIGHUP),
        ("4 ", Signal::SIGINT),
    ] {
        let mut process = Process::spawn("demo", demo(&["--seconds", "4"])).unwrap();
        let pid = process.pid().as_raw();
        let mut stdout = BufReader::new(process.child().stdout.take().unwrap());
        let mut said = String::new();
        while !said.lines().last().unwrap_or_default().starts_with(line) {
            assert_ne!(
                stdout.read_line(&mut said).unwrap(),
                0,
                "{line:?} in\n{said}"
            );
        }
        process.signal(signal).unwrap();
        let status = process.wait(LIMIT).unwrap();
        stdout.read_to_string(&mut said).unwrap();
        assert_eq!(status.code(), Some(130), "{signal} at {line:?}:\n{said}");
        assert!(said.contains(&format!("stopped by {signal}")), "{said}");
        assert!(said.ends_with("✓ left behind: nothing\n"), "{said}");
        assert_eq!(left_by(pid), [""; 0], "{signal} at {line:?}");
    }
}

#[test]
fn the_commands_it_hands_out_work() {
    if !requires::met(
        "demo",
        &[NEEDS, &[Need::Tool("bpftool"), Need::Tool("curl")]].concat(),
    ) {
        return;
    }
    let mut process = Process::spawn("demo", demo(&["--keep", "--seconds", "4"])).unwrap();
    let mut stdout = BufReader::new(process.child().stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains("Ctrl-C takes everything down") {
        assert_ne!(stdout.read_line(&mut said).unwrap(), 0, "{said}");
    }
    let after = said.split("Look around").nth(1).unwrap();
    let commands: Vec<_> = after
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert!(commands.len() > 5, "{said}");
    for command in commands {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]);
        let done = Process::run(command, shell, LIMIT).unwrap();
        assert_eq!(done.code, Some(0), "{command}: {done:?}");
        assert!(!done.stdout.trim().is_empty(), "{command} shows nothing");
        assert_eq!(done.stderr, "", "{command}");
        if command.contains("curl") {
            let endpoint: Result<std::net::SocketAddr, _> = done.stdout.trim().parse();
            assert!(endpoint.is_ok(), "{command} gave {}", done.stdout);
        }
    }
    process.signal(Signal::SIGINT).unwrap();
    assert_eq!(
        process.wait(LIMIT).unwrap().code(),
        Some(0),
        "Ctrl-C is how --keep ends"
    );
}

#[test]
fn a_claim_that_does_not_hold_is_told() {
    if !requires::met("demo", NEEDS) {
        return;
    }
    // An agent that refuses nothing and serves nothing: it says that it serves, and idles.
    let fake = tempfile::Builder::new()
        .prefix("culvert-test-")
        .tempdir()
        .unwrap();
    let path = fake.path().join("proxy-agent");
    let script = "#!/bin/sh\n\
        [ \"$1\" = run ] || exit 0\n\
        echo '{\"fields\":{\"message\":\"backend chosen\",\"backend\":\"ebpf\"}}' >&2\n\
        echo '{\"fields\":{\"message\":\"serving\",\"backend\":\"ebpf\",\"refusal\":\"ECONNREFUSED\",\
        \"services\":25,\"maps_kib\":1,\"duration_ms\":1.5}}' >&2\n\
        exec sleep 60\n";
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = demo(&["--seconds", "4"]);
    command.env(AGENT_VARIABLE, &path);
    let done = Process::run("demo", command, LIMIT).unwrap();
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stdout.contains("✗ requests failed: "), "{done:?}");
    assert!(
        done.stdout
            .contains("shop/web http at 10.96.10.1:80: connect ENETUNREACH"),
        "{done:?}"
    );
    assert!(
        done.stdout.ends_with("✓ left behind: nothing\n"),
        "{done:?}"
    );
}
