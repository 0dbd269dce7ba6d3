//! What the layers cannot do is told, also where `mode: auto` has no packet backend. Needs root and
//! BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    agent::{LIMIT, LogLine},
    pod::Transport,
    process::Process,
    requires::{self, PRIVILEGED},
    shop::{frontend, http, small_service},
};
use serde_json::{Value, json};

const SUITE: &str = "capabilities";
const FILE: &str = "web.yaml";
const PORT: &str = "shop/s1:http/TCP/IPv4";

/// The Service, also on a NodePort.
fn open_to_all() -> String {
    let inside = "  ports:\n  - {name: http, port: 80, protocol: TCP}\n";
    let outside =
        "  type: NodePort\n  ports:\n  - {name: http, port: 80, protocol: TCP, nodePort: 30080}\n";
    let text = small_service(1, &[1]);
    assert!(text.contains(inside), "{text}");
    text.replace(inside, outside)
}

fn auto() -> AgentOptions {
    AgentOptions {
        // Nothing else to choose, and nothing on devices.
        arguments: ["--proxy-mode=auto", "--backend-order=ebpf", "--tc=off"]
            .map(str::to_owned)
            .into(),
        ..AgentOptions::default()
    }
}

fn answer(agent: &Agent<'_>, subcommand: &str, arguments: &[&str]) -> String {
    let mut command = agent.command(subcommand).unwrap();
    command.args(arguments);
    let done = Process::run("proxy-agent", command, LIMIT).unwrap();
    assert_eq!(done.code, Some(0), "{done:?}");
    done.stdout
}

fn state(agent: &Agent<'_>) -> Value {
    serde_json::from_str(&answer(agent, "state", &["-o", "json"])).unwrap()
}

fn with_message<'a>(log: &'a [LogLine], message: &str) -> Vec<&'a LogLine> {
    let all = log.iter().filter(|line| line.message() == Some(message));
    all.collect()
}

#[test]
fn a_service_that_needs_more_is_told_by_log_state_and_check() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let files = [(FILE, &*open_to_all())];
    let mut agent = Agent::start(&shop.world, AgentOptions::default(), &files).unwrap();
    let log = agent.log();
    let gaps = with_message(&log, "capability gap");
    assert_eq!(gaps.len(), 1, "{log:?}");
    assert_eq!(gaps[0].text("service"), Some(PORT));
    assert_eq!(gaps[0].text("capability"), Some("external-traffic"));
    let chosen = with_message(&log, "backend chosen");
    assert_eq!(chosen[0].text("backend"), Some("ebpf"));
    let lacks = chosen[0].list("lacks").unwrap();
    assert!(lacks.contains(&"foreign-clients"), "{lacks:?}");

    let told = state(&agent);
    assert_eq!(told["services"][0]["missing"], json!(["external-traffic"]));
    assert_eq!(told["agent"]["suffices"], false);
    let lacks = told["agent"]["lacks"].as_array().unwrap();
    let cgroup = shop.world.cgroup().path().display().to_string();
    let check = answer(
        &agent,
        "check",
        &["--cgroup-path", &cgroup, "--tc=off", "-o", "json"],
    );
    let check: Value = serde_json::from_str(&check).unwrap();
    assert_eq!(check["backends"][0]["lacks"].as_array().unwrap(), lacks);
    let text = answer(&agent, "state", &[]);
    assert!(
        text.contains(&format!("{PORT}  external-traffic")),
        "{text}"
    );

    agent.apply(FILE, &small_service(1, &[1])).unwrap();
    let closed = agent.wait_for("capability gap closed").unwrap();
    assert_eq!(closed.text("service"), Some(PORT));
    agent.wait_until_synced().unwrap();
    assert_eq!(state(&agent)["services"][0]["missing"], json!([]));
}

#[test]
fn mode_auto_serves_what_it_can_without_a_packet_backend() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    // What a tenant may create: it must not decide whether the node has a proxy.
    let signals = small_service(2, &[2]).replace("protocol: TCP", "protocol: SCTP");
    let files = [(FILE, &*open_to_all()), ("signals.yaml", &*signals)];
    let mut agent = Agent::start(&shop.world, auto(), &files).unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    for restarted in [false, true] {
        if restarted {
            agent.kill().unwrap();
            agent.launch().unwrap();
        }
        let log = agent.log();
        let gaps = with_message(&log, "capability gap");
        let named: Vec<_> = gaps.iter().filter_map(|gap| gap.text("service")).collect();
        assert!(named.contains(&PORT), "{named:?}");
        assert!(named.contains(&"shop/s2:http/SCTP/IPv4"), "{named:?}");
        let to = frontend(1, 80);
        let attempt = prober.send(Transport::Tcp, to, 1).unwrap().remove(0);
        assert_eq!(attempt.answer_as(to), Ok(http(1)));
        let told = state(&agent);
        assert_eq!(told["agent"]["suffices"], false);
        assert_eq!(told["services"][1]["missing"], json!(["sctp"]));
    }
}

#[test]
fn under_mode_auto_a_later_service_that_needs_more_stops_nothing() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let files = [(FILE, &*small_service(1, &[1]))];
    let mut agent = Agent::start(&shop.world, auto(), &files).unwrap();
    let told = state(&agent);
    assert_eq!(told["agent"]["mode"], "auto");
    assert_eq!(told["agent"]["backend"], "ebpf");
    assert_eq!(told["agent"]["suffices"], true);
    // Nothing was looked at in vain, and no start names what this version has for no host.
    assert_eq!(told["agent"]["refused"], json!([]));
    assert_eq!(with_message(&agent.log(), "backend refused").len(), 0);

    agent.apply(FILE, &open_to_all()).unwrap();
    let gap = agent.wait_for("capability gap").unwrap();
    assert_eq!(gap.text("service"), Some(PORT));
    agent.wait_until_synced().unwrap();
    assert_eq!(state(&agent)["agent"]["suffices"], false);
    agent.apply_and_sync(FILE, &small_service(1, &[1])).unwrap();
    assert_eq!(state(&agent)["agent"]["suffices"], true);
}
