//! Hosts that do not let the eBPF backend serve: the reason is told with what to do, mode auto takes
//! the next backend, and what passes is waited for. Needs root and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{collections::BTreeMap, fs, path::Path};

use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    agent::LIMIT,
    bpf,
    launcher::{MemoryLimit, in_own_mounts},
    pod::Transport,
    process::{Finished, Process},
    requires::{self, NFTABLES, Need, PRIVILEGED},
    shop::{frontend, http, small_service},
};
use serde_json::Value;

const SUITE: &str = "refused";
const FILE: &str = "web.yaml";

fn options(mode: &str) -> AgentOptions {
    AgentOptions {
        arguments: vec![format!("--proxy-mode={mode}")],
        ..AgentOptions::default()
    }
}

fn json(agent: &Agent<'_>, subcommand: &str, arguments: &[&str]) -> (Finished, Value) {
    let mut command = agent.command(subcommand).unwrap();
    command.args(arguments).args(["-o", "json"]);
    let done = Process::run("proxy-agent", command, LIMIT).unwrap();
    let json = serde_json::from_str(&done.stdout).unwrap();
    (done, json)
}

/// The agent serves by nftables, says why not by eBPF, and left nothing of that.
fn assert_nftables_serves(shop: &Shop, agent: &mut Agent<'_>, reason: &str) {
    let chosen = agent
        .wait_for_line("nftables is chosen", |line| {
            line.message() == Some("backend chosen") && line.text("backend") == Some("nftables")
        })
        .unwrap();
    assert_eq!(chosen.text("mode"), Some("auto"));
    // By the time that it answers, the choice is made known.
    let mut node = Prober::start(shop.world.node()).unwrap();
    let to = frontend(1, 80);
    let attempt = node.send(Transport::Tcp, to, 1).unwrap().remove(0);
    assert_eq!(attempt.answer_as(to), Ok(http(1)));
    let (_, told) = json(agent, "state", &[]);
    let told = &told["agent"];
    assert_eq!(told["backend"], "nftables");
    assert_eq!(told["refused"][0]["backend"], "ebpf");
    let why = told["refused"][0]["reason"].as_str().unwrap();
    assert!(why.contains(reason), "{why}");
    let log = agent.log();
    let mut refused = log.iter().filter(|line| {
        line.message() == Some("backend refused") && line.text("backend") == Some("ebpf")
    });
    let refused = refused.next().unwrap().text("reason").unwrap();
    assert!(refused.contains(reason), "{refused}");
    // Where it came to be opened.
    if !agent.pins().entries().is_empty() {
        agent
            .wait_for("what another backend left is removed")
            .unwrap();
    }
    assert!(agent.pins().entries().is_empty());
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_program_above_that_allows_none_below_is_found_before_anything_is_attached() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let (above, below) = (
        shop.world.cgroup().path(),
        shop.world.node().cgroup().path(),
    );
    bpf::attach_alone(above).unwrap();
    let mut agent = Agent::prepare(
        &shop.world,
        AgentOptions {
            cgroup_path: Some(below.to_owned()),
            ..options("auto")
        },
        &[(FILE, &small_service(1, &[1]))],
    )
    .unwrap();
    let (_, check) = json(&agent, "check", &["--cgroup-path", path(below)]);
    let of_ebpf = check["backends"][0]["requirements"].as_array().unwrap();
    let mut hooks = of_ebpf.iter().filter(|one| one["name"] == "socket hooks");
    let hooks = hooks.next().unwrap();
    assert_eq!(hooks["met"], false, "{hooks}");
    let remedy = hooks["remedy"].as_str().unwrap();
    let look = format!("bpftool cgroup show {}`", path(above));
    assert!(remedy.contains(&look), "{remedy}");
    agent.spawn().unwrap();
    assert_nftables_serves(&shop, &mut agent, "socket hooks");
}

#[test]
fn a_program_that_allows_no_other_sends_mode_auto_to_the_next_backend() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let (above, below) = (
        shop.world.cgroup().path(),
        shop.world.node().cgroup().path(),
    );
    bpf::attach_alone(above).unwrap();
    // What is above cannot be seen there, so that it is the kernel that refuses.
    let seen = tempfile::tempdir().unwrap();
    let prepare = format!("mount --bind {} {}", path(below), path(seen.path()));
    let surroundings = AgentOptions {
        cgroup_path: Some(seen.path().to_owned()),
        launcher: in_own_mounts(&[], &prepare),
        ..options("auto")
    };
    let files = [(FILE, &*small_service(1, &[1]))];
    let mut agent = Agent::prepare(&shop.world, surroundings, &files).unwrap();
    agent.spawn().unwrap();
    assert_nftables_serves(&shop, &mut agent, "bpftool cgroup show");
    agent.terminate().unwrap();

    agent.options().arguments = options("ebpf").arguments;
    agent.spawn().unwrap();
    let (code, log) = agent.wait_for_exit().unwrap();
    assert_eq!(code, Some(3), "{log:?}");
    let stopped = log.last().unwrap().text("error").unwrap();
    assert!(stopped.contains("bpftool cgroup show"), "{stopped}");
}

/// What a container brings.
const NONE: &str = "umount --lazy /sys/fs/bpf";
const THE_HOSTS: &str = "dir=$(mktemp -d); mount --bind /sys/fs/bpf $dir; \
                         umount --lazy /sys/fs/bpf; mount --bind $dir /sys/fs/bpf; \
                         umount $dir; rmdir $dir";

#[test]
fn no_bpf_file_system_is_mounted_that_would_go_with_a_container() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let files = [(FILE, &*small_service(1, &[1]))];
    for unshare in [
        &[][..],
        &["--pid", "--fork", "--mount-proc", "--kill-child"],
    ] {
        let surroundings = AgentOptions {
            launcher: in_own_mounts(unshare, NONE),
            ..options("ebpf")
        };
        let mut agent = Agent::prepare(&shop.world, surroundings, &files).unwrap();
        agent.spawn().unwrap();
        let (code, log) = agent.wait_for_exit().unwrap();
        assert_eq!(code, Some(3), "{unshare:?}: {log:?}");
        let stopped = log.last().unwrap().text("error").unwrap();
        for part in ["hostPath", "--pin-dir", "mount namespace"] {
            assert!(stopped.contains(part), "{unshare:?}: {stopped}");
        }
        // `check` says the same, and mounts nothing either.
        let launcher = in_own_mounts(unshare, NONE);
        let mut command = std::process::Command::new(&launcher[0]);
        command
            .args(&launcher[1..])
            .arg(proxy_tests::agent::path().unwrap())
            .args(["check", "-o", "json", "--cgroup-path"])
            .arg(shop.world.cgroup().path());
        let done = Process::run("proxy-agent", command, LIMIT).unwrap();
        let check: Value = serde_json::from_str(&done.stdout).unwrap();
        let of_ebpf = check["backends"][0]["requirements"].as_array().unwrap();
        let mut bpffs = of_ebpf
            .iter()
            .filter(|one| one["name"] == "BPF file system");
        let bpffs = bpffs.next().unwrap();
        assert_eq!(bpffs["met"], false, "{bpffs}");
        assert!(
            bpffs["remedy"].as_str().unwrap().contains("hostPath"),
            "{bpffs}"
        );
    }
}

#[test]
fn in_a_container_without_a_bpf_file_system_mode_auto_takes_the_next_backend() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let surroundings = AgentOptions {
        launcher: in_own_mounts(&[], NONE),
        ..options("auto")
    };
    let files = [(FILE, &*small_service(1, &[1]))];
    let mut agent = Agent::prepare(&shop.world, surroundings, &files).unwrap();
    agent.spawn().unwrap();
    assert_nftables_serves(&shop, &mut agent, "BPF file system");
}

#[test]
fn a_container_that_brings_the_hosts_bpf_file_system_pins_there() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let surroundings = AgentOptions {
        launcher: in_own_mounts(&[], THE_HOSTS),
        ..options("ebpf")
    };
    let files = [(FILE, &*small_service(1, &[1]))];
    let mut agent = Agent::start(&shop.world, surroundings, &files).unwrap();
    assert!(!agent.pins().entries().is_empty());
    // Its mount namespace is gone, the programs are not.
    agent.kill().unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    let to = frontend(1, 80);
    let attempt = prober.send(Transport::Tcp, to, 1).unwrap().remove(0);
    assert_eq!(attempt.answer_as(to), Ok(http(1)));
}

/// Bytes of the maps that this process holds open, as the kernel counts them.
fn memory_of_maps(pid: i32) -> u64 {
    let mut maps = BTreeMap::new();
    for file in fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap() {
        // What was closed meanwhile was no map.
        let Ok(info) = fs::read_to_string(file.unwrap().path()) else {
            continue;
        };
        let number = |name| -> Option<u64> {
            let line = info.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse().ok()
        };
        if let (Some(id), Some(bytes)) = (number("map_id:"), number("memlock:")) {
            maps.insert(id, bytes);
        }
    }
    maps.values().sum()
}

#[test]
fn a_layer_that_lacks_memory_is_waited_for_while_the_other_serves() {
    if !requires::met(SUITE, PRIVILEGED)
        || !requires::met(SUITE, NFTABLES)
        || !requires::met(SUITE, &[Need::MemoryLimit])
    {
        return;
    }
    let shop = Shop::routed().unwrap();
    // Enough for the agent; not for this map, which is allocated at once.
    let limit = MemoryLimit::new(256).unwrap();
    let mut surroundings = options("auto");
    surroundings
        .arguments
        .push("--map-size=AFFINITY=4000000".to_owned());
    surroundings.launcher = limit.launcher();
    let files = [(FILE, &*small_service(1, &[1]))];
    let mut agent = Agent::prepare(&shop.world, surroundings, &files).unwrap();
    agent.spawn().unwrap();
    let line = agent.wait_for("sync failed").unwrap();
    assert_eq!(line.text("layer"), Some("ebpf"));
    let reason = line.text("reason").unwrap();
    assert!(
        reason.contains("AFFINITY") && reason.contains("memory limit"),
        "{reason}"
    );
    let foretold = reason.split_once("BPF maps ").unwrap().1;
    let foretold: u64 = foretold.split_once(" MiB").unwrap().0.parse().unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    let mut answered = |number: u8| {
        let to = frontend(number, 80);
        let attempt = prober.send(Transport::Tcp, to, 1).unwrap().remove(0);
        assert_eq!(attempt.answer_as(to), Ok(http(number)));
    };
    answered(1);
    // What comes now is not put off either.
    agent.apply("more.yaml", &small_service(2, &[2])).unwrap();
    agent
        .wait_for_line("nftables has it", |line| {
            line.message() == Some("synced") && line.text("layer") == Some("nftables")
        })
        .unwrap();
    answered(2);
    let (_, told) = json(&agent, "state", &[]);
    let told = &told["agent"];
    assert_eq!(told["inForce"], false);
    let [above, beneath] = [&told["layers"][0], &told["layers"][1]];
    assert_eq!(
        (&above["backend"], &above["serves"]),
        (&"ebpf".into(), &false.into())
    );
    assert!(
        above["failure"].as_str().unwrap().contains("AFFINITY"),
        "{above}"
    );
    assert!(above["retryAt"].is_string(), "{above}");
    assert_eq!(beneath["inForce"], true);

    limit.set(4096).unwrap();
    let serving = agent
        .wait_for_line("eBPF serves", |line| {
            line.message() == Some("serving") && line.text("backend") == Some("ebpf")
        })
        .unwrap();
    answered(2);
    let taken = memory_of_maps(agent.pid().unwrap()) >> 20;
    assert!(
        foretold.abs_diff(taken) <= taken / 50,
        "{foretold} MiB were foretold, {taken} MiB are taken"
    );
    let refusal = serving.text("refusal");
    agent.terminate().unwrap();
    agent.options().launcher.clear();
    // What is known of this kernel does not depend on it.
    agent.launch().unwrap();
    assert_eq!(agent.refusal().ok(), refusal);
}
