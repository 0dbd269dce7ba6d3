//! What each change of a configuration asks for, of what flags and a file really mean.

use std::io::Write as _;

use clap::Parser as _;

use super::*;
use crate::config::{self, cli::Cli};

/// What `run` makes of a file with `fields`.
fn configuration(fields: &str, flags: &[&str]) -> Configuration {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    write!(file, "{head}{fields}").unwrap();
    let path = format!("--config={}", file.path().display());
    let given = ["proxy-agent", "--manifests=x", "--node-name=node-a", &path];
    let cli = Cli::try_parse_from(given.iter().chain(flags)).unwrap();
    Configuration::Run(Box::new(config::run(&cli.run, None).unwrap()))
}

/// What a change from a file with `before` to one with `after` asks for, and which fields it is about.
fn changed(before: &str, after: &str) -> (Change, Vec<String>) {
    let (before, after) = (configuration(before, &[]), configuration(after, &[]));
    (change(&before, &after), differences(&before, &after))
}

#[test]
fn what_means_the_same_is_no_change() {
    let same = [
        ("", ""),
        ("", "# a comment\n"),
        ("mode: auto\n", "mode: 'auto'\n"),
        (
            "iptables: {syncPeriod: 60s}\n",
            "iptables: {syncPeriod: 1m}\n",
        ),
    ];
    for (before, after) in same {
        assert_eq!(changed(before, after), (Change::Nothing, vec![]), "{after}");
    }
}

#[test]
fn log_and_period_change_while_the_agent_serves() {
    let (change, paths) = changed("", "logging: {verbosity: 4}\n");
    let live = Live {
        verbosity: Some(4),
        ..Live::default()
    };
    assert_eq!(change, Change::Live(live));
    assert_eq!(paths, ["logging.verbosity"]);

    let (change, _) = changed("logging: {verbosity: 4}\n", "");
    let live = Live {
        verbosity: Some(0),
        ..Live::default()
    };
    assert_eq!(change, Change::Live(live));

    let (change, paths) = changed(
        "iptables: {syncPeriod: 60s}\n",
        "iptables: {syncPeriod: 10s}\n",
    );
    let live = Live {
        sync_period: Some(Duration::from_secs(10)),
        ..Live::default()
    };
    assert_eq!(change, Change::Live(live));
    assert_eq!(paths, ["iptables.syncPeriod"]);
}

#[test]
fn what_is_not_honoured_is_only_shown() {
    let (change, paths) = changed("", "ipvs: {scheduler: sh}\n");
    assert_eq!(change, Change::Live(Live::default()));
    assert_eq!(paths, ["ipvs.scheduler"]);
}

#[test]
fn everything_else_takes_another_start() {
    let fields = [
        ("nodePortAddresses: [127.0.0.0/8]\n", "nodePortAddresses"),
        (
            "iptables: {masqueradeAll: true}\n",
            "iptables.masqueradeAll",
        ),
        (
            "iptables: {localhostNodePorts: false}\n",
            "iptables.localhostNodePorts",
        ),
        ("detectLocalMode: NodeCIDR\n", "detectLocalMode"),
        ("metricsBindAddress: 127.0.0.1:1\n", "metricsBindAddress"),
        ("enableProfiling: true\n", "enableProfiling"),
        ("oomScoreAdj: -1\n", "oomScoreAdj"),
        (
            "logging: {verbosity: 4}\nmode: iptables\n",
            "logging.verbosity",
        ),
    ];
    for (after, path) in fields {
        let (change, paths) = changed("", after);
        assert_eq!(change, Change::Anew, "{after}");
        assert!(paths.iter().any(|one| one == path), "{after}: {paths:?}");
    }
}

#[test]
fn a_flag_wins_over_the_file_whatever_the_file_becomes() {
    let flags = ["--log-level=warn", "--nodeport-addresses=primary"];
    let before = configuration("", &flags);
    let after = configuration(
        "logging: {verbosity: 9}\nnodePortAddresses: [127.0.0.0/8]\n",
        &flags,
    );
    let live = Change::Live(Live::default());
    assert_eq!(change(&before, &after), live);
}
