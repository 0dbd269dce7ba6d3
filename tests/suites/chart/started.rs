//! What the containers start: the real program takes every command line and every file that the chart
//! makes.

use std::path::Path;

use proxy_tests::{
    agent,
    chart::{Chart, Part, Values},
    requires,
};

use crate::{HELM, SUITE, files, root};

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
    let warned: Vec<_> = done
        .stderr
        .lines()
        .filter(|line| line.contains("WARN") || line.contains("\"warn\""))
        .collect();
    assert_eq!(warned, [""; 0], "{}", values.display());
}
