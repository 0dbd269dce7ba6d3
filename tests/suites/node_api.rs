//! A brain and the node side of it as two processes: clients of Services must not notice whatever
//! becomes of either. Needs root and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{fs, time::Instant};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use proxy_tests::{
    Agent, AgentOptions, BrainProcess, Prober, Shop, Traffic,
    agent::LIMIT,
    pod::Transport,
    process::Process,
    requires::{self, PRIVILEGED},
    shop::{LoadKind, answers, frontend, http, loads, service},
};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

const SUITE: &str = "node_api";
const LOADS: [LoadKind; 3] = [
    ("http", Transport::Http, false, false),
    ("tcp-kept", Transport::Tcp, true, false),
    ("udp", Transport::Udp, false, false),
];

fn requests(shop: &Shop) -> Traffic {
    Traffic::start("pod", &shop.client, loads(1, &LOADS)).unwrap()
}

fn brain<'w>(shop: &'w Shop, cluster: &str) -> BrainProcess<'w> {
    let mut brain = BrainProcess::prepare(&shop.world, None).unwrap();
    brain.apply(cluster).unwrap();
    brain.start("node-a").unwrap();
    brain
}

fn follower<'w>(shop: &'w Shop, brain: &BrainProcess<'_>) -> Agent<'w> {
    let options = AgentOptions {
        source: vec!["--target".to_owned(), brain.target()],
        ..AgentOptions::default()
    };
    Agent::prepare(&shop.world, options, &[]).unwrap()
}

fn state(agent: &Agent<'_>, form: &str) -> String {
    let mut command = agent.command("state").unwrap();
    command.args(["-o", form]);
    let done = Process::run("proxy-agent state", command, LIMIT).unwrap();
    assert_eq!(done.code, Some(0), "{done:?}");
    done.stdout
}

fn facts(agent: &Agent<'_>) -> Value {
    let state: Value = serde_json::from_str(&state(agent, "json")).unwrap();
    state["agent"].clone()
}

/// The only client of `brain`, once it has reported the newest state.
fn until_in_force(brain: &BrainProcess<'_>) -> Value {
    let started = Instant::now();
    loop {
        let api = brain.facts().unwrap()["nodeApi"].take();
        let clients = api["clients"].as_array().unwrap();
        if let [client] = &clients[..]
            && client["applied"] == api["revision"]
        {
            return client.clone();
        }
        assert!(started.elapsed() < LIMIT, "{api}");
    }
}

#[test]
fn a_brain_that_goes_away_leaves_the_last_state_in_force_and_the_next_one_goes_on_from_there() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let mut brain = brain(&shop, &service(1, &[1, 2, 3]));
    let mut agent = follower(&shop, &brain);
    agent.launch().unwrap();
    let mut requests = requests(&shop);
    requests.goes_on("with a brain").unwrap();
    let before = facts(&agent);
    assert_eq!(before["source"], format!("brain {}", brain.target()));
    assert_eq!(before["stale"], Value::Null);

    brain.kill().unwrap();
    let lost = agent.wait_for("brain lost").unwrap();
    let reason = lost.text("reason").unwrap().to_owned();
    requests.goes_on("without a brain").unwrap();
    let alone = facts(&agent);
    assert_eq!(alone["inForce"], true);
    assert_eq!(alone["revision"], before["revision"]);
    assert!(alone["stale"]["since"].is_string(), "{alone}");
    assert!(alone["stale"]["reason"].is_string(), "{alone}, {reason}");
    assert!(state(&agent, "text").contains("STALE"));

    let cluster = service(1, &[2, 3]) + &service(2, &[4]);
    brain.apply(&cluster).unwrap();
    brain.start("node-a").unwrap();
    agent.wait_for("brain connected").unwrap();
    agent.wait_until_synced().unwrap();
    requests.goes_on("with the next brain").unwrap();
    let client = until_in_force(&brain);
    assert_eq!(client["name"], "ebpf");
    assert_eq!(client["connected"], true);
    assert_eq!(client["failures"], json!([]));
    assert_eq!(client["error"], Value::Null);
    assert_eq!(facts(&agent)["stale"], Value::Null);
    let reached = |prober: &mut Prober, number| {
        answers(prober, Transport::Tcp, frontend(number, 80)).unwrap()
    };
    assert_eq!(reached(&mut requests.prober, 1), [2, 3].map(http).into());
    assert_eq!(reached(&mut requests.prober, 2), [http(4)].into());
    requests.stop().unwrap();
}

#[test]
fn where_nobody_could_come_in_the_agent_does_not_start() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let mut brain = brain(&shop, &service(1, &[1]));
    let taken = brain.target();
    let file = tempfile::NamedTempFile::new().unwrap();
    let no_socket = format!("unix://{}", file.path().display());
    let in_the_way = format!(
        "cannot replace {}: something other than a socket is there",
        file.path().display()
    );
    let missing = [
        "--listen-tls-cert=/nonexistent/cert",
        "--listen-tls-key=k",
        "--listen-tls-ca=c",
    ];
    for (listen, more, reason) in [
        (&*taken, &[][..], "another process listens there"),
        (&no_socket, &[], &*in_the_way),
        ("tls://127.0.0.1:0", &missing, "reading /nonexistent/cert: "),
    ] {
        let mut agent = Agent::prepare(
            &shop.world,
            AgentOptions {
                arguments: std::iter::once(format!("--listen={listen}"))
                    .chain(more.iter().map(|one| (*one).to_owned()))
                    .collect(),
                ..AgentOptions::default()
            },
            &[],
        )
        .unwrap();
        agent.spawn().unwrap();
        let (code, log) = agent.wait_for_exit().unwrap();
        assert_eq!(code, Some(2), "{log:?}");
        let error = log.last().unwrap().text("error").unwrap();
        assert!(
            error.starts_with(&format!("cannot listen on {listen}: {reason}")),
            "{error}"
        );
        // Nothing was changed.
        assert!(agent.pins().entries().is_empty());
    }
    // The one that was there first still is.
    let mut other = BrainProcess::prepare(&shop.world, Some(&taken)).unwrap();
    other.start("node-a").unwrap();
    other.wait_for("brain connected").unwrap();
    brain.kill().unwrap();
}

#[test]
fn no_request_fails_while_the_node_side_is_killed_and_starts_again_with_and_without_a_brain() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let mut brain = brain(&shop, &service(1, &[1, 2, 3]));
    let mut agent = follower(&shop, &brain);
    agent.launch().unwrap();
    let mut requests = requests(&shop);
    for round in 0..3 {
        agent.kill().unwrap();
        requests
            .goes_on(&format!("round {round}, without the node side"))
            .unwrap();
        let serving = agent.launch().unwrap();
        assert_eq!(serving.flag("adopted"), Some(true));
        requests
            .goes_on(&format!("round {round}, with the node side again"))
            .unwrap();
    }
    brain.kill().unwrap();
    agent.kill().unwrap();
    agent.spawn().unwrap();
    agent.wait_for("brain not reached").unwrap();
    requests
        .goes_on("without anybody who knows what to do")
        .unwrap();
    // What the brain said to the last one is not known here: there is no state to be asked for.
    let unknown = Process::run("state", agent.command("state").unwrap(), LIMIT).unwrap();
    assert_ne!(unknown.code, Some(0), "{unknown:?}");
    brain.start("node-a").unwrap();
    let serving = agent.wait_for("serving").unwrap();
    assert_eq!(serving.flag("adopted"), Some(true));
    requests.goes_on("with everybody again").unwrap();
    requests.stop().unwrap();
}

#[test]
fn a_node_side_that_stands_still_holds_up_no_other_client() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let brain = brain(&shop, &service(1, &[1]));
    let mut agent = follower(&shop, &brain);
    agent.launch().unwrap();
    // A brain behind a brain, so that the source is one, too.
    let mut other = BrainProcess::prepare(&shop.world, Some(&brain.target())).unwrap();
    other.start("node-a").unwrap();
    other.wait_for("brain connected").unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    let pid = Pid::from_raw(agent.pid().unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    brain.apply(&service(1, &[2])).unwrap();
    other.wait_for("synced").unwrap();
    let reached = answers(&mut prober, Transport::Tcp, frontend(1, 80)).unwrap();
    assert_eq!(reached, [http(1)].into());
    kill(pid, Signal::SIGCONT).unwrap();
    agent.wait_until_synced().unwrap();
    let reached = answers(&mut prober, Transport::Tcp, frontend(1, 80)).unwrap();
    assert_eq!(reached, [http(2)].into());
}

#[test]
fn the_brain_of_another_node_is_refused_and_what_is_in_force_stays() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let mut brain = brain(&shop, &service(1, &[1]));
    let mut agent = follower(&shop, &brain);
    agent.launch().unwrap();
    let mut requests = requests(&shop);
    brain.kill().unwrap();
    agent.wait_for("brain lost").unwrap();
    brain.apply(&service(1, &[2])).unwrap();
    brain.start("node-b").unwrap();
    let refusal = "it serves node node-b";
    agent
        .wait_for_line("refusal", |line| {
            line.message() == Some("brain refused")
                && line
                    .text("reason")
                    .is_some_and(|text| text.contains(refusal))
        })
        .unwrap();
    requests.goes_on("with the brain of another node").unwrap();
    let facts = facts(&agent);
    let reason = facts["stale"]["reason"].as_str().unwrap();
    assert!(reason.contains(refusal), "{reason}");
    let reached = answers(&mut requests.prober, Transport::Tcp, frontend(1, 80)).unwrap();
    assert_eq!(reached, [http(1)].into());
    requests.stop().unwrap();
}

#[test]
fn over_tcp_the_node_side_reports_with_the_token_of_the_brain_only() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let token = NamedTempFile::new().unwrap();
    fs::write(token.path(), "a-secret\n").unwrap();
    let mut brain = BrainProcess::prepare(&shop.world, None).unwrap();
    brain.listen_with_token(token.path());
    brain.apply(&service(1, &[1])).unwrap();
    brain.start("node-a").unwrap();
    let mut agent = follower(&shop, &brain);
    let mut prober = Prober::start(&shop.client).unwrap();
    let shows = |file: &NamedTempFile| {
        vec![
            "--target-token-file".to_owned(),
            file.path().display().to_string(),
        ]
    };
    let (other, empty) = (NamedTempFile::new().unwrap(), NamedTempFile::new().unwrap());
    fs::write(other.path(), "another\n").unwrap();
    // It is told all the same, and not heard.
    for arguments in [vec![], shows(&other), shows(&empty)] {
        agent.options().arguments = arguments;
        agent.launch().unwrap();
        let refused = agent
            .wait_for("the brain does not accept the reports of this agent")
            .unwrap();
        let reason = refused.text("reason").unwrap();
        assert!(reason.contains("token"), "{refused:?}");
        let reached = answers(&mut prober, Transport::Tcp, frontend(1, 80)).unwrap();
        assert_eq!(reached, [http(1)].into());
        let client = &brain.facts().unwrap()["nodeApi"]["clients"][0];
        assert_eq!(client["applied"], Value::Null);
        agent.terminate().unwrap();
    }
    agent.options().arguments = shows(&token);
    agent.launch().unwrap();
    assert_eq!(until_in_force(&brain)["connected"], true);
}
