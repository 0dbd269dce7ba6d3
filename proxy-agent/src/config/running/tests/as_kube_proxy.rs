//! Command lines are read as kube-proxy reads them.

use super::*;

/// kube-proxy takes an empty name for none.
#[test]
fn an_empty_node_name_is_none() {
    let file = file("hostnameOverride: from-file\n");
    let config = format!("--config={}", file.path().display());
    let run = run_args(&["--manifests=x", "--hostname-override=", &config]).unwrap();
    assert_eq!(&*run.agent.model.node, "from-file");
    let run = run_args(&["--manifests=x", "--hostname-override="]).unwrap();
    assert!(!run.agent.model.node.is_empty());
    let error = run_args(&["--manifests=x", "--hostname-override= "]).unwrap_err();
    assert!(error.to_string().contains("must not be blank"), "{error}");
    let error = run_args(&["--manifests=x", "--hostname-override=$(NODE_NAME)"]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("\"$(NODE_NAME)\" names a variable"),
        "{error}"
    );
}

/// As kube-proxy reads command lines.
#[test]
fn the_last_of_several_counts_and_switches_take_gos_words() {
    let run = run_args(&[
        "--manifests=x",
        "--node-name=a",
        "--hostname-override=b",
        "--v=2",
        "--v=4",
        "--cluster-cidr=10.0.0.0/8",
        "--cluster-cidr=10.1.0.0/16",
        "--masquerade-all=T",
        "--masquerade-all=0",
        "--masquerade-all=1",
        "--map-size=SLOTS=7",
        "--map-size=PEERS=8",
    ])
    .unwrap();
    assert_eq!(&*run.agent.model.node, "b");
    assert_eq!(run.agent.verbosity, Some(4));
    assert!(run.agent.model.traffic.masquerade_all);
    assert_eq!(run.backends.given.texts("map-size").count(), 2);
}

#[test]
fn the_level_of_the_log_comes_before_kube_proxys_verbosity() {
    let verbosity = |arguments: &[&str]| {
        let all = [&["--manifests=x", "--node-name=a"], arguments].concat();
        run_args(&all).unwrap().agent.verbosity
    };
    let file = file("logging: {verbosity: 6}\n");
    let config = format!("--config={}", file.path().display());
    assert_eq!(verbosity(&[]), None);
    assert_eq!(verbosity(&[&config]), Some(6));
    assert_eq!(verbosity(&[&config, "--v=4"]), Some(4));
    assert_eq!(verbosity(&[&config, "--log-level=warn"]), None);
}

/// A value that a flag of this type takes.
fn value(kind: &str, default: Option<&str>) -> String {
    if let Some(default) = default {
        return default.trim_matches('"').to_owned();
    }
    match kind {
        "bool" => "true",
        "duration" => "9s",
        "int32" | "Level" => "2",
        "mapStringBool" => "AllAlpha=false",
        "quantity" => "1",
        "strings" => "10.0.0.0/8",
        "LocalMode" => "NodeCIDR",
        "ProxyMode" => "nftables",
        "version[=true]" => "false",
        _ => "x",
    }
    .to_owned()
}

#[test]
fn every_flag_of_kube_proxy_is_taken() {
    let list = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/kube-proxy-flags.txt"
    );
    let list = std::fs::read_to_string(list).unwrap();
    let mut count = 0;
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let (Some(name), Some(kind)) = (columns.next(), columns.next()) else {
            panic!("{line}");
        };
        if name == "help" {
            continue;
        }
        let default = columns.next().filter(|default| !default.is_empty());
        let flag = format!("--{name}={}", value(kind, default));
        let taken = Cli::try_parse_from(["proxy-agent", &flag]);
        assert!(taken.is_ok(), "{flag}: {}", taken.unwrap_err());
        count += 1;
    }
    assert!(count > 50, "{count}");
}

/// k3s and kops give flags, and no file.
#[test]
fn the_command_lines_of_k3s_and_kops_are_taken() {
    let k3s = run_args(&[
        "--cluster-cidr=10.42.0.0/16",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-close-wait=0s",
        "--conntrack-tcp-timeout-established=0s",
        "--healthz-bind-address=127.0.0.1",
        "--hostname-override=node",
        "--kubeconfig=/var/lib/rancher/k3s/agent/kubeproxy.kubeconfig",
        "--proxy-mode=iptables",
    ])
    .unwrap();
    assert_eq!(
        k3s.agent.serving.healthz,
        Some("127.0.0.1:10256".parse().unwrap())
    );
    assert_eq!(k3s.backends.timeouts.tcp_established, None);
    let kops = run_args(&[
        "--cluster-cidr=100.96.0.0/11",
        "--conntrack-max-per-core=131072",
        "--hostname-override=node",
        "--kubeconfig=/var/lib/kube-proxy/kubeconfig",
        "--master=https://127.0.0.1",
        "--oom-score-adj=-998",
        "--v=2",
    ])
    .unwrap();
    assert_eq!(kops.agent.oom_score_adj, -998);
    assert_eq!(kops.agent.verbosity, Some(2));
}

#[test]
fn flags_that_kube_proxy_gave_up_are_told() {
    let run = run_args(&["--manifests=x", "--node-name=n", "--healthz-port=7"]).unwrap();
    let told = run.agent.warnings.iter();
    let told: Vec<_> = told
        .filter(|text| text.starts_with("--healthz-port"))
        .collect();
    assert_eq!(
        told,
        ["--healthz-port 7: decides nothing, as with kube-proxy 1.36; give --healthz-bind-address"]
    );
}
