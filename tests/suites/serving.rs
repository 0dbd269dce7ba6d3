//! What an agent tells over HTTP, and how it takes kube-proxy's configuration file, from its
//! start to the answer of its ports. Needs root and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use proxy_tests::{
    Agent, AgentOptions, Shop,
    agent::LIMIT,
    process::Process,
    requires::{self, PRIVILEGED},
    shop::service,
    world::NODE_ADDRESSES,
};

const HEALTH: &str = "127.0.0.1:10256";
const METRICS: &str = "127.0.0.1:10249";
const FILE: &str = "cluster.yaml";

/// A node whose taint says that an autoscaler is about to delete it.
const LEAVING: &str = "\
apiVersion: v1
kind: Node
metadata: {name: node-a}
spec:
  taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]
";

/// Status and body of a page, asked for on the node itself.
pub fn get(shop: &Shop, address: &str, path: &str) -> (u16, String) {
    ask(shop, address, "GET", path, "")
}

/// The same with a method and a body.
fn ask(shop: &Shop, address: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let address: SocketAddr = address.parse().unwrap();
    let length = body.len();
    let exchange = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = shop.world.node().netns().run(exchange).unwrap();
    let answer = answer.unwrap_or_else(|error| panic!("{address}{path}: {error}"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

#[test]
fn what_is_logged_changes_while_the_agent_runs() {
    if !requires::met("serving", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let options = AgentOptions {
        arguments: ["--profiling", "--log-level=info", "--proxy-mode=ebpf"]
            .map(str::to_owned)
            .into(),
        ..AgentOptions::default()
    };
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &service(1, &[1]))]).unwrap();
    let path = "/debug/flags/v";
    let (status, answer) = ask(&shop, METRICS, "PUT", path, "4");
    let done = "successfully set klog.logging.verbosity to 4\n";
    assert_eq!((status, &*answer), (200, done));
    let told = agent.wait_for("log level changed").unwrap();
    assert_eq!(
        (told.text("level"), told.text("before")),
        (Some("4"), Some("info"))
    );
    // Individual syncs are told at level debug only.
    agent.apply_and_sync(FILE, &service(1, &[1, 2])).unwrap();
    assert_eq!(ask(&shop, METRICS, "PUT", path, "loud").0, 400);

    let log_level = |arguments: &[&str]| {
        let mut command = agent.command("log-level").unwrap();
        command.args(arguments);
        let done = Process::run("proxy-agent log-level", command, LIMIT).unwrap();
        (done.code, done.stdout)
    };
    assert_eq!(log_level(&[]), (Some(0), "4\n".to_owned()));
    assert_eq!(log_level(&["loud"]), (Some(2), String::new()));
    let level = "info,proxy_agent::pipeline=debug";
    assert_eq!(log_level(&[level]), (Some(0), format!("{level}\n")));
    assert_eq!(log_level(&["info"]), (Some(0), "info\n".to_owned()));
    let before = agent.log().len();
    agent.apply(FILE, &service(1, &[1])).unwrap();
    let synced = "kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family=\"IPv6\"}";
    await_that("the change is in force", || metric(&shop, synced) >= 2.0);
    let said = agent.log().split_off(before);
    assert!(
        said.iter().all(|line| line.message() != Some("synced")),
        "{said:?}"
    );

    let (status, page) = get(&shop, METRICS, "/flagz");
    assert!(
        status == 200 && page.contains("\nprofiling=true\n"),
        "{page}"
    );
    assert!(page.contains("\nnode-name=node-a\n"), "{page}");
    assert_eq!(get(&shop, METRICS, "/statusz").0, 200);
}

const LAST_SYNC: &str = "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"}";

/// The value of one sample of `/metrics`.
pub fn metric(shop: &Shop, sample: &str) -> f64 {
    let (status, text) = get(shop, METRICS, "/metrics");
    assert_eq!(status, 200, "{text}");
    let value = text.lines().find_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        (name == sample).then(|| value.parse().unwrap())
    });
    value.unwrap_or_else(|| panic!("no {sample} in\n{text}"))
}

#[test]
#[expect(clippy::float_cmp, reason = "counts are exact")]
fn an_agent_that_serves_is_healthy_and_counts_what_it_does() {
    if !requires::met("serving", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let cluster = service(1, &[1]);
    let options = AgentOptions::default();
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &cluster)]).unwrap();
    let ports =
        f64::from(u32::try_from(agent.serving().unwrap().number("services").unwrap()).unwrap());

    // The log tells of the first sync a moment before this port does.
    await_that("both families are in force", || {
        let (status, body) = get(&shop, HEALTH, "/livez");
        assert_eq!(status, 200, "{body}");
        body.contains("\"IPv4\":{") && body.contains("\"IPv6\":{")
    });
    let (status, body) = get(&shop, HEALTH, "/healthz");
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("\"nodeEligible\":true,"), "{body}");
    let full = "kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}";
    let partial = "kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family=\"IPv6\"}";
    assert_eq!((metric(&shop, full), metric(&shop, partial)), (1.0, 0.0));
    assert_eq!(metric(&shop, "culvert_source_synced"), 1.0);
    let both = ["IPv4", "IPv6"].map(|family| {
        metric(
            &shop,
            &format!("culvert_service_ports{{ip_family=\"{family}\"}}"),
        )
    });
    assert_eq!(both[0] + both[1], ports);
    assert!(metric(&shop, "culvert_ebpf_map_entries{map=\"FRONTENDS\"}") >= 1.0);
    assert_eq!(
        metric(&shop, "kubeproxy_proxy_healthz_total{code=\"200\"}"),
        1.0
    );

    agent.apply_and_sync(FILE, &service(1, &[1, 2])).unwrap();
    // A scrape asks the loop that syncs, and so comes after it.
    assert_eq!((metric(&shop, full), metric(&shop, partial)), (1.0, 1.0));
    assert!(metric(&shop, "kubeproxy_sync_proxy_rules_endpoint_changes_total") >= 1.0);
    assert_eq!(
        metric(&shop, "kubeproxy_sync_proxy_rules_endpoint_changes_pending"),
        0.0
    );

    // What alerts on kube-proxy go by: it programs everything again once in a sync period.
    let last = || metric(&shop, LAST_SYNC);
    let before = last();
    // The signal may still be on its way to that loop.
    kill(Pid::from_raw(agent.pid().unwrap()), Signal::SIGHUP).unwrap();
    await_that("a comparison is counted", || {
        metric(&shop, "culvert_comparisons_total") == 1.0
    });
    assert!(last() > before, "a comparison is as good as a sync");

    // No sync comes of this: nothing in the kernel depends on it.
    agent.apply("node.yaml", LEAVING).unwrap();
    await_that("the node is not eligible", || {
        get(&shop, HEALTH, "/healthz").0 == 503
    });
    assert_eq!(get(&shop, HEALTH, "/livez").0, 200);
    let queued = LAST_SYNC.replace("last_timestamp", "last_queued_timestamp");
    assert!(last() >= metric(&shop, &queued), "nothing waits");
    agent.delete("node.yaml").unwrap();
    await_that("the node is eligible", || {
        get(&shop, HEALTH, "/healthz").0 == 200
    });
    assert_eq!(get(&shop, METRICS, "/proxyMode"), (200, "ebpf".to_owned()));
}

/// The health check node port of a Service with policy Local, and its one endpoint on `node`.
fn balanced(node: &str) -> String {
    format!(
        "---
apiVersion: v1
kind: Service
metadata: {{name: lb, namespace: shop}}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.9
  clusterIPs: [10.96.0.9, \"fd00:10:96::9\"]
  ipFamilies: [IPv4, IPv6]
  externalTrafficPolicy: Local
  healthCheckNodePort: {CHECK_PORT}
  ports: [{{name: http, port: 80, protocol: TCP, nodePort: 30080}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: lb-4, namespace: shop, labels: {{kubernetes.io/service-name: lb}}}}
addressType: IPv4
ports: [{{name: http, port: 8080, protocol: TCP}}]
endpoints: [{{addresses: [10.244.0.1], nodeName: {node}}}]
"
    )
}

const CHECK_PORT: u16 = 31999;

/// Whether anybody listens on the health check node port, asked for on the node itself.
fn is_listening(shop: &Shop, address: &str) -> bool {
    let address = SocketAddr::new(address.parse().unwrap(), CHECK_PORT);
    let connect = || TcpStream::connect(address).is_ok();
    shop.world.node().netns().run(connect).unwrap()
}

/// What a load balancer is told: status, endpoints here, and whether the proxy serves it.
fn asked(shop: &Shop, address: IpAddr) -> (u16, u64, bool) {
    let address = SocketAddr::new(address, CHECK_PORT).to_string();
    let (status, body) = get(shop, &address, "/any/path");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["service"]["name"], "lb");
    (
        status,
        body["localEndpoints"].as_u64().unwrap(),
        body["serviceProxyHealthy"].as_bool().unwrap(),
    )
}

const LISTENING: &str = "culvert_health_check_ports{state=\"listening\"}";
const FAILED: &str = "culvert_health_check_ports{state=\"failed\"}";

#[test]
#[expect(clippy::float_cmp, reason = "counts are exact")]
fn load_balancers_are_told_how_many_endpoints_are_here() {
    if !requires::met("serving", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let options = AgentOptions::default();
    let agent = Agent::start(&shop.world, options, &[(FILE, &balanced("node-a"))]).unwrap();
    let [v4, v6] = NODE_ADDRESSES;
    await_that("both families listen", || metric(&shop, LISTENING) == 2.0);
    // What comes from elsewhere, the socket hooks do not see: no load balancer may send it.
    assert_eq!(asked(&shop, v4), (503, 1, false));
    assert_eq!(asked(&shop, v6), (503, 0, false));

    agent.apply(FILE, &balanced("node-b")).unwrap();
    await_that("the endpoint is elsewhere", || asked(&shop, v4).1 == 0);
    agent.delete(FILE).unwrap();
    await_that("nobody listens", || !is_listening(&shop, &v4.to_string()));
    await_that("none is counted", || metric(&shop, LISTENING) == 0.0);
}

#[test]
fn an_agent_is_ready_once_its_first_state_is_in_force_and_says_what_it_waits_for() {
    if !requires::met("serving", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let silent = shop
        .world
        .node()
        .netns()
        .run(|| TcpListener::bind("127.0.0.1:0"));
    let silent = silent.unwrap().unwrap();
    let master = format!("http://{}", silent.local_addr().unwrap());
    let options = AgentOptions {
        source: vec![format!("--master={master}")],
        ..AgentOptions::default()
    };
    let cluster = service(1, &[1]);
    let mut agent = Agent::prepare(&shop.world, options, &[(FILE, &cluster)]).unwrap();
    agent.spawn().unwrap();
    let listening = || {
        let connect = || TcpStream::connect(HEALTH).is_ok();
        shop.world.node().netns().run(connect).unwrap()
    };
    await_that("the health port is served", listening);
    let reason = format!("API server {master}/ has not answered yet\n");
    assert_eq!(get(&shop, HEALTH, "/readyz"), (503, reason));
    // Both others are about what is in the kernel, which is as it was.
    assert_eq!(get(&shop, HEALTH, "/healthz").0, 200);
    agent.kill().unwrap();

    agent.options().source.clear();
    agent.launch().unwrap();
    await_that("it is ready", || get(&shop, HEALTH, "/readyz").0 == 200);
    assert_eq!(get(&shop, METRICS, "/readyz"), (200, "ok".to_owned()));
}

#[test]
#[expect(clippy::float_cmp, reason = "counts are exact")]
fn health_check_ports_follow_the_addresses_of_the_host() {
    if !requires::met("serving", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let node = shop.world.node().netns();
    let taken = SocketAddr::from(([0, 0, 0, 0], CHECK_PORT));
    let taken = node.run(|| TcpListener::bind(taken)).unwrap().unwrap();
    let options = AgentOptions {
        arguments: vec!["--nodeport-addresses=10.250.0.0/16,fd00:250::/32".to_owned()],
        ..AgentOptions::default()
    };
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &balanced("node-a"))]).unwrap();
    assert_eq!(metric(&shop, FAILED), 0.0);

    node.ip("address add 10.250.0.1/24 dev br0\naddress add fd00:250::1/64 dev br0\n")
        .unwrap();
    let told = agent.wait_for("health check node port not served").unwrap();
    assert_eq!(told.text("service"), Some("shop/lb"));
    assert_eq!(told.text("address"), Some("10.250.0.1"));
    await_that("what failed is counted", || metric(&shop, FAILED) == 1.0);
    await_that("the other family listens", || {
        is_listening(&shop, "fd00:250::1")
    });
    assert!(!is_listening(&shop, &NODE_ADDRESSES[1].to_string()));

    drop(taken);
    agent.wait_for("health check node port served").unwrap();
    assert!(is_listening(&shop, "10.250.0.1"));
    await_that("both are counted", || metric(&shop, LISTENING) == 2.0);
    node.ip("address del 10.250.0.1/24 dev br0\n").unwrap();
    await_that("one is left", || metric(&shop, LISTENING) == 1.0);
}

pub fn await_that(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within 30 seconds");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_port_that_is_taken_stops_the_agent_only_if_wanted() {
    if !requires::met("serving", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let node = shop.world.node().netns();
    let taken = node.run(|| TcpListener::bind(METRICS)).unwrap().unwrap();
    let options = AgentOptions {
        arguments: vec!["--bind-address-hard-fail".to_owned()],
        ..AgentOptions::default()
    };
    let cluster = service(1, &[1]);
    let mut agent = Agent::prepare(&shop.world, options, &[(FILE, &cluster)]).unwrap();
    agent.spawn().unwrap();
    let (code, log) = agent.wait_for_exit().unwrap();
    assert_eq!(code, Some(1));
    let error = log.last().unwrap().text("error").unwrap();
    assert!(
        error.contains(METRICS) && error.contains("--metrics-bind-address"),
        "{error}"
    );

    agent.options().arguments.clear();
    agent.launch().unwrap();
    let told = "address not bound; trying again in the background";
    let lines = agent.log();
    let lines = lines.iter().filter(|line| line.message() == Some(told));
    assert_eq!(lines.count(), 1);
    assert_eq!(get(&shop, HEALTH, "/livez").0, 200);
    drop(taken);
    agent.wait_for("address bound").unwrap();
    assert_eq!(get(&shop, METRICS, "/healthz"), (200, "ok".to_owned()));
}

#[test]
fn a_signal_while_it_starts_ends_it_without_a_false_word() {
    if !requires::met("serving", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let files = [(FILE, &*service(1, &[1]))];
    let mut agent = Agent::prepare(&shop.world, AgentOptions::default(), &files).unwrap();
    // Where it is by then differs.
    for _ in 0..20 {
        agent.spawn().unwrap();
        agent.wait_for("backend chosen").unwrap();
        let log = agent.terminate().unwrap();
        let errors: Vec<_> = log
            .iter()
            .filter(|line| matches!(line.level(), Some("ERROR" | "WARN")))
            .collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
}

#[test]
fn kube_proxys_file_is_honoured_as_far_as_it_is_said() {
    if !requires::met("serving", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(
        // Unlike the default, a score above zero needs no right.
        b"apiVersion: kubeproxy.config.k8s.io/v1alpha1\n\
          kind: KubeProxyConfiguration\n\
          metricsBindAddress: 127.0.0.1:9999\n\
          ipvs: {strictARP: true}\n\
          oomScoreAdj: 7\n",
    )
    .unwrap();
    let config = format!("--config={}", file.path().display());
    let options = AgentOptions {
        arguments: vec![config, "--healthz-bind-address=".to_owned()],
        ..AgentOptions::default()
    };
    let cluster = service(1, &[1]);
    let agent = Agent::start(&shop.world, options, &[(FILE, &cluster)]).unwrap();
    let (status, configuration) = get(&shop, "127.0.0.1:9999", "/configz");
    assert_eq!(status, 200);
    assert!(
        configuration.contains("\"oomScoreAdj\":7"),
        "{configuration}"
    );
    let score = format!("/proc/{}/oom_score_adj", agent.pid().unwrap());
    assert_eq!(std::fs::read_to_string(score).unwrap().trim(), "7");
    let nowhere = || TcpStream::connect(HEALTH).map(drop);
    let refused = shop.world.node().netns().run(nowhere).unwrap().unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let told: Vec<_> = agent
        .log()
        .into_iter()
        .filter(|line| line.message() == Some("configuration"))
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0]
            .text("text")
            .unwrap()
            .starts_with("ipvs.strictARP: true is not honoured")
    );
}
