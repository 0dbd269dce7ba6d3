//! The agent on an API server, from what is applied to what real traffic meets. Needs root and
//! BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "api_server/absent.rs"]
mod absent;
#[path = "api_server/events.rs"]
mod events;
#[path = "api_server/node.rs"]
mod node;
#[path = "api_server/partition.rs"]
mod partition;

use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    api_server::{ApiServer, Authority, Credentials, Fault, Kind, On, Options, Request},
    pod::Transport,
    process::Process,
    requires::{self, PRIVILEGED},
    shop::{dns6, frontend, frontend6, http, service},
};
use serde_json::{Value, json};

/// A world with an API server on its node, and an agent that has not been started.
struct Cluster {
    shop: Shop,
    server: ApiServer,
}

impl Cluster {
    fn new() -> Self {
        Self::with(None)
    }

    fn with(authority: Option<Arc<Authority>>) -> Self {
        let shop = Shop::new().unwrap();
        let server = ApiServer::start(Options {
            netns: Some(shop.world.node().netns()),
            authority,
            ..Options::default()
        })
        .unwrap();
        Self { shop, server }
    }

    /// One that serves the Service 1 with these endpoints.
    fn serving(endpoints: &[u8]) -> Self {
        let cluster = Self::new();
        cluster.server.apply_yaml(&service(1, endpoints)).unwrap();
        cluster
    }

    /// An agent on this server, and on those of `more` after it.
    fn masters(&self, more: &[&ApiServer]) -> Agent<'_> {
        let urls = std::iter::once(self.server.url()).chain(more.iter().map(|one| one.url()));
        self.agent(urls.flat_map(|url| ["--master".to_owned(), url]).collect())
    }

    fn agent(&self, source: Vec<String>) -> Agent<'_> {
        let options = AgentOptions {
            source,
            ..AgentOptions::default()
        };
        Agent::prepare(&self.shop.world, options, &[]).unwrap()
    }

    fn launch(&self) -> (Agent<'_>, Prober) {
        let mut agent = self.masters(&[]);
        agent.launch().unwrap();
        (agent, self.prober())
    }

    fn prober(&self) -> Prober {
        Prober::start(&self.shop.client).unwrap()
    }

    /// Asks an HTTP server in the node's namespace.
    fn get(&self, port: u16, path: &str) -> (u16, String) {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(("127.0.0.1", port))?;
            write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = self.shop.world.node().netns().run(ask).unwrap().unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }
}

/// Which endpoints answer at `to`; the errors, if none does.
fn answers(prober: &mut Prober, transport: Transport, to: SocketAddr) -> BTreeSet<String> {
    let attempts = prober.send(transport, to, 40).unwrap();
    attempts
        .iter()
        .map(|attempt| match attempt.answer {
            Some(answer) => answer.to_string(),
            None => attempt.errno().unwrap_or("no answer").to_owned(),
        })
        .collect()
}

/// Waits until what answers at `to` is exactly this.
fn until_answers(
    agent: &mut Agent<'_>,
    prober: &mut Prober,
    transport: Transport,
    to: SocketAddr,
    expected: &[&str],
) {
    let expected: BTreeSet<String> = expected.iter().map(|&one| one.to_owned()).collect();
    while answers(prober, transport, to) != expected {
        // Each change is in force when it is told.
        agent.wait_until_synced().unwrap();
    }
}

fn until_http(agent: &mut Agent<'_>, prober: &mut Prober, numbers: &[u8]) {
    let expected: Vec<String> = numbers.iter().map(|one| http(*one).to_string()).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    until_answers(agent, prober, Transport::Tcp, frontend(1, 80), &expected);
}

fn state(agent: &Agent<'_>) -> Value {
    let mut command = agent.command("state").unwrap();
    command.args(["--output", "json"]);
    let done = Process::run("proxy-agent state", command, proxy_tests::agent::LIMIT).unwrap();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    serde_json::from_str(&done.stdout).unwrap()
}

#[test]
fn what_is_applied_is_served_and_every_change_is_followed() {
    if !requires::met("api_server", PRIVILEGED) {
        return;
    }
    let cluster = Cluster::serving(&[1, 2]);
    let (mut agent, mut prober) = cluster.launch();
    until_http(&mut agent, &mut prober, &[1, 2]);
    let udp6 = (Transport::Udp, frontend6(1, 53));
    let ends = [dns6(1).to_string(), dns6(2).to_string()];
    assert_eq!(answers(&mut prober, udp6.0, udp6.1), BTreeSet::from(ends));

    cluster.server.apply_yaml(&service(1, &[3])).unwrap();
    until_http(&mut agent, &mut prober, &[3]);
    cluster.server.apply_yaml(&service(2, &[4])).unwrap();
    let (second, to) = (http(4).to_string(), frontend(2, 80));
    until_answers(&mut agent, &mut prober, Transport::Tcp, to, &[&second]);
    cluster
        .server
        .delete(Kind::EndpointSlice, "shop", "s2-ipv4")
        .unwrap();
    let refusal = agent.refusal().unwrap().to_owned();
    until_answers(&mut agent, &mut prober, Transport::Tcp, to, &[&refusal]);
    cluster.server.delete(Kind::Service, "shop", "s2").unwrap();
    until_answers(
        &mut agent,
        &mut prober,
        Transport::Tcp,
        to,
        &["ENETUNREACH"],
    );
    until_http(&mut agent, &mut prober, &[3]);
}

#[test]
fn nothing_is_programmed_before_every_kind_was_listed() {
    if !requires::met("api_server", PRIVILEGED) {
        return;
    }
    let cluster = Cluster::serving(&[1]);
    cluster
        .server
        .inject(Fault::Silent, On::any().kind(Kind::EndpointSlice));
    let mut agent = cluster.masters(&[]);
    agent.spawn().unwrap();
    for kind in [Kind::Service, Kind::Node, Kind::ServiceCidr] {
        let watched = |seen: &proxy_tests::api_server::Sight| (seen.open(kind) > 0).then_some(());
        cluster.server.wait("a watch", watched).unwrap();
    }
    let mut prober = cluster.prober();
    let to = frontend(1, 80);
    let untouched = BTreeSet::from(["ENETUNREACH".to_owned()]);
    assert_eq!(answers(&mut prober, Transport::Tcp, to), untouched);
    let log = agent.log();
    assert!(
        log.iter().all(|line| line.message() != Some("serving")),
        "{log:?}"
    );
    cluster.server.clear_faults();
    cluster.server.drop_connections().unwrap();
    agent.wait_for("serving").unwrap();
    until_http(&mut agent, &mut prober, &[1]);
}

#[test]
fn another_api_server_takes_over() {
    if !requires::met("api_server", PRIVILEGED) {
        return;
    }
    let cluster = Cluster::serving(&[1]);
    let second = cluster.server.beside(Options {
        netns: Some(cluster.shop.world.node().netns()),
        ..Options::default()
    });
    let second = second.unwrap();
    let mut agent = cluster.masters(&[&second]);
    agent.launch().unwrap();
    let mut prober = cluster.prober();
    for (away, there, endpoint) in [(&cluster.server, &second, 2), (&second, &cluster.server, 3)] {
        away.stop().unwrap();
        there.apply_yaml(&service(1, &[endpoint])).unwrap();
        until_http(&mut agent, &mut prober, &[endpoint]);
        away.accept().unwrap();
    }
}

#[test]
fn a_kubeconfig_brings_a_certificate_or_a_token_that_may_change() {
    if !requires::met("api_server", PRIVILEGED) {
        return;
    }
    let authority = Arc::new(Authority::new().unwrap());
    let cluster = Cluster::with(Some(Arc::clone(&authority)));
    let server = &cluster.server;
    server.apply_yaml(&service(1, &[1])).unwrap();
    server.set_tokens(Some(&["first"]));
    let directory = tempfile::tempdir().unwrap();
    let last = || -> Request { server.sight().requests.pop().unwrap() };
    let start = |credentials: &Credentials| {
        let path = server.kubeconfig(directory.path(), credentials).unwrap();
        let source = vec!["--kubeconfig".to_owned(), path.display().to_string()];
        let mut agent = cluster.agent(source);
        agent.launch().unwrap();
        agent
    };
    let mut prober = cluster.prober();

    let certificate = authority.client("system:kube-proxy").unwrap();
    let mut agent = start(&Credentials {
        certificate: Some(certificate),
        ..Credentials::default()
    });
    until_http(&mut agent, &mut prober, &[1]);
    assert_eq!(last().certificate.as_deref(), Some("system:kube-proxy"));
    drop(agent);

    let token = directory.path().join("token");
    fs::write(&token, "first\n").unwrap();
    let mut agent = start(&Credentials {
        token_file: Some(token.clone()),
        ..Credentials::default()
    });
    server.apply_yaml(&service(1, &[2])).unwrap();
    until_http(&mut agent, &mut prober, &[2]);
    // Replaced as kubelet does it, before the old one expires.
    let staged = directory.path().join("token.new");
    fs::write(&staged, "second\n").unwrap();
    fs::rename(&staged, &token).unwrap();
    server.set_tokens(Some(&["second"]));
    server.drop_connections().unwrap();
    server.apply_yaml(&service(1, &[3])).unwrap();
    until_http(&mut agent, &mut prober, &[3]);
    assert_eq!(last().token.as_deref(), Some("second"));
}

#[test]
fn an_api_server_behind_its_own_service_is_refused() {
    if !requires::met("api_server", PRIVILEGED) {
        return;
    }
    let cluster = Cluster::new();
    let mut agent = cluster.agent(vec!["--log-level".to_owned(), "info".to_owned()]);
    let launcher = [
        "env",
        "KUBERNETES_SERVICE_HOST=10.96.0.1",
        "KUBERNETES_SERVICE_PORT=443",
        "KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1",
    ];
    agent.options().launcher = launcher.map(str::to_owned).to_vec();
    agent.spawn().unwrap();
    let (code, log) = agent.wait_for_exit().unwrap();
    assert_eq!(code, Some(2), "{log:?}");
    let last = &log.last().unwrap().raw;
    for said in ["10.96.0.1:443", "--master", "--kubeconfig", "ClusterIP"] {
        assert!(last.contains(said), "{said:?} is not in {last}");
    }
}

#[test]
fn mistakes_are_diagnostics_until_they_are_put_right() {
    if !requires::met("api_server", PRIVILEGED) {
        return;
    }
    let cluster = Cluster::serving(&[1]);
    let (mut agent, mut prober) = cluster.launch();
    let of = |state: &Value, object: &str| -> Vec<String> {
        let diagnostics = state["diagnostics"].as_array().unwrap().iter();
        diagnostics
            .filter(|one| one["object"] == object)
            .map(|one| one["field"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(state(&agent)["diagnostics"], json!([]));
    // Valid for the API, and not what it looks like.
    let mut slice = cluster
        .server
        .objects()
        .into_iter()
        .find(|object| object["metadata"]["name"] == "s1-ipv4")
        .unwrap();
    let good = slice.clone();
    slice["endpoints"][0]["addresses"] = json!(["10.244.0.300"]);
    cluster.server.apply(&slice).unwrap();
    agent.wait_for("diagnostic").unwrap();
    let field = "endpoints[0].addresses[0]";
    assert_eq!(of(&state(&agent), "EndpointSlice shop/s1-ipv4"), [field]);
    // Not even valid.
    let bad = r#"{"metadata":{"namespace":"shop","name":"bad"},"spec":{"ports":"80"}}"#;
    cluster.server.apply_raw(Kind::Service, "shop", "bad", bad);
    agent.wait_for("diagnostic").unwrap();
    assert_eq!(of(&state(&agent), "Service shop/bad"), ["spec.ports"]);
    cluster.server.apply(&good).unwrap();
    cluster.server.delete(Kind::Service, "shop", "bad").unwrap();
    for _ in 0..2 {
        agent.wait_for("diagnostic resolved").unwrap();
    }
    assert_eq!(state(&agent)["diagnostics"], json!([]));
    until_http(&mut agent, &mut prober, &[1]);
}

#[test]
fn health_and_metrics_are_served_and_programming_is_timed() {
    if !requires::met("api_server", PRIVILEGED) {
        return;
    }
    let cluster = Cluster::serving(&[1]);
    cluster
        .server
        .inject(Fault::Silent, On::any().kind(Kind::Node));
    let mut agent = cluster.masters(&[]);
    agent.spawn().unwrap();
    let watched =
        |seen: &proxy_tests::api_server::Sight| (seen.open(Kind::Service) > 0).then_some(());
    cluster.server.wait("a watch", watched).unwrap();
    cluster.server.clear_faults();
    cluster.server.drop_connections().unwrap();
    agent.wait_for("serving").unwrap();
    for path in ["/healthz", "/livez"] {
        let (status, body) = cluster.get(10256, path);
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (status, &body["healthy"]),
            (200, &json!(true)),
            "{path}: {body}"
        );
    }
    let metric = |name: &str| -> f64 {
        let (status, text) = cluster.get(10249, "/metrics");
        assert_eq!(status, 200);
        let lines = text.lines().filter(|line| line.starts_with(name));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    };
    let timed = "kubeproxy_network_programming_duration_seconds_count";
    let before = metric(timed);
    assert!(metric("kubeproxy_sync_proxy_rules_duration_seconds_count") > 0.0);
    let mut slice = cluster
        .server
        .objects()
        .into_iter()
        .find(|object| object["metadata"]["name"] == "s1-ipv4")
        .unwrap();
    let now = jiff::Timestamp::now().to_string();
    slice["metadata"]["annotations"] = json!({
        "endpoints.kubernetes.io/last-change-trigger-time": now,
    });
    slice["endpoints"] = json!([{"addresses": ["10.244.0.2"], "nodeName": "node-a"}]);
    cluster.server.apply(&slice).unwrap();
    let mut prober = cluster.prober();
    until_http(&mut agent, &mut prober, &[2]);
    assert!(
        metric(timed) > before,
        "{} then, {before} before",
        metric(timed)
    );
    // A node that is about to go is not eligible for traffic, but alive.
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "node-a", "deletionTimestamp": now},
    });
    cluster.server.apply(&node).unwrap();
    let deadline = std::time::Instant::now() + proxy_tests::agent::LIMIT;
    while cluster.get(10256, "/healthz").0 != 503 {
        assert!(std::time::Instant::now() < deadline, "still eligible");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(cluster.get(10256, "/livez").0, 200);
}
