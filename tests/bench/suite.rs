//! The bench: that it measures, says so in its JSON, and leaves nothing behind. What the figures
//! are is no test's business: this machine is busy with other tests. Needs root and BPF, except to
//! draw what was measured before.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use nix::sys::signal::Signal;
use proxy_harness::{
    agent, bpffs, cgroup,
    executable::AGENT_VARIABLE,
    process::Process,
    requires::{self, PRIVILEGED},
};
use serde_json::Value;

/// How long the bench may take; far above what it needs, even where others work, too.
const LIMIT: Duration = Duration::from_mins(10);

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command
        .args(arguments)
        .env(AGENT_VARIABLE, agent::path().expect("the agent builds"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Whether the process `pid` has left anything in shared places.
fn leaves_anything(pid: i32) -> bool {
    let name = format!("{}{pid}-", cgroup::PREFIX);
    let cgroups = cgroup::mount_point().expect("cgroup v2 is mounted");
    [cgroups.as_path(), Path::new(bpffs::MOUNT_POINT)]
        .iter()
        .flat_map(|place| fs::read_dir(place).expect("it is mounted"))
        .any(|entry| {
            let entry = entry.expect("it can be read");
            entry.file_name().to_string_lossy().starts_with(&name)
        })
}

/// Some that must be there: bench, case, metric.
const FIGURES: &[(&str, &str, &str)] = &[
    ("tcp-connect", "10 services", "ratio to direct"),
    ("tcp-connect", "1,000 services", "ratio to direct"),
    ("tcp-connect", "1,000 against 10 services", "ratio"),
    (
        "udp-request",
        "new connected socket each, 1,000 services",
        "ratio to direct",
    ),
    ("program-time", "TCP connect", "culvert_conn4"),
    ("program-time", "TCP connect", "all programs"),
    (
        "connections-held",
        "20000 connections open, 65536 places",
        "CPU added to a connect",
    ),
    ("sync", "1,000 services", "one endpoint added"),
    (
        "backends",
        "1,000 services, nftables",
        "change to first connection, p99",
    ),
    (
        "backends",
        "1,000 services, layers",
        "connect, p50 to endpoint / to Service",
    ),
    ("backends", "1,000 services, ebpf", "TCP stream to Service"),
    (
        "backends",
        "10 services, no proxy",
        "connect, p99 to endpoint",
    ),
    (
        "outside",
        "a pod here, 1,000 services, 1000 connections",
        "connects: layers / nftables",
    ),
    (
        "outside-masqueraded",
        "another node, 1,000 services, 1000 connections",
        "connects: layers / nftables",
    ),
    (
        "outside-masqueraded",
        "a pod here that sees the node, 1,000 services, 1000 connections, ebpf alone",
        "memory of a flow: TRACK",
    ),
    (
        "new-node-port",
        "another node, 1,000 services, layers",
        "creation to first connection, p99",
    ),
    (
        "additions",
        "layers, 2 additions",
        "a NodePort answers on a new device",
    ),
    ("packet-time", "TCP over IPv4", "request and reply"),
    (
        "node-api",
        "one endpoint replaced, 1,000 services, 100 clients",
        "Watch: publish to decoded, p99",
    ),
    (
        "node-api",
        "whole state, 1,000 services of 10 endpoints",
        "Next: call to backend",
    ),
];

#[test]
fn its_json_holds_every_figure() {
    if !requires::met("bench", PRIVILEGED) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("figures.json");
    let file = path.to_str().unwrap();
    let command = bench(&["--quick", "--json", file]);
    let process = Process::spawn("bench", command).unwrap();
    let pid = process.pid().as_raw();
    let done = process.finish(LIMIT).unwrap();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!leaves_anything(pid));

    let figures: Vec<Value> = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let text = |figure: &Value, field: &str| figure[field].as_str().unwrap().to_owned();
    let benches: BTreeSet<_> = figures.iter().map(|figure| text(figure, "bench")).collect();
    let expected = [
        "additions",
        "api-server",
        "backends",
        "connections-held",
        "new-node-port",
        "node-api",
        "outside",
        "outside-masqueraded",
        "packet-time",
        "program-time",
        "sync",
        "tcp-connect",
        "udp-request",
    ]
    .map(str::to_owned);
    assert_eq!(benches, expected.into());
    let mut seen = BTreeSet::new();
    for figure in &figures {
        let fields: Vec<_> = figure
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let expected = [
            "bench", "case", "max", "median", "metric", "min", "runs", "unit",
        ];
        assert_eq!(
            fields.iter().copied().collect::<BTreeSet<_>>(),
            expected.into()
        );
        let [min, median, max] =
            ["min", "median", "max"].map(|field| figure[field].as_f64().unwrap());
        assert!(min <= median && median <= max, "{figure}");
        if figure["unit"] == "ratio" {
            assert!(median > 0.01 && median < 100.0, "{figure}");
        }
        let name = ["bench", "case", "metric"].map(|field| text(figure, field));
        assert!(seen.insert(name), "twice: {figure}");
    }
    for (bench, case, metric) in FIGURES {
        let name = [*bench, *case, *metric].map(str::to_owned);
        assert!(seen.contains(&name), "{name:?} is not in {seen:#?}");
    }
}

#[test]
fn a_signal_leaves_nothing() {
    if !requires::met("bench", PRIVILEGED) {
        return;
    }
    let mut process = Process::spawn("bench", bench(&["udp-request"])).unwrap();
    let pid = process.pid().as_raw();
    let mut stderr = BufReader::new(process.child().stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("run 1 of") {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{said}");
    }
    process.signal(Signal::SIGINT).unwrap();
    assert_eq!(process.wait(LIMIT).unwrap().code(), Some(130));
    assert!(!leaves_anything(pid));
}

/// Not even root makes files in `/proc`.
#[test]
fn where_nothing_can_be_written_is_told_at_once() {
    if !requires::met("bench", PRIVILEGED) {
        return;
    }
    for (arguments, says) in [
        (
            ["sync", "--json", "/nonexistent/figures.json"],
            "cannot write /nonexistent/figures.json",
        ),
        (
            ["backends", "--plot", "/proc"],
            "cannot write charts to /proc",
        ),
    ] {
        let done = Process::run("bench", bench(&arguments), LIMIT).unwrap();
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(done.stderr.contains(says), "{done:?}");
        assert_eq!(done.stdout, "", "before anything was measured");
    }
}

/// A file with made-up figures of each chart, of one backend at one size.
fn figures_of_an_earlier_run(path: &Path) {
    let figure = |(metric, unit): (&str, &str)| {
        serde_json::json!({
            "bench": "backends", "case": "1,000 services, toy", "metric": metric, "unit": unit,
            "median": 2.5, "min": 1.0, "max": 4.0, "runs": 4
        })
    };
    let figures = [
        ("change to first connection, p50", "ms"),
        ("cold start, from first request to programmed", "ms"),
        ("agent resident", "MiB"),
        ("connect, p50 to Service", "µs"),
    ]
    .map(figure);
    let text = serde_json::to_vec(&figures).expect("plain values");
    fs::write(path, text).expect("a file in a directory of our own");
}

/// The bench where it measures nothing, and so needs neither an agent nor rights.
fn without_measuring(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(arguments)
        .output()
        .expect("it starts")
}

#[test]
fn charts_are_drawn_of_an_earlier_run() {
    let dir = tempfile::tempdir().unwrap();
    let [file, charts] = ["figures.json", "new/charts"].map(|name| dir.path().join(name));
    figures_of_an_earlier_run(&file);
    let [from, plot] = [&file, &charts].map(|path| path.to_str().unwrap());
    let done = without_measuring(&["--plot", plot, "--from", from]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let said = String::from_utf8(done.stdout).unwrap();
    for chart in ["one-change", "full-sync", "memory", "connects"] {
        let path = charts.join(format!("{chart}.svg"));
        assert!(
            said.contains(&format!("wrote {}\n", path.display())),
            "{said}"
        );
        let text = fs::read_to_string(path).unwrap();
        assert!(text.contains("toy alone"), "{text}");
    }

    for (content, expected) in [
        (Some(""), "not the figures of a run"),
        (Some("[]"), "no figures of the bench `backends`"),
        (None, "cannot read it"),
    ] {
        match content {
            Some(text) => fs::write(&file, text).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let done = without_measuring(&["--plot", plot, "--from", from]);
        assert_eq!(done.status.code(), Some(1), "{done:?}");
        let said = String::from_utf8(done.stderr).unwrap();
        for part in [from, expected, "cargo xtask bench backends --json FILE"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

#[test]
fn charts_of_nothing_are_bad_usage() {
    let dir = tempfile::tempdir().unwrap();
    let charts = dir.path().join("charts");
    let plot = ["--plot", charts.to_str().unwrap()];
    let from = [plot[0], plot[1], "--from", "figures.json"];
    for (arguments, expected) in [
        ([&plot[..], &["sync"]].concat(), "name it, too"),
        (from[2..].to_vec(), "--plot <DIR>"),
        ([&from[..], &["backends"]].concat(), "cannot be used with"),
        (
            [&from[..], &["--runs", "3"]].concat(),
            "cannot be used with",
        ),
        ([&from[..], &["--quick"]].concat(), "cannot be used with"),
        (
            [&from[..], &["--json", "g"]].concat(),
            "cannot be used with",
        ),
    ] {
        let done = without_measuring(&arguments);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}: {done:?}");
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert!(!charts.exists());
    }
}
