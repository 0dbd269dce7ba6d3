//! How long connections are remembered that nobody uses: as kube-proxy's file and flags say, those
//! included that an earlier agent saw begin.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

use proxy_tests::{
    Agent, AgentOptions, Shop,
    pod::{Load, Transport},
};
use serde_json::{Value, json};

use super::{
    asked::{ask, listed},
    rig::{DNS, FILE, HTTP, Site, cluster, prober, served},
};

const METRICS: &str = "127.0.0.1:9999";

/// Writes the configuration file, with these fields besides.
fn configure(file: &Path, fields: &str) {
    let text = format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: auto
metricsBindAddress: {METRICS}
culvert: {{tc: auto, devices: [ext1]}}
{fields}"
    );
    std::fs::write(file, text).unwrap();
}

/// What the agent shows of its configuration.
fn shown(shop: &Shop) -> Value {
    let exchange = || {
        let mut stream = TcpStream::connect(METRICS)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(b"GET /configz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = shop.world.node().netns().run(exchange).unwrap().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let configuration: Value = serde_json::from_str(body).unwrap();
    configuration["kubeproxy.config.k8s.io"].clone()
}

#[test]
fn what_nobody_uses_ends_after_the_time_of_file_and_flags_although_it_began_before() {
    let Some(site) = Site::build() else {
        return;
    };
    let (shop, neighbour) = (&site.shop, &site.neighbour);
    let file = tempfile::NamedTempFile::new().unwrap();
    configure(file.path(), "");
    let options = AgentOptions {
        arguments: vec![format!("--config={}", file.path().display())],
        ..AgentOptions::default()
    };
    let objects = cluster(neighbour, &[1]);
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &*objects)]).unwrap();
    served(&mut agent, "ext1");

    let mut prober = prober(neighbour);
    let [http, dns] = [HTTP, DNS].map(|port| SocketAddr::new(neighbour.node[0], port));
    ask(&mut prober, "idle", Transport::Tcp, http);
    ask(&mut prober, "idle datagrams", Transport::Udp, dns);
    let busy = Load {
        name: "busy".to_owned(),
        transport: Transport::Tcp,
        to: http,
        threads: 1,
        pause: Duration::from_millis(20),
        keep: true,
    };
    prober.load_start(busy).unwrap();
    prober.load_wait("busy", 1).unwrap();
    assert_eq!(listed(shop, &agent, &[]).len(), 3);

    agent.terminate().unwrap();
    configure(file.path(), "conntrack: {tcpEstablishedTimeout: 1s}\n");
    let flag = "--conntrack-udp-timeout-stream=1s".to_owned();
    agent.options().arguments.push(flag);
    agent.launch().unwrap();
    let mut left = listed(shop, &agent, &[]);
    for _ in 0..300 {
        if left.len() == 1 {
            break;
        }
        prober.load_wait("busy", 5).unwrap();
        left = listed(shop, &agent, &[]);
    }
    assert_eq!(left.len(), 1, "{left:#?}");
    assert_eq!(left[0]["frontend"], http.to_string());
    let report = prober.load_stop("busy").unwrap();
    assert_eq!(report.failures.len(), 0, "{report:?}");

    let shown = shown(shop);
    assert_eq!(shown["conntrack"]["tcpEstablishedTimeout"], "1s");
    assert_eq!(shown["conntrack"]["tcpCloseWaitTimeout"], "1h0m0s");
    assert_eq!(shown["conntrack"]["udpStreamTimeout"], "1s");
    assert_eq!(shown["culvert"]["tc"], "auto");
    assert_eq!(shown["culvert"]["devices"], json!(["ext1"]));
    let log = agent.log();
    // They are for programs, too, and nothing that somebody has to be told of.
    let told = log
        .iter()
        .filter(|line| line.message() == Some("configuration"));
    assert_eq!(told.count(), 0, "{log:?}");
}
