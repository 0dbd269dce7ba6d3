//! What the containers start: the real program takes every command line and every file that the chart
//! makes.

use std::path::Path;

use proxy_agent::{admin, config::cli::DEFAULT_PIN_DIR};
use proxy_tests::{
    agent,
    chart::{Chart, Part, Source, Values},
    requires,
};
use serde_json::{Value, json};

use crate::{HELM, SERVERS, SUITE, files, root};

const NODE: &str = "node-a";

fn fields(path: &str) -> Option<String> {
    (path == "spec.nodeName").then(|| NODE.to_owned())
}

/// The arguments, after kubelet's work.
fn arguments(part: &Part) -> Vec<String> {
    assert_eq!(
        part.command,
        ["/usr/local/bin/proxy-agent"],
        "{}",
        part.name
    );
    let line = part.command_line(&part.environment(fields).unwrap());
    assert!(!line.concat().contains("$("), "{line:?}");
    line[1..].to_vec()
}

/// With `--help` behind them, flags are read and nothing is done.
#[test]
fn the_program_knows_every_flag() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    for file in files("ci") {
        let chart = Chart::render(&Values::file(&file)).unwrap();
        let mut parts = chart.init_parts().unwrap();
        parts.push(chart.agent().unwrap());
        for part in parts {
            let mut arguments = arguments(&part);
            arguments.push("--help".to_owned());
            let done = agent::run(&arguments).unwrap();
            assert_eq!(
                done.code,
                Some(0),
                "{}: {}: {done:?}",
                file.display(),
                part.name
            );
        }
    }
}

#[test]
fn the_program_takes_the_configuration_file_without_a_warning() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let manifests = root().join("tests/data/cluster-mixed.yaml");
    let directory = tempfile::tempdir().unwrap();
    for file in files("ci") {
        let chart = Chart::render(&Values::file(&file)).unwrap();
        let agent = chart.agent().unwrap();
        let written = chart.write_files(&agent, directory.path()).unwrap();
        let Some((path, at)) = written.first() else {
            assert_eq!(agent.args[0], "cleanup", "{}", file.display());
            continue;
        };
        let flag = format!("--config={}", at.display());
        assert!(
            agent.args.contains(&flag),
            "{}: {:?}",
            file.display(),
            agent.args
        );
        assert_taken(&file, path, &manifests);
    }
}

fn assert_taken(values: &Path, config: &Path, manifests: &Path) {
    let done = agent::run(&[
        "state".as_ref(),
        "--config".as_ref(),
        config.as_os_str(),
        "--manifests".as_ref(),
        manifests.as_os_str(),
        "--node-name".as_ref(),
        NODE.as_ref(),
    ])
    .unwrap();
    assert_eq!(done.code, Some(0), "{}: {done:?}", values.display());
    // Warnings begin like this: unknown fields, and those that are not honoured.
    let lines = done.stderr.lines();
    let warned: Vec<_> = lines
        .filter(|line| line.starts_with("proxy-agent: "))
        .collect();
    assert_eq!(warned, [""; 0], "{}", values.display());
}

/// Each value is in the file under kube-proxy's name for it.
#[test]
fn values_come_into_the_configuration_file() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let config = |set: &[&str]| -> Value {
        let chart = Chart::with(&[&[SERVERS], set].concat()).unwrap();
        let files = chart.files_of("culvert").unwrap();
        assert_eq!(files[0].0, "config.conf");
        serde_saphyr::from_str(&files[0].1).unwrap()
    };
    let least = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "auto",
        "healthzBindAddress": "0.0.0.0:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        // What kubelet gives containers of this priority class.
        "oomScoreAdj": -997,
    });
    assert_eq!(config(&[]), least);
    let much = config(&[
        "mode=nftables",
        "clusterCIDR=10.244.0.0/16",
        "detectLocalMode=BridgeInterface",
        "detectLocal.bridgeInterface=cni0",
        "nodePortAddresses={primary}",
        "masqueradeAll=true",
        "syncPeriod=1m",
        "config.bindAddressHardFail=true",
        "config.nftables.masqueradeBit=15",
        "config.oomScoreAdj=-500",
    ]);
    let mut expected = least;
    for (field, value) in [
        ("mode", json!("nftables")),
        ("clusterCIDR", json!("10.244.0.0/16")),
        ("detectLocalMode", json!("BridgeInterface")),
        ("detectLocal", json!({"bridgeInterface": "cni0"})),
        ("nodePortAddresses", json!(["primary"])),
        (
            "nftables",
            json!({"masqueradeAll": true, "masqueradeBit": 15, "syncPeriod": "1m"}),
        ),
        ("bindAddressHardFail", json!(true)),
        ("oomScoreAdj", json!(-500)),
    ] {
        expected[field] = value;
    }
    assert_eq!(much, expected);
    // The other modes read the section that kube-proxy reads by default.
    let file = config(&["syncPeriod=1m"]);
    assert_eq!(file.pointer("/iptables/syncPeriod"), Some(&json!("1m")));
}

/// The pins are elsewhere in the container than on the host; whoever asks need not know.
#[test]
fn state_and_explain_find_the_agent_by_themselves() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let agent = Chart::with(&[SERVERS]).unwrap().agent().unwrap();
    let asked = admin::socket_path(Path::new(DEFAULT_PIN_DIR));
    let flag = format!("--admin-socket={}", asked.display());
    assert!(agent.args.contains(&flag), "{flag}: {:?}", agent.args);
    let mut mounts = agent.mounts.iter();
    let of_host = mounts.find(|mount| asked.starts_with(&mount.at)).unwrap();
    let run = Source::Host("/run/culvert".into(), "DirectoryOrCreate".to_owned());
    assert_eq!(of_host.source, run);
}
