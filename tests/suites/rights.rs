//! Which rights what needs: no more than it takes, the same answer by every backend, and never a
//! wait for what does not come. Needs root, BPF and `nf_tables`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{os::fd::AsFd as _, process::Command};

use proxy_backend::OpenError;
use proxy_backend_nftables as nftables;
use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    agent::{self, AdminDirectory, LIMIT, Rights},
    container::{Capability, Container, Profile},
    pod::Transport,
    process::{self, Finished, Process},
    requires::{self, NFTABLES, PRIVILEGED},
    shop::{answers, frontend, http, small_service},
};
use serde_json::Value;

const SUITE: &str = "rights";
const FILE: &str = "web.yaml";

/// What rules take, and what programs take.
const RULES: [Capability; 1] = [Capability::CAP_NET_ADMIN];
const THREE: [Capability; 3] = [
    Capability::CAP_BPF,
    Capability::CAP_NET_ADMIN,
    Capability::CAP_PERFMON,
];

/// An agent in `mode`, in a container with these capabilities and no others.
fn options(mode: &str, capabilities: &[Capability]) -> AgentOptions {
    AgentOptions {
        arguments: vec![format!("--proxy-mode={mode}")],
        rights: Rights::Exactly(Container::with(capabilities)),
        ..AgentOptions::default()
    }
}

/// The agent's program, in such a container.
fn contained(rights: &Rights, admin_directory: &AdminDirectory) -> Command {
    let launcher = rights.launcher(&[], admin_directory).unwrap();
    let mut command = Command::new(&launcher[0]);
    command.args(&launcher[1..]).arg(agent::path().unwrap());
    command
}

/// `cleanup` on the node with these capabilities.
fn cleanup(shop: &Shop, agent: &Agent<'_>, capabilities: &[Capability]) -> Finished {
    let admin_directory = AdminDirectory::keep().unwrap();
    let rights = Rights::Exactly(Container::with(capabilities));
    let mut command = contained(&rights, &admin_directory);
    command
        .args(["cleanup", "--pin-dir"])
        .arg(agent.pins().path());
    let netns = shop.world.node().netns();
    process::enter(&mut command, Some(netns.as_fd()), None).unwrap();
    Process::run("proxy-agent", command, LIMIT).unwrap()
}

fn assert_serves(prober: &mut Prober) {
    let to = frontend(1, 80);
    let attempt = prober.send(Transport::Tcp, to, 1).unwrap().remove(0);
    assert_eq!(attempt.answer_as(to), Ok(http(1)));
}

#[test]
fn a_backend_without_rights_says_which_and_waits_for_none() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*small_service(1, &[1]))];
    for mode in ["ebpf", "nftables", "auto"] {
        let without = options(mode, &[Capability::CAP_DAC_OVERRIDE]);
        let mut agent = Agent::prepare(&shop.world, without, &files).unwrap();
        agent.spawn().unwrap();
        let (code, log) = agent.wait_for_exit().unwrap();
        assert_eq!(code, Some(3), "{mode}: {log:?}");
        let stopped = log.last().unwrap().text("error").unwrap();
        let part = if mode == "auto" {
            "check"
        } else {
            "CAP_NET_ADMIN"
        };
        assert!(stopped.contains(part), "{mode}: {stopped}");
        let tries = log.iter().filter(|line| line.raw.contains("retry_in_ms"));
        assert_eq!(tries.count(), 0, "{mode}: {log:?}");
    }
}

/// What `check` found of the backend that is preferred, in a container like this one.
fn checked(shop: &Shop, container: &Container) -> Value {
    let admin_directory = AdminDirectory::keep().unwrap();
    let mut command = contained(&Rights::Exactly(container.clone()), &admin_directory);
    command.args(["check", "--output=json", "--cgroup-path"]);
    command.arg(shop.world.cgroup().path());
    let done = Process::run("proxy-agent check", command, LIMIT).unwrap();
    let mut check: Value = serde_json::from_str(&done.stdout).unwrap();
    check["backends"][0]["requirements"].take()
}

fn requirement<'a>(all: &'a Value, name: &str) -> &'a Value {
    let mut all = all.as_array().unwrap().iter();
    all.find(|one| one["name"] == name).unwrap()
}

#[test]
fn three_capabilities_are_enough_for_ebpf_and_check_says_so() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let files = [(FILE, &*small_service(1, &[1]))];
    let enough = agent::for_programs().unwrap();
    let three = options("auto", &enough);
    let mut agent = Agent::prepare(&shop.world, three, &files).unwrap();
    agent.launch().unwrap();
    assert_eq!(agent.serving().unwrap().text("backend"), Some("ebpf"));
    assert_serves(&mut Prober::start(&shop.client).unwrap());
    let checked = checked(&shop, &Container::with(&enough));
    for one in checked.as_array().unwrap() {
        assert!(one["required"] == false || one["met"] == true, "{one}");
    }
}

/// The verifier of some kernels asks for the third: then that is what is said.
#[test]
fn perfmon_is_asked_for_where_the_kernel_does() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let mut two = agent::for_programs().unwrap();
    two.retain(|one| *one != Capability::CAP_PERFMON);
    let checked = checked(&shop, &Container::with(&two));
    assert_eq!(requirement(&checked, "rights")["met"], true, "{checked}");
    let programs = requirement(&checked, "programs");

    let files = [(FILE, &*small_service(1, &[1]))];
    let mut agent = Agent::prepare(&shop.world, options("ebpf", &two), &files).unwrap();
    if programs["met"] == true {
        agent.launch().unwrap();
        assert_serves(&mut Prober::start(&shop.client).unwrap());
        return;
    }
    let remedy = programs["remedy"].as_str().unwrap();
    assert!(remedy.contains("CAP_PERFMON"), "{programs}");
    agent.spawn().unwrap();
    let (code, log) = agent.wait_for_exit().unwrap();
    assert_eq!(code, Some(3), "{log:?}");
    let stopped = log.last().unwrap().text("error").unwrap();
    assert!(stopped.contains("asks for CAP_PERFMON"), "{stopped}");
}

#[test]
fn a_seccomp_profile_that_denies_bpf_is_told_from_a_kernel_that_cannot() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let older = Container {
        seccomp: Profile::WithoutBpf,
        ..Container::with(&THREE)
    };
    let checked = checked(&shop, &older);
    assert_eq!(requirement(&checked, "rights")["met"], true, "{checked}");
    let call = requirement(&checked, "bpf system call");
    assert_eq!(call["met"], false, "{call}");
    assert!(
        call["found"].as_str().unwrap().contains("seccomp filter"),
        "{call}"
    );
    assert!(
        call["remedy"]
            .as_str()
            .unwrap()
            .contains("container runtime"),
        "{call}"
    );

    let files = [(FILE, &*small_service(1, &[1]))];
    let options = |mode| AgentOptions {
        rights: Rights::Exactly(older.clone()),
        ..options(mode, &[])
    };
    let mut agent = Agent::prepare(&shop.world, options("ebpf"), &files).unwrap();
    agent.spawn().unwrap();
    let (code, log) = agent.wait_for_exit().unwrap();
    assert_eq!(code, Some(3), "{log:?}");
    let stopped = log.last().unwrap().text("error").unwrap();
    assert!(stopped.contains("seccomp filter"), "{stopped}");

    *agent.options() = options("auto");
    agent.launch().unwrap();
    assert_eq!(agent.serving().unwrap().text("backend"), Some("nftables"));
    assert_serves(&mut Prober::start(&shop.client).unwrap());
}

/// The container itself: a test of rights that were never taken away would show nothing.
#[test]
fn a_container_takes_every_other_right() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let written = tempfile::tempdir().unwrap();
    let container = Container {
        writable: vec![written.path().to_owned()],
        ..Container::with(&[Capability::CAP_NET_ADMIN])
    };
    let launcher = container.launcher().unwrap();
    let run = |script: &str| {
        let mut command = Command::new(&launcher[0]);
        command.args(&launcher[1..]).args(["sh", "-c", script]);
        command.arg("sh").arg(written.path());
        Process::run("sh", command, LIMIT).unwrap()
    };
    let status = run("cat /proc/self/status").stdout;
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {status}")).trim()
    };
    for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
        assert_eq!(u64::from_str_radix(line(set), 16), Ok(1 << 12), "{set}");
    }
    assert_eq!(line("CapAmb:"), "0000000000000000");
    assert_eq!((line("NoNewPrivs:"), line("Seccomp:")), ("1", "2"));
    for denied in [
        "> /etc/culvert-test",
        "> /run/culvert-test",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "mount -t tmpfs none \"$1\"",
        "unshare --net true",
    ] {
        assert_ne!(run(denied).code, Some(0), "{denied}");
    }
    let allowed = run("> \"$1\"/file && rm \"$1\"/file");
    assert_eq!(allowed.code, Some(0), "{allowed:?}");
}

#[test]
fn cleanup_needs_the_rights_of_what_it_removes() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*small_service(1, &[1]))];
    let mut agent = Agent::start(&shop.world, options("nftables", &RULES), &files).unwrap();
    agent.terminate().unwrap();
    let denied = cleanup(&shop, &agent, &[]);
    assert_eq!(denied.code, Some(3), "{denied:?}");
    assert!(denied.stderr.contains("CAP_NET_ADMIN"), "{denied:?}");
    let removed = |done: &Finished| {
        let tables = ["ip", "ip6"].map(|family| format!("removed the table {family} culvert"));
        tables.iter().all(|table| done.stdout.contains(table))
    };
    let done = cleanup(&shop, &agent, &RULES);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(removed(&done), "{done:?}");

    // What is pinned goes with its last name, whoever may not open it.
    agent.launch().unwrap();
    agent.kill().unwrap();
    let mut other = Agent::start(&shop.world, options("ebpf", &THREE), &files).unwrap();
    other.terminate().unwrap();
    let done = cleanup(&shop, &other, &RULES);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(removed(&done), "{done:?}");
    assert!(!other.pins().path().exists());
}

/// Socket hooks come before rules: what they lead to must not stay as it was.
#[test]
fn rules_that_take_over_from_ebpf_need_no_rights_for_ebpf() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*small_service(1, &[1]))];
    let mut agent = Agent::start(&shop.world, options("ebpf", &THREE), &files).unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    assert_serves(&mut prober);
    agent.terminate().unwrap();
    agent.apply(FILE, &small_service(1, &[2])).unwrap();
    *agent.options() = options("auto", &RULES);
    agent.launch().unwrap();
    assert_eq!(agent.serving().unwrap().text("backend"), Some("nftables"));
    agent
        .wait_for("what another backend left is removed")
        .unwrap();
    let reached = answers(&mut prober, Transport::Tcp, frontend(1, 80)).unwrap();
    assert_eq!(reached, [http(2)].into());
}

/// What is asked before can have changed by the time that tables are removed.
#[test]
fn tables_are_removed_with_the_lock_in_hand() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*small_service(1, &[1]))];
    let agent = Agent::start(&shop.world, options("nftables", &RULES), &files).unwrap();
    let who = format!("process {} of ", agent.pid().unwrap());
    let mut prober = Prober::start(&shop.client).unwrap();
    for remove in [nftables::cleanup, nftables::remove] {
        match shop.world.node().netns().run(remove).unwrap() {
            Err(OpenError::Held { holder, .. }) => assert!(holder.starts_with(&who), "{holder}"),
            other => panic!("{other:?}"),
        }
        assert_serves(&mut prober);
    }
}
