//! The configuration file that changes while the agent serves: no connection fails, and a file that cannot
//! be used changes nothing. Needs root, BPF and `nf_tables`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::fs::symlink,
    path::PathBuf,
};

use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    agent::{LogLine, Rights},
    container::{Capability, Container},
    pod::Transport,
    requires::{self, NFTABLES, PRIVILEGED},
    shop::{errno, service},
    world::NODE_ADDRESSES,
};
use tempfile::TempDir;

use crate::{
    serving::{await_that, get, metric},
    switch::from_a_pod,
};

const SUITE: &str = "live";
const FILE: &str = "cluster.yaml";
const HEALTH: &str = "127.0.0.1:10256";
const METRICS: &str = "127.0.0.1:10249";
const NODE_PORT: u16 = 30080;

const ANEW: &str = "configuration changed; the process executes itself anew";
const APPLIED: &str = "configuration applied";
const REFUSED: &str = "configuration refused";

/// A configuration file, as a `ConfigMap` is mounted: behind a link to the directory that is valid now.
pub struct Mounted {
    directory: TempDir,
    version: u32,
}

impl Mounted {
    pub fn new(fields: &str) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("culvert-test-")
            .tempdir()
            .unwrap();
        let mut mounted = Self {
            directory,
            version: 0,
        };
        mounted.swap(fields);
        symlink("..data/config.conf", mounted.path()).unwrap();
        mounted
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("config.conf")
    }

    /// Another version, as kubelet does it.
    pub fn swap(&mut self, fields: &str) {
        let at = |name: &str| self.directory.path().join(name);
        let old = at(&format!("..{}", self.version));
        self.version += 1;
        let name = format!("..{}", self.version);
        fs::create_dir(at(&name)).unwrap();
        fs::write(at(&name).join("config.conf"), text(fields)).unwrap();
        symlink(&name, at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
        if self.version > 1 {
            fs::remove_dir_all(old).unwrap();
        }
    }

    /// Another text in the file that is there, as an editor on the node does it.
    fn write(&self, fields: &str) {
        let staged = self.directory.path().join("staged");
        fs::write(&staged, text(fields)).unwrap();
        fs::rename(staged, self.path()).unwrap();
    }

    pub fn options(&self, further: &[&str]) -> AgentOptions {
        let config = format!("--config={}", self.path().display());
        let further = further.iter().map(|one| (*one).to_owned());
        AgentOptions {
            arguments: further.chain([config]).collect(),
            tells_syncs: false,
            ..AgentOptions::default()
        }
    }
}

fn text(fields: &str) -> String {
    format!("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n{fields}")
}

/// What became of changes: applied, by another start, refused.
fn reloads(shop: &Shop) -> [u32; 3] {
    ["applied", "restarted", "refused"].map(|result| {
        let sample = format!("culvert_config_reloads_total{{result=\"{result}\"}}");
        metric(shop, &sample).to_string().parse().unwrap()
    })
}

fn is_in_force(shop: &Shop) -> bool {
    metric(shop, "culvert_config_last_reload_successful") > 0.5
}

/// How often the process has begun.
fn starts(agent: &Agent<'_>) -> usize {
    let log = agent.log();
    let starts = log
        .iter()
        .filter(|line| line.message() == Some("backend chosen"));
    starts.count()
}

fn assert_well(shop: &Shop) {
    for path in ["/healthz", "/livez"] {
        assert_eq!(get(shop, HEALTH, path).0, 200, "{path}");
    }
}

/// An agent with socket hooks alone, which is not launched yet.
fn with_hooks<'w>(shop: &'w Shop, mounted: &Mounted) -> Agent<'w> {
    let options = mounted.options(&["--backend-order=ebpf", "--tc=off"]);
    Agent::prepare(&shop.world, options, &[(FILE, &service(1, &[1]))]).unwrap()
}

/// Waits until a file is refused, for one reason, which begins so.
fn assert_refused(agent: &mut Agent<'_>, begins: &str) {
    let line = agent.wait_for(REFUSED).unwrap();
    assert_eq!(line.level(), Some("ERROR"));
    let mistakes = line.list("mistakes").unwrap();
    assert!(
        mistakes.len() == 1 && mistakes[0].starts_with(begins),
        "{mistakes:?}"
    );
}

/// Waits until the process has executed itself anew and serves. What changed.
pub fn until_anew(agent: &mut Agent<'_>) -> Vec<String> {
    let line = agent.wait_for(ANEW).unwrap();
    let changed = line.list("changed").unwrap();
    let changed = changed.into_iter().map(str::to_owned).collect();
    agent.wait_for("backend chosen").unwrap();
    agent.wait_until_served().unwrap();
    changed
}

#[test]
fn log_and_period_change_without_another_start() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let mut mounted = Mounted::new("");
    let mut agent = with_hooks(&shop, &mounted);
    agent.launch().unwrap();
    let pid = agent.pid();
    let debug = |agent: &Agent<'_>| {
        let log = agent.log();
        log.iter().any(|line| line.level() == Some("DEBUG"))
    };
    assert!(!debug(&agent));

    mounted.swap("logging: {verbosity: 4}\n");
    let line = agent.wait_for(APPLIED).unwrap();
    assert_eq!(line.list("changed").unwrap(), ["logging.verbosity"]);
    agent.wait_for("log level changed").unwrap();
    agent.apply_and_sync(FILE, &service(1, &[1, 2])).unwrap();
    assert!(debug(&agent));

    // Compared once in thirty seconds before.
    let compared = || metric(&shop, "culvert_comparisons_total");
    mounted.swap("iptables: {syncPeriod: 100ms}\n");
    let line = agent.wait_for(APPLIED).unwrap();
    let mut changed = line.list("changed").unwrap();
    changed.sort_unstable();
    assert_eq!(changed, ["iptables.syncPeriod", "logging.verbosity"]);
    let line = agent.wait_for("log level changed").unwrap();
    assert_eq!(line.text("level"), Some("info"));
    let before = compared();
    await_that("comparisons", || compared() > before + 5.0);

    assert_eq!(reloads(&shop), [2, 0, 0]);
    let (_, shown) = get(&shop, METRICS, "/configz");
    assert!(shown.contains("\"syncPeriod\":\"100ms\""), "{shown}");
    assert_eq!((agent.pid(), starts(&agent)), (pid, 1));
    let log = agent.terminate().unwrap();
    // Nothing is wrong: who reads warnings has nothing to do.
    let warns = |line: &LogLine| line.level() == Some("WARN");
    let warnings: Vec<_> = log
        .iter()
        .filter(|line| warns(line))
        .map(|line| &line.raw)
        .collect();
    assert!(warnings.is_empty(), "{warnings:#?}");
}

#[test]
fn a_change_that_takes_another_start_fails_no_connection() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let mut mounted = Mounted::new("mode: auto\n");
    let node_port = service(2, &[3])
        .replace("port: 80, ", &format!("port: 80, nodePort: {NODE_PORT}, "))
        .replace("spec:\n", "spec:\n  type: NodePort\n");
    let files = [(FILE, &*service(1, &[1, 2])), ("more.yaml", &*node_port)];
    let mut agent = Agent::start(&shop.world, mounted.options(&[]), &files).unwrap();
    let pid = agent.pid();
    let mut pod = from_a_pod(&shop);
    let mut prober = Prober::start(&shop.client).unwrap();
    let to = SocketAddr::new(NODE_ADDRESSES[0], NODE_PORT);
    assert_eq!(errno(&mut prober, Transport::Tcp, to).unwrap(), None);
    pod.goes_on("before").unwrap();

    // Where NodePorts answer, the mode, what is masqueraded, and sizes of maps.
    let everywhere = "nodePortAddresses: [0.0.0.0/0, \"::/0\"]\n";
    let nftables = format!("mode: nftables\n{everywhere}");
    let all = format!("{nftables}nftables: {{masqueradeAll: true}}\n");
    let changes = [
        (
            "mode: auto\nnodePortAddresses: [192.0.2.0/24]\n",
            "nodePortAddresses",
            "ebpf over nftables",
            false,
        ),
        (&nftables, "mode", "nftables", true),
        (&all, "nftables.masqueradeAll", "nftables", true),
        ("mode: ebpf\n", "mode", "ebpf over nftables", true),
        (
            "mode: ebpf\nculvert: {mapSizes: {SLOTS: 5000}}\n",
            "culvert.mapSizes.SLOTS",
            "ebpf over nftables",
            true,
        ),
    ];
    for ((fields, path, layers, answers), round) in changes.into_iter().zip(1..) {
        mounted.swap(fields);
        let fields_told = until_anew(&mut agent);
        assert!(fields_told.iter().any(|one| one == path), "{fields_told:?}");
        pod.goes_on(fields).unwrap();
        assert_eq!(agent.layers().unwrap().join(" over "), layers);
        let error = errno(&mut prober, Transport::Tcp, to).unwrap();
        assert_eq!(error.is_none(), answers, "{fields}: {error:?}");
        assert_eq!(reloads(&shop), [0, round, 0]);
        assert_well(&shop);
    }
    // The same process, which ends as it is told.
    assert_eq!((agent.pid(), starts(&agent)), (pid, 6));
    agent.terminate().unwrap();
    pod.goes_on("without an agent").unwrap();
    pod.stop().unwrap();
}

#[test]
fn a_file_that_cannot_be_used_changes_nothing() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let mounted = Mounted::new("");
    let mut agent = with_hooks(&shop, &mounted);
    agent.launch().unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    let mut serves = |shop: &Shop| {
        let to = proxy_tests::shop::frontend(1, 80);
        assert_eq!(errno(&mut prober, Transport::Tcp, to).unwrap(), None);
        assert_well(shop);
    };

    mounted.write("nodePortAddresses: [somewhere]\nlogging: {verbosity: 4}\n");
    let file = mounted.path();
    assert_refused(
        &mut agent,
        &format!("--config {}: nodePortAddresses: ", file.display()),
    );
    serves(&shop);
    assert_eq!(reloads(&shop), [0, 0, 1]);
    assert!(!is_in_force(&shop));

    fs::remove_file(mounted.path()).unwrap();
    let line = agent.wait_for(REFUSED).unwrap();
    assert!(line.raw.contains("No such file"), "{}", line.raw);
    serves(&shop);
    assert_eq!(reloads(&shop), [0, 0, 2]);

    // As it was.
    mounted.write("");
    agent.wait_for("configuration unchanged").unwrap();
    await_that("in force", || is_in_force(&shop));
    mounted.write("logging: {verbosity: 4}\n");
    agent.wait_for(APPLIED).unwrap();
    await_that("applied", || reloads(&shop) == [1, 0, 2]);
    serves(&shop);
    assert_eq!(starts(&agent), 1);
    agent.terminate().unwrap();
}

#[test]
fn a_start_that_would_fail_is_not_tried() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let mut mounted = Mounted::new("");
    let mut agent = with_hooks(&shop, &mounted);
    agent.launch().unwrap();
    let take = || TcpListener::bind("127.0.0.1:10300");
    let taken = shop.world.node().netns().run(take).unwrap().unwrap();
    let fields = "bindAddressHardFail: true\nhealthzBindAddress: 127.0.0.1:10300\n";

    // Both are free, but not for both.
    mounted.swap("healthzBindAddress: 127.0.0.1:10311\nmetricsBindAddress: 127.0.0.1:10311\n");
    assert_refused(&mut agent, "metricsBindAddress: 127.0.0.1:10311");

    mounted.swap(fields);
    assert_refused(&mut agent, "healthzBindAddress: 127.0.0.1:10300");
    assert_well(&shop);
    assert_eq!(reloads(&shop), [0, 0, 2]);
    assert!(!is_in_force(&shop));
    assert_eq!(starts(&agent), 1);

    drop(taken);
    mounted.swap(&format!("{fields}# again\n"));
    let changed = until_anew(&mut agent);
    assert!(
        changed.iter().any(|one| one == "healthzBindAddress"),
        "{changed:?}"
    );
    assert_eq!(get(&shop, "127.0.0.1:10300", "/healthz").0, 200);
    assert_eq!(reloads(&shop), [0, 1, 0]);
    assert!(is_in_force(&shop));
    agent.terminate().unwrap();
}

/// The file changes again while the process executes itself.
#[test]
fn a_start_goes_by_what_was_found_to_be_right() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let mut mounted = Mounted::new("");
    let mut agent = with_hooks(&shop, &mounted);
    agent.launch().unwrap();
    for (port, round) in (10301..10306).zip(1..) {
        let fields = format!("healthzBindAddress: 127.0.0.1:{port}\n");
        mounted.swap(&fields);
        agent.wait_for(ANEW).unwrap();
        mounted.swap(&format!("mode: fast{port}\n"));
        agent.wait_for("backend chosen").unwrap();
        // Before or after it serves.
        let is_refused = |line: &LogLine| line.message() == Some(REFUSED);
        let refused = || agent.log().into_iter().filter(is_refused).count();
        await_that("refused", || refused() == round);
        assert_eq!(get(&shop, &format!("127.0.0.1:{port}"), "/healthz").0, 200);
        assert!(!is_in_force(&shop));
    }
    assert_eq!(starts(&agent), 6);
    agent.terminate().unwrap();
}

#[test]
fn a_mode_that_is_not_possible_here_is_not_tried() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let mut mounted = Mounted::new("mode: nftables\n");
    let options = AgentOptions {
        rights: Rights::Exactly(Container::with(&[Capability::CAP_NET_ADMIN])),
        ..mounted.options(&[])
    };
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &service(1, &[1]))]).unwrap();
    let mut pod = from_a_pod(&shop);

    mounted.swap("mode: ebpf\n");
    assert_refused(&mut agent, "mode: ebpf cannot serve on this host: ");
    pod.goes_on("refused").unwrap();
    assert_well(&shop);
    assert_eq!((starts(&agent), is_in_force(&shop)), (1, false));
    agent.terminate().unwrap();
    pod.stop().unwrap();
}

#[test]
fn a_signal_to_stop_is_heard_whenever_it_comes() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let mut mounted = Mounted::new("");
    let mut agent = with_hooks(&shop, &mounted);
    let mut anew = 0;
    agent.launch().unwrap();
    let mut pod = from_a_pod(&shop);
    agent.terminate().unwrap();
    // The process is at whatever it is just doing: it ends, executes itself, or begins.
    for (requests, score) in [0, 0, 1, 2, 3, 5, 8, 12, 18, 25, 35, 50, 70, 100, 140]
        .into_iter()
        .zip(1..)
    {
        agent.launch().unwrap();
        mounted.swap(&format!("oomScoreAdj: {score}\n"));
        agent.wait_for(ANEW).unwrap();
        pod.prober.load_wait("http", requests).unwrap();
        let log = agent.terminate().unwrap();
        // It had waited while the process executed itself.
        let soon = "SIGTERM: stopping before anything is served";
        let told = |line: &LogLine| line.message().is_some_and(|told| told.starts_with(soon));
        anew += usize::from(log.iter().any(told));
    }
    assert!(anew > 0, "none had begun anew by then");
    pod.stop().unwrap();
}
