//! kube-proxy's own verdict on many files, and the defaults that it fills in: recorded, and compared with ours.

use std::fs;

use clap::Parser as _;
use serde::Deserialize;
use serde_json::Map;

use super::*;
use crate::config::cli::Cli;

/// What kube-proxy 1.36.2 made of a file and of flags.
#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    config: Option<String>,
    flags: Vec<String>,
    exit: i32,
    defaulted: Option<String>,
}

/// Where our verdict is another one, and why.
const OTHERWISE: [(&str, &str); 9] = [
    ("mode-auto", "a mode of ours"),
    ("mode-ebpf", "a mode of ours"),
    ("v1alpha2", "kube-proxy cannot read it"),
    (
        "clusterCIDR= 10.0.0.0/8",
        "blanks do no harm, and are in use",
    ),
    ("clusterCIDR=10.0.0.0/8, fd00::/64", "the same"),
    (
        "showHiddenMetricsForVersion=1.34",
        "no metric is hidden, whatever the version",
    ),
    ("showHiddenMetricsForVersion=1.36", "the same"),
    (
        "featureGates={NFTablesProxyMode: false}",
        "gates decide nothing here",
    ),
    (
        "featureGates={PreferSameTrafficDistribution: false}",
        "the same",
    ),
];

fn cases() -> Vec<Case> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/config-corpus/kube-proxy-1.36.2.json"
    );
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn ours(case: &Case) -> Result<Settings, Vec<String>> {
    let flags = case.flags.iter().map(String::as_str);
    let cli = Cli::try_parse_from(["proxy-agent"].into_iter().chain(flags));
    let cli = cli.map_err(|error| vec![error.to_string()])?;
    settle(case.config.as_deref(), &cli.run.given()).map_err(|wrong| texts(&wrong))
}

#[test]
fn our_verdict_is_that_of_kube_proxy() {
    let mut otherwise = Vec::new();
    let cases = cases();
    assert_eq!(cases.len(), 430);
    for case in &cases {
        let ours = ours(case);
        if ours.is_ok() != (case.exit == 0) {
            assert!(
                OTHERWISE.iter().any(|(name, _)| *name == case.name),
                "{}: kube-proxy ended with {}, and we say {:?}",
                case.name,
                case.exit,
                ours.map(|settings| settings.notices)
            );
            otherwise.push(&*case.name);
        }
    }
    // None is listed that is as with kube-proxy.
    let listed: Vec<_> = OTHERWISE.iter().map(|(name, _)| *name).collect();
    otherwise.sort_by_key(|name| listed.iter().position(|one| one == name));
    assert_eq!(otherwise, listed);
}

#[test]
fn our_defaults_are_those_that_kube_proxy_fills_in() {
    for case in cases() {
        let (Ok(ours), Some(theirs)) = (ours(&case), &case.defaulted) else {
            continue;
        };
        let theirs: Value = serde_saphyr::from_str(theirs).unwrap();
        let section = match theirs["mode"].as_str() {
            Some("nftables") => "nftables",
            Some("ipvs") => "ipvs",
            _ => "iptables",
        };
        let flags: Vec<_> = Cli::try_parse_from(
            ["proxy-agent"]
                .into_iter()
                .chain(case.flags.iter().map(|flag| &**flag)),
        )
        .unwrap()
        .run
        .given();
        let mut compared = 0;
        for spelling in Version::V1Alpha1.spellings() {
            let path = spelling.path;
            let of = |value: &Value| {
                value
                    .pointer(&format!("/{}", path.replace('.', "/")))
                    .cloned()
            };
            // With a file, kube-proxy ignores most flags. As a flag, that address does not choose the family of the
            // others there.
            let sets = |path| flags.iter().any(|given| given.paths.contains(&path));
            let by_flag = case.config.is_some() && sets(path)
                || sets("bindAddress") && path.ends_with("BindAddress");
            // Sections that its mode does not read, it leaves out or empties.
            let aside = ["iptables", "ipvs", "nftables"]
                .iter()
                .any(|name| *name != section && path.starts_with(&format!("{name}.")));
            if by_flag || aside || is_ours(path) {
                continue;
            }
            let (mine, its) = (of(&ours.effective), of(&theirs));
            // What is empty it may leave out.
            let is_empty = |value: &Value| {
                *value == Value::Null
                    || *value == ""
                    || *value == Value::Bool(false)
                    || value.as_array().is_some_and(Vec::is_empty)
                    || value.as_object().is_some_and(Map::is_empty)
            };
            let same = match (&mine, &its) {
                (Some(mine), None) => is_empty(mine),
                (Some(mine), Some(its)) if mine.is_number() => mine.as_f64() == its.as_f64(),
                (Some(mine), Some(its)) => mine == its || is_empty(mine) && is_empty(its),
                (None, _) => false,
            };
            assert!(
                same,
                "{}: {path}: {mine:?}, but kube-proxy has {its:?}",
                case.name
            );
            compared += 1;
        }
        assert!(compared > 30, "{}: {compared}", case.name);
    }
}

/// Fields that kube-proxy does not have, or whose value it chooses from what it finds.
fn is_ours(path: &str) -> bool {
    path.starts_with("culvert.")
        // What the file leaves open it fills in: its mode, and what follows from that.
        || path == "mode"
        || path == "nodePortAddresses"
        // It ignores this one, too, and forgets it.
        || path == "portRange"
        // Found out together with what no file says.
        || path == "hostnameOverride"
        || path == "clientConnection.kubeconfig"
        // Free-form, with defaults within.
        || path.starts_with("logging.")
}
