//! What `run` makes of flags and files together.

use clap::Parser;

use super::{cli::Cli, *};

fn run_args(args: &[&str]) -> Result<Run, ConfigError> {
    let cli = Cli::try_parse_from(["proxy-agent"].iter().chain(args)).unwrap();
    run_where(&cli.run, false)
}

#[test]
fn every_mistake_is_reported_at_once() {
    let error = run_args(&[
        "--node-name=",
        "--pin-dir=pins",
        "--map-size=FRONTENDS",
        "--map-size=COUNTERS=5",
        "--map-size=SLOTS=0",
    ])
    .unwrap_err();
    let text = error.to_string();
    let named = [
        "no source",
        "--node-name",
        "--pin-dir",
        "FRONTENDS",
        "COUNTERS=5",
        "SLOTS=0",
    ];
    assert_eq!(error.mistakes.len(), named.len(), "{text}");
    for (mistake, named) in error.mistakes.iter().zip(named) {
        assert!(mistake.contains(named), "{mistake}");
    }
}

#[test]
fn the_node_name_is_trimmed_and_lower_case_under_either_flag() {
    for flag in ["--node-name", "--hostname-override"] {
        let run = run_args(&["--manifests=x", flag, " Node-A "]).unwrap();
        assert_eq!(&*run.node, "node-a");
    }
}

#[test]
fn map_sizes_are_taken_over() {
    let run = run_args(&["--manifests=x", "--node-name=n", "--map-size=SLOTS=7"]).unwrap();
    assert_eq!(
        run.ebpf.map_sizes,
        BTreeMap::from([("SLOTS".to_owned(), 7)])
    );
}
