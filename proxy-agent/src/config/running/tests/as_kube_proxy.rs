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
