//! The chart as it is rendered: by the real Helm, against the schemas of Kubernetes, the agent's own
//! command line and configuration, its requests and its metrics. Needs Helm, promtool and
//! kubernetes-validate, which `cargo xtask setup` sees to, and no root.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "chart/alerts.rs"]
mod alerts;
#[path = "chart/given.rs"]
mod given;
#[path = "chart/objects.rs"]
mod objects;
#[path = "chart/requests.rs"]
mod requests;
#[path = "chart/started.rs"]
mod started;

use std::{
    fs,
    path::{Path, PathBuf},
};

use proxy_tests::{
    chart::{self, Values},
    requires::{self, Need},
};

const SUITE: &str = "chart";

/// What rendering takes.
const HELM: &[Need] = &[Need::Helm];

/// The least that is required, as `--set` takes it.
const SERVERS: &str = "apiServers={https://10.0.0.1:6443}";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The files of values in a directory of the chart, by their names.
fn files(directory: &str) -> Vec<PathBuf> {
    let directory = chart::directory().join(directory);
    let listed = fs::read_dir(directory).unwrap();
    let paths = listed.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .collect();
    files.sort();
    assert!(files.len() > 5, "{files:?}");
    files
}

#[test]
fn the_linter_is_content_with_every_file_of_values() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    for file in files("ci") {
        let (content, said) = chart::lint(&Values::file(&file)).unwrap();
        let warned = said.contains("[WARNING]") || said.contains("[ERROR]");
        assert!(content && !warned, "{}: {said}", file.display());
    }
}

/// The chart does not render these values, and says so.
fn assert_refused(values: &Values, says: &str) {
    let refusal = chart::refusal(values).unwrap();
    let refusal = refusal.unwrap_or_else(|| panic!("{values:?} is rendered"));
    assert!(refusal.contains(says), "{values:?}: {refusal}");
}

/// The first line of each file is what the reason says.
#[test]
fn what_contradicts_itself_is_refused_with_the_reason() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    for file in files("ci/refused") {
        let text = fs::read_to_string(&file).unwrap();
        let words = text.lines().next().unwrap().strip_prefix("# ").unwrap();
        assert_refused(&Values::file(&file), words);
    }
}

#[test]
fn the_chart_has_the_version_of_what_it_installs() {
    let text = fs::read_to_string(chart::directory().join("Chart.yaml")).unwrap();
    let about: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(about["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(about["appVersion"], env!("CARGO_PKG_VERSION"));
}

/// A misspelt value is refused at every depth, and each has a sentence.
#[test]
fn every_value_is_described_and_no_other_is_taken() {
    fn look(name: &str, schema: &serde_json::Value) {
        let described = schema["description"]
            .as_str()
            .is_some_and(|text| text.ends_with('.'));
        assert!(described || name.is_empty(), "{name}");
        let Some(properties) = schema["properties"].as_object() else {
            return;
        };
        assert_eq!(schema["additionalProperties"], false, "{name}");
        for (below, schema) in properties {
            look(&format!("{name}.{below}"), schema);
        }
    }
    look("", &chart::values::schema().unwrap());
    assert!(chart::values::rows().unwrap().len() > 80);
}
