//! What an operator asks: the running agent's state, how the kernel differs from it, what becomes
//! of a packet, and whether this host can do it. Needs root and BPF, except where it says.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    fs::{self, File},
    os::{
        fd::AsRawFd as _,
        unix::{fs::PermissionsExt as _, process::CommandExt as _},
    },
    path::PathBuf,
    process::Command,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use proxy_tests::{
    Agent, AgentOptions, Shop, agent,
    agent::LIMIT,
    bpf::Pinned,
    process::{Finished, Process},
    requires::{self, PRIVILEGED},
    shop::small_service,
};
use serde_json::Value;

const FILE: &str = "web.yaml";
const SUITE: &str = "ask";

fn ask(agent: &Agent<'_>, arguments: &[&str]) -> Finished {
    let (subcommand, rest) = arguments.split_first().unwrap();
    let mut command = agent.command(subcommand).unwrap();
    command.args(rest);
    Process::run("proxy-agent", command, LIMIT).unwrap()
}

fn answer(agent: &Agent<'_>, arguments: &[&str]) -> String {
    let done = ask(agent, arguments);
    assert_eq!(done.code, Some(0), "{arguments:?}: {done:?}");
    done.stdout
}

fn json(agent: &Agent<'_>, arguments: &[&str]) -> Value {
    serde_json::from_str(&answer(agent, arguments)).unwrap()
}

fn start(shop: &Shop) -> Agent<'_> {
    let files = [(FILE, &*small_service(1, &[1]))];
    Agent::start(&shop.world, AgentOptions::default(), &files).unwrap()
}

/// The socket that belongs to the agent's pin directory.
fn socket(agent: &Agent<'_>) -> PathBuf {
    let pins = agent.pins().path().display().to_string();
    let name = pins.trim_matches('/').replace('/', "-");
    PathBuf::from(format!("/run/culvert/{name}.sock"))
}

#[test]
fn the_running_agent_tells_the_state_that_is_in_force() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let mut agent = start(&shop);
    let before = json(&agent, &["state", "-o", "json"]);
    assert_eq!(before["node"]["name"], "node-a");
    assert_eq!(before["agent"]["backend"], "ebpf");
    assert_eq!(before["agent"]["source"], "manifests");
    assert_eq!(before["agent"]["inForce"], true);
    let endpoints = |state: &Value| state["services"][0]["clusterEndpoints"].clone();
    assert_eq!(endpoints(&before).as_array().unwrap().len(), 1);
    agent
        .apply_and_sync(FILE, &small_service(1, &[1, 2]))
        .unwrap();
    let after = json(&agent, &["state", "-o", "json"]);
    assert_eq!(endpoints(&after).as_array().unwrap().len(), 2);
    assert!(after["agent"]["revision"].as_u64() > before["agent"]["revision"].as_u64());
    let text = answer(&agent, &["state"]);
    assert!(
        text.contains("backend ebpf, objects from manifests"),
        "{text}"
    );

    let other = ask(&agent, &["state", "--node-name", "node-b"]);
    assert_eq!(other.code, Some(1), "{other:?}");
    assert!(other.stderr.contains("node-a, not node-b"), "{other:?}");
}

#[test]
fn a_node_that_is_none_of_the_clusters_is_told_until_it_is_one() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let node = |name: &str| format!("{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}}}\n");
    let options = AgentOptions {
        node_name: "node-x".to_owned(),
        ..AgentOptions::default()
    };
    let files = [
        (FILE, &*small_service(1, &[1])),
        ("node.yaml", &node("node-a")),
    ];
    let mut agent = Agent::prepare(&shop.world, options, &files).unwrap();
    agent.spawn().unwrap();
    let told = agent.wait_for("node not found").unwrap();
    assert_eq!(
        (told.level(), told.text("node")),
        (Some("ERROR"), Some("node-x"))
    );
    assert_eq!(told.list("nodes").unwrap(), ["node-a"]);
    agent.wait_for("serving").unwrap();
    let missing =
        |agent: &Agent<'_>| json(agent, &["state", "-o", "json"])["agent"]["nodeMissing"].clone();
    assert_eq!(missing(&agent)["nodes"][0], "node-a");
    assert!(answer(&agent, &["state"]).contains("NODE NOT FOUND: no node of the cluster"));

    agent.apply("node.yaml", &node("node-x")).unwrap();
    agent.wait_for("node found").unwrap();
    assert_eq!(missing(&agent), Value::Null);
}

#[test]
fn only_the_owner_can_ask_and_nobody_when_the_agent_is_gone() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let mut agent = start(&shop);
    let path = socket(&agent);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    agent.kill().unwrap();
    let done = ask(&agent, &["state"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("no agent answers on"), "{done:?}");
    // The next one replaces what the killed one left.
    agent.launch().unwrap();
    answer(&agent, &["state"]);
    agent.kill().unwrap();
    agent.cleanup().unwrap();
    assert!(!path.exists(), "cleanup leaves {}", path.display());
}

#[test]
fn a_difference_in_the_kernel_is_shown_and_a_hangup_mends_it() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let mut agent = start(&shop);
    let differences = |agent: &Agent<'_>| {
        let kernel = json(agent, &["state", "--kernel", "-o", "json"]);
        kernel["differences"].as_array().unwrap().clone()
    };
    assert_eq!(differences(&agent), Vec::<Value>::new());
    let text = answer(&agent, &["state", "--kernel"]);
    assert!(text.starts_with("the kernel matches the state"), "{text}");

    let sets = agent.pins().path().join("services-v1/SETS");
    let sets = Pinned::open(&sets).unwrap();
    let key = sets.keys(4).unwrap().remove(0);
    sets.delete(&key).unwrap();
    let found = differences(&agent);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["difference"], "missing");
    let object = found[0]["object"].as_str().unwrap();
    assert!(object.starts_with("SETS "), "{object}");
    let text = answer(&agent, &["state", "--kernel"]);
    assert!(text.contains(&format!("missing {object}")), "{text}");

    let pid = Pid::from_raw(agent.pid().unwrap());
    kill(pid, Signal::SIGHUP).unwrap();
    let repaired = agent.wait_for("kernel state repaired").unwrap();
    assert_eq!(repaired.number("differences"), Some(1), "{repaired:?}");
    assert_eq!(repaired.number("writes"), Some(1), "{repaired:?}");
    assert_eq!(differences(&agent), Vec::<Value>::new());
    let state = json(&agent, &["state", "-o", "json"]);
    assert_eq!(state["agent"]["repaired"], 1);
}

#[test]
fn the_period_mends_without_being_told() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let options = AgentOptions {
        arguments: vec!["--sync-period=100ms".to_owned()],
        ..AgentOptions::default()
    };
    let files = [(FILE, &*small_service(1, &[1]))];
    let mut agent = Agent::start(&shop.world, options, &files).unwrap();
    fs::remove_dir_all(agent.pins().path().join("links")).unwrap();
    let repaired = agent.wait_for("kernel state repaired").unwrap();
    assert!(repaired.number("differences") > Some(0), "{repaired:?}");
}

#[test]
fn a_packet_is_explained_the_same_by_the_agent_and_from_manifests() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let agent = start(&shop);
    let state = json(&agent, &["state", "-o", "json"]);
    let frontend = &state["services"][0]["frontends"][0];
    let dialled = format!(
        "{}:{}/tcp",
        frontend["address"].as_str().unwrap(),
        frontend["port"]
    );
    let manifest = agent.manifest(FILE);
    for (to, path, outcome) in [
        (&*dialled, "packet", "forward"),
        (&*dialled, "socket", "forward"),
        ("192.0.2.1:80/TCP", "packet", "pass"),
    ] {
        let question = [
            "--from",
            "10.244.9.9",
            "--to",
            to,
            "--path",
            path,
            "-o",
            "json",
        ];
        let mut running = vec!["explain"];
        running.extend(question);
        let running = json(&agent, &running);
        let mut once = vec!["explain", "--node-name=node-a", "--manifests"];
        once.push(manifest.to_str().unwrap());
        once.extend(question);
        let once: Value = serde_json::from_str(&agent::run(&once).unwrap().stdout).unwrap();
        for field in ["outcome", "service", "endpoints"] {
            assert_eq!(running[field], once[field]);
        }
        assert_eq!(running["outcome"], outcome);
        // Which layers there are, only an agent knows.
        let hooks = (path == "socket").then_some("ebpf");
        assert_eq!(running["layer"].as_str(), hooks, "{running}");
        assert_eq!(once["layer"], Value::Null);
    }
    let bad = ask(
        &agent,
        &["explain", "--from", "10.244.9.9", "--to", "10.96.0.1:80"],
    );
    assert_eq!(bad.code, Some(2), "{bad:?}");
    assert!(bad.stderr.contains("10.96.0.1:80"), "{bad:?}");
}

#[test]
fn check_tells_a_host_that_can_from_one_that_cannot() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let agent = start(&shop);
    // Beside a running agent, which it does not disturb.
    let cgroup = shop.world.cgroup().path().display().to_string();
    let arguments = ["check", "--cgroup-path", &cgroup, "-o", "json"];
    let check = json(&agent, &arguments);
    assert_eq!(check["usable"], true, "{check}");
    assert_eq!(check["backends"][0]["name"], "ebpf");
    assert_eq!(check["backends"][0]["chosen"], true);
    assert_eq!(check["backends"][1]["name"], "nftables");
    assert_eq!(check["backends"][2]["name"], "iptables");
    assert!(check["backends"][3]["whyNot"].is_string(), "{check}");
    assert_eq!(
        json(&agent, &["state", "--kernel", "-o", "json"])["differences"],
        Value::Array(vec![])
    );

    // By its descriptor: the path may lead through a directory that is only root's.
    let program = File::open(agent::path().unwrap()).unwrap();
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command.uid(65534).gid(65534);
    command.args(["check", "--cgroup-path", &cgroup, "--pin-dir"]);
    command.arg(agent.pins().path());
    let done = Process::run("proxy-agent", command, LIMIT).unwrap();
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.stdout.contains("rights"), "{done:?}");
    // What it may not see it does not claim, and what it may not do is no lack of the kernel.
    for claim in [
        "no agent holds it",
        "no agent programs",
        "CONFIG_CGROUP_BPF",
        "Linux 5.10 or later",
    ] {
        assert!(!done.stdout.contains(claim), "{claim}: {done:?}");
    }
}
