//! Programs of others on the socket hooks are named, with whose they are and what to do. Needs root
//! and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::Path;

use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    agent::{LIMIT, Rights},
    bpf,
    pod::Transport,
    process::Process,
    requires::{self, NFTABLES, PRIVILEGED},
    shop::{frontend, http, small_service},
};
use serde_json::Value;

const SUITE: &str = "neighbours";
const FILE: &str = "web.yaml";

/// What `check` says of programs of others on this cgroup.
fn told(agent: &Agent<'_>, cgroup: &Path) -> Value {
    let mut command = agent.command("check").unwrap();
    command.args(["-o", "json", "--cgroup-path"]).arg(cgroup);
    let done = Process::run("proxy-agent", command, LIMIT).unwrap();
    assert_eq!(done.code, Some(0), "{done:?}");
    let json: Value = serde_json::from_str(&done.stdout).unwrap();
    let of_ebpf = json["backends"][0]["requirements"].as_array().unwrap();
    let mut others = of_ebpf.iter().filter(|one| one["name"] == "other programs");
    others.next().unwrap().clone()
}

#[test]
fn load_balancers_of_others_are_named_with_what_to_do() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let (served, below) = (
        shop.world.cgroup().path(),
        shop.world.node().cgroup().path(),
    );
    let files = [(FILE, &*small_service(1, &[1]))];
    let mut agent = Agent::start(&shop.world, AgentOptions::default(), &files).unwrap();
    // Its own programs are nobody else's.
    let alone = told(&agent, served);
    assert_eq!(alone["met"], true, "{alone}");
    assert!(
        agent
            .log()
            .iter()
            .all(|line| line.text("programs").is_none())
    );
    agent.terminate().unwrap();

    bpf::attach_beside(served, "cil_sock4_connect").unwrap();
    bpf::attach_beside(below, "calico_connect_v4").unwrap();
    bpf::attach_beside(served, "their_filter").unwrap();
    agent.launch().unwrap();
    let unnamed = agent
        .wait_for("other programs on the socket hooks")
        .unwrap();
    for (field, part) in [
        ("programs", "requires CAP_SYS_ADMIN"),
        ("text", "bpftool prog show id"),
    ] {
        assert!(unnamed.text(field).unwrap().contains(part), "{unnamed:?}");
    }
    agent.terminate().unwrap();

    agent.options().rights = Rights::Root;
    agent.launch().unwrap();
    let ours = |line: &&proxy_tests::agent::LogLine| line.text("programs").is_some();
    agent
        .wait_for_line("the last of three", |line| {
            line.text("programs")
                .is_some_and(|text| text.contains("their_filter"))
        })
        .unwrap();
    let log = agent.log();
    let log: Vec<_> = log.iter().filter(ours).collect();
    let expected = [
        ("cil_sock4_conne", served, "Cilium", "kubeProxyReplacement"),
        (
            "calico_connect_",
            below,
            "Calico",
            "bpfConnectTimeLoadBalancing",
        ),
        ("their_filter", served, "not known", "nothing"),
    ];
    let check = told(&agent, served);
    assert_eq!(
        (&check["met"], &check["required"]),
        (&false.into(), &false.into())
    );
    let found = check["found"].as_str().unwrap();
    assert!(!found.contains("culvert_"), "{found}");
    for (line, (name, cgroup, whose, remedy)) in log.iter().zip(expected) {
        let programs = line.text("programs").unwrap();
        for part in [name, whose, "connect4", cgroup.to_str().unwrap()] {
            assert!(programs.contains(part), "{part}: {programs}");
        }
        assert!(line.text("text").unwrap().contains(remedy), "{}", line.raw);
        assert!(found.contains(programs), "{programs}: {found}");
        assert!(
            check["remedy"].as_str().unwrap().contains(remedy),
            "{check}"
        );
    }
    assert_eq!(log.len(), 3, "{log:?}");

    // From below, what is above cannot be seen but by what it does.
    let above = told(&agent, below);
    let found = above["found"].as_str().unwrap();
    for part in ["cil_sock4_conne", "on a cgroup above, Cilium"] {
        assert!(found.contains(part), "{found}");
    }
    assert!(!found.contains("culvert_"), "{found}");
    let mut prober = Prober::start(&shop.client).unwrap();
    let to = frontend(1, 80);
    let attempt = prober.send(Transport::Tcp, to, 1).unwrap().remove(0);
    assert_eq!(attempt.answer_as(to), Ok(http(1)));

    // Another agent's programs are no strangers' either.
    let second = Agent::prepare(&shop.world, AgentOptions::default(), &files).unwrap();
    let other = told(&second, served);
    let found = other["found"].as_str().unwrap();
    assert!(
        found.contains("another agent of Culvert: program"),
        "{found}"
    );
    assert!(found.contains("culvert_conn4 (connect4)"), "{found}");
}

/// Hooks come before rules: what an agent with other pins left goes on leading sockets.
#[test]
fn rules_tell_of_programs_that_lead_sockets_before_them() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*small_service(1, &[1]))];
    let mut before = Agent::start(&shop.world, AgentOptions::default(), &files).unwrap();
    before.terminate().unwrap();
    let options = AgentOptions {
        arguments: vec!["--proxy-mode=nftables".to_owned()],
        // What serves by rules alone may not ask about programs.
        rights: Rights::Root,
        ..AgentOptions::default()
    };
    let mut agent = Agent::start(&shop.world, options, &files).unwrap();
    let told = agent
        .wait_for("another load balancer on the socket hooks")
        .unwrap();
    let programs = told.text("programs").unwrap();
    assert!(programs.contains("another agent of Culvert"), "{told:?}");
    assert!(told.text("text").unwrap().contains("cleanup"), "{told:?}");
}
