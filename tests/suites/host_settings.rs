//! What the agent sets connection tracking of its host to, on a real kernel: timeouts, which each network
//! namespace has of its own; limits are the whole machine's. Needs root and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{fs, os::fd::AsFd as _};

use proxy_tests::{
    Agent, AgentOptions, Shop,
    agent::{self, LIMIT, LogLine, Rights},
    container::Container,
    process::{self, Finished, Process},
    requires::{self, PRIVILEGED},
    shop::small_service,
};

use crate::live::{Mounted, until_anew};

const SUITE: &str = "host_settings";
const FILE: &str = "web.yaml";
const REFUSED: &str = "setting of connection tracking not as configured";

/// Nothing is set with these.
const NOTHING: [&str; 3] = [
    "--conntrack-max-per-core=0",
    "--conntrack-tcp-timeout-established=0",
    "--conntrack-tcp-timeout-close-wait=0",
];

/// A node whose kernel has its connection tracking loaded, if this machine can have one.
fn tracking() -> Option<Shop> {
    let met = requires::met(SUITE, PRIVILEGED);
    met.then(|| {
        proxy_conntrack::load().unwrap();
        Shop::new().unwrap()
    })
}

/// A container into which the host's sysctls of the network are mounted, as the chart does it.
fn with_sysctls() -> Rights {
    let mut container = Container::with(&agent::for_programs().unwrap());
    container.writable.push("/proc/sys/net".into());
    Rights::Exactly(container)
}

/// Settings of the node.
fn settings<const N: usize>(shop: &Shop, names: [&str; N]) -> [u64; N] {
    let read = |name| {
        let file = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
        fs::read_to_string(file).unwrap().trim().parse().unwrap()
    };
    let node = shop.world.node().netns();
    node.run(|| names.map(read)).unwrap()
}

fn timeouts(shop: &Shop) -> [u64; 4] {
    let names = ["tcp_timeout_established", "tcp_timeout_close_wait"];
    let [established, close_wait] = settings(shop, names);
    let [udp, udp_stream] = settings(shop, ["udp_timeout", "udp_timeout_stream"]);
    [established, close_wait, udp, udp_stream]
}

fn agent<'w>(shop: &'w Shop, rights: Rights, arguments: &[&str]) -> Agent<'w> {
    let options = AgentOptions {
        arguments: arguments.iter().map(|&one| one.to_owned()).collect(),
        rights,
        ..AgentOptions::default()
    };
    let files = [(FILE, &*small_service(1, &[1]))];
    Agent::start(&shop.world, options, &files).unwrap()
}

/// `--init-only` on the node.
fn init(shop: &Shop, arguments: &[&str]) -> Finished {
    let mut command = std::process::Command::new(agent::path().unwrap());
    command.arg("--init-only").args(arguments);
    let node = shop.world.node().netns();
    process::enter(&mut command, Some(node.as_fd()), None).unwrap();
    Process::run("proxy-agent --init-only", command, LIMIT).unwrap()
}

fn refused(log: &[LogLine]) -> Vec<&str> {
    let refused = log.iter().filter(|line| line.message() == Some(REFUSED));
    refused.map(|line| line.text("error").unwrap()).collect()
}

#[test]
fn timeouts_are_as_asked_for_and_limits_are_not_lowered() {
    let Some(shop) = tracking() else {
        return;
    };
    let kernels = timeouts(&shop);
    let limit = settings(&shop, ["max", "buckets"]);
    let asked = [
        "--conntrack-max-per-core=1",
        "--conntrack-min=1",
        "--conntrack-udp-timeout=45s",
        "--conntrack-tcp-be-liberal",
    ];
    let mut agent = agent(&shop, Rights::Root, &asked);
    assert_eq!(timeouts(&shop), [86400, 3600, 45, kernels[3]]);
    assert_eq!(settings(&shop, ["tcp_be_liberal"]), [1]);
    assert_eq!(settings(&shop, ["max", "buckets"]), limit);
    assert_eq!(refused(&agent.log()), [""; 0]);

    // Asked for no more: they stay, as kube-proxy leaves them.
    agent.terminate().unwrap();
    let options = agent.options();
    options.arguments = NOTHING.map(str::to_owned).to_vec();
    agent.launch().unwrap();
    agent.terminate().unwrap();
    assert_eq!(timeouts(&shop), [86400, 3600, 45, kernels[3]]);
    assert_eq!(settings(&shop, ["tcp_be_liberal"]), [1]);
}

#[test]
fn what_a_container_may_not_set_is_set_by_init_only() {
    let Some(shop) = tracking() else {
        return;
    };
    let kernels = timeouts(&shop);
    // Its file system is read-only, /proc/sys included.
    let contained = || Rights::Exactly(Container::with(&agent::for_programs().unwrap()));
    // What nobody asked for is no warning, and serving needs none of it.
    let mut agent = agent(&shop, contained(), &NOTHING[..1]);
    assert_eq!(timeouts(&shop), kernels);
    let log = agent.terminate().unwrap();
    let told = log.iter().filter(|line| line.raw.contains("--init-only"));
    assert!(told.clone().all(|line| line.level() == Some("INFO")));
    assert_eq!(told.count(), 2, "{log:?}");

    let asked = [NOTHING[0], "--conntrack-udp-timeout=45s"];
    let options = agent.options();
    options.arguments = asked.map(str::to_owned).to_vec();
    agent.launch().unwrap();
    let log = agent.terminate().unwrap();
    let [text] = refused(&log)[..] else {
        panic!("{log:?}");
    };
    for part in [
        "nf_conntrack_udp_timeout to 45",
        "Read-only file system",
        "--init-only",
    ] {
        assert!(text.contains(part), "{text}");
    }

    let done = init(&shop, &asked);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stdout.contains("nf_conntrack_udp_timeout to 45\n"),
        "{done:?}"
    );
    assert_eq!(timeouts(&shop)[..3], [86400, 3600, 45]);
    agent.launch().unwrap();
    let log = agent.terminate().unwrap();
    assert!(!log.iter().any(|line| line.raw.contains("--init-only")));
    // Nothing is left to do.
    let done = init(&shop, &asked);
    assert_eq!(done.stdout, "the host is prepared\n");
}

#[test]
fn a_container_with_the_hosts_sysctls_needs_no_init_only() {
    let Some(shop) = tracking() else {
        return;
    };
    let asked = [NOTHING[0], "--conntrack-udp-timeout=45s"];
    let mut agent = agent(&shop, with_sysctls(), &asked);
    assert_eq!(timeouts(&shop)[..3], [86400, 3600, 45]);
    let log = agent.terminate().unwrap();
    assert!(!log.iter().any(|line| line.raw.contains("--init-only")));
}

#[test]
fn a_change_of_the_file_is_set_as_well() {
    let Some(shop) = tracking() else {
        return;
    };
    let mut mounted = Mounted::new("conntrack: {maxPerCore: 0}\n");
    let options = AgentOptions {
        rights: with_sysctls(),
        ..mounted.options(&["--tc=off"])
    };
    let files = [(FILE, &*small_service(1, &[1]))];
    let mut agent = Agent::start(&shop.world, options, &files).unwrap();
    mounted.swap("conntrack: {maxPerCore: 0, udpTimeout: 45s, tcpBeLiberal: true}\n");
    until_anew(&mut agent);
    assert_eq!(timeouts(&shop)[..3], [86400, 3600, 45]);
    assert_eq!(settings(&shop, ["tcp_be_liberal"]), [1]);
    agent.terminate().unwrap();
}

#[test]
fn init_only_fails_for_what_was_asked_for_and_tells_of_the_rest() {
    let Some(shop) = tracking() else {
        return;
    };
    // Only the machine's own network namespace may raise the limits.
    let most = ["--conntrack-min=1048576"];
    let [limit] = settings(&shop, ["max"]);
    let done = init(&shop, &most);
    if limit < 1 << 20 {
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(
            done.stderr.contains("nf_conntrack_max to 1048576 failed: "),
            "{done:?}"
        );
    } else {
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    assert_eq!(settings(&shop, ["max"]), [limit]);
    // The rest is set all the same.
    assert_eq!(timeouts(&shop)[..2], [86400, 3600]);
    let done = init(&shop, &["--conntrack-min=-1"]);
    assert_eq!(done.code, Some(2), "{done:?}");
}
