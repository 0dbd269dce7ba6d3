//! The chart: pods exactly as it renders them, through everything that becomes of an agent on a node,
//! under constant traffic.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::PodSpec;
use proxy_tests::{
    Traffic,
    agent::{self, LIMIT},
    api_server::Versions,
    chart::Chart,
    kubelet::{Bpffs, Kubelet, Pod, Surroundings},
    process::Process,
    shop::service,
};

use super::{Cluster, possible};
use crate::image::unpacked::Image;

/// For how long the API server is away.
const OUTAGE: Duration = Duration::from_mins(1);
const CHANGES: u8 = 200;
/// The objects of the chart are in the namespace that its documents name.
const NAMESPACE: &str = "kube-system";

/// The node on which the chart's pods run.
pub(super) struct Installed<'w> {
    cluster: &'w Cluster,
    pub(super) kubelet: Kubelet<'w>,
}

impl<'w> Installed<'w> {
    pub(super) fn new(cluster: &'w Cluster, bpffs: Bpffs) -> Self {
        let kubelet = Kubelet::new(&cluster.shop.world, bpffs).unwrap();
        Self { cluster, kubelet }
    }

    /// The chart with these values besides those that every installation needs. The root of cgroups is
    /// one that the agent could not find by itself: below that of this machine.
    fn render(&self, values: &[&str]) -> (PodSpec, Surroundings) {
        let servers = format!("apiServers={{{}}}", self.cluster.server.url());
        let cgroup = "extraArgs={--cgroup-path=/host/cgroup}";
        let all = [&[&*servers, cgroup], values].concat();
        let chart = Chart::with(&all).unwrap();
        let mut around = self.cluster.around(NAMESPACE);
        for map in chart.of_kind("ConfigMap") {
            let name = map["metadata"]["name"].as_str().unwrap();
            let files = chart.files_of(name).unwrap().into_iter().collect();
            around.config_maps.insert(name.to_owned(), files);
        }
        (chart.pod().unwrap(), around)
    }

    /// Starts its pod from this image and waits until it is ready.
    pub(super) fn start(&self, values: &[&str], image: &Path) -> Pod<'w> {
        let (pod, around) = self.render(values);
        let running = self.kubelet.start(&pod, image, &around).unwrap();
        running.wait_until_ready().unwrap();
        running
    }

    /// A program of this machine on the node.
    pub(super) fn command(&self, program: &str) -> Command {
        self.kubelet.on_node(Path::new(program)).unwrap()
    }

    /// The same; what it prints.
    pub(super) fn on_node(&self, words: &[&str]) -> String {
        let mut command = self.command(words[0]);
        command.args(&words[1..]);
        let done = Process::run(words[0], command, LIMIT).unwrap();
        assert_eq!(done.code, Some(0), "{words:?}: {done:?}");
        done.stdout
    }

    /// Where the Service 1 goes from now on.
    pub(super) fn lead_to(&self, endpoint: u8) {
        let server = &self.cluster.server;
        server.apply_yaml(&service(1, &[endpoint])).unwrap();
    }

    /// Waits until what the agent has in force names this endpoint.
    pub(super) fn until_led_to(&self, endpoint: u8) {
        let wanted = format!("10.244.0.{endpoint}:8080");
        let deadline = Instant::now() + LIMIT;
        loop {
            let agent = agent::path().unwrap().to_str().unwrap();
            let state = self.on_node(&[agent, "state"]);
            if state.contains(&wanted) {
                return;
            }
            assert!(Instant::now() < deadline, "{wanted} is not in {state}");
        }
    }
}

/// What a pod says that nobody should have to see.
pub(super) fn assert_quiet(pod: Pod<'_>) {
    for line in pod.terminate().unwrap() {
        assert!(!matches!(line.level(), Some("ERROR")), "{}", line.raw);
    }
}

#[test]
fn a_life_without_one_failed_connection() {
    if !possible() {
        return;
    }
    let cluster = Cluster::new();
    let node = Installed::new(&cluster, Bpffs::Absent);
    let (image, other) = (cluster.image(), Image::unpack("-tools"));

    // Installed where nothing mounts the BPF file system.
    let first = node.start(&[], &image);
    let chosen = first.log().into_iter();
    let mut chosen = chosen.filter(|line| line.message() == Some("backend chosen"));
    let chosen = chosen.next().unwrap();
    assert_eq!(
        chosen.text("backend"),
        Some("ebpf over nftables"),
        "{chosen:?}"
    );
    let mut traffic = cluster.traffic();
    traffic.goes_on("installed").unwrap();
    let set = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established";
    assert_eq!(node.on_node(&["cat", set]), "86400\n");

    for change in 0..CHANGES {
        node.lead_to(1 + change % 8);
    }
    node.until_led_to(1 + (CHANGES - 1) % 8);
    traffic.goes_on("after changes").unwrap();

    // Another version and back: while the first is away, what it made serves.
    assert_quiet(first);
    traffic.goes_on("between two versions").unwrap();
    let upgraded = node.start(&["image.tag=other"], &other.root());
    traffic.goes_on("upgraded").unwrap();
    node.lead_to(3);
    node.until_led_to(3);
    assert_quiet(upgraded);
    let back = node.start(&[], &image);
    traffic.goes_on("rolled back").unwrap();

    drained(&node, &back, &mut traffic);
    away(&node, &back, &mut traffic);

    // By another pod of another configuration; the suite `live` has what becomes of it in one that runs.
    assert_quiet(back);
    let changed = node.start(&["syncPeriod=20s"], &image);
    traffic.goes_on("configured").unwrap();

    // Uninstalled: everything stays as it is, and says so.
    assert_quiet(changed);
    traffic.goes_on("uninstalled").unwrap();
    traffic.stop().unwrap();
    assert!(node.on_node(&["nft", "list", "tables"]).contains("culvert"));
    assert!(node.kubelet.seen("/sys/fs/bpf/culvert").exists());

    // Until it is cleaned.
    let mut cleans = node.start(&["mode=cleanup"], &image);
    cleans.wait_for_words("clean;").unwrap();
    cleans.terminate().unwrap();
    assert_eq!(node.on_node(&["nft", "list", "tables"]), "");
    assert!(!node.kubelet.seen("/sys/fs/bpf/culvert").exists());
    let left = fs::read_dir(node.kubelet.seen("/run/culvert")).unwrap();
    assert_eq!(left.count(), 0);
}

/// The node is cordoned, its pods go elsewhere, and it comes back.
fn drained(node: &Installed<'_>, pod: &Pod<'_>, traffic: &mut Traffic) {
    let server = &node.cluster.server;
    server.apply_yaml(&super::node(true)).unwrap();
    node.lead_to(5);
    node.until_led_to(5);
    traffic.goes_on("drained").unwrap();
    pod.is_well().unwrap();
    server.apply_yaml(&super::node(false)).unwrap();
}

/// The API server is away for a minute, and something changes meanwhile.
fn away(node: &Installed<'_>, pod: &Pod<'_>, traffic: &mut Traffic) {
    let server = &node.cluster.server;
    server.stop().unwrap();
    let began = Instant::now();
    node.lead_to(6);
    while began.elapsed() < OUTAGE {
        traffic.goes_on("without an API server").unwrap();
        pod.is_well().unwrap();
    }
    server.restart(Versions::GoOn).unwrap();
    node.until_led_to(6);
    traffic.goes_on("with an API server again").unwrap();
}
