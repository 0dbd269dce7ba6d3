//! Alerts and dashboard: Prometheus takes the rules, each alert fires in a fault and ends after it, and
//! every metric that is named is one of the agent's.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use proxy_tests::{
    chart::{self, Chart},
    requires::{self, Need},
};
use serde_json::Value;
use xtask::chart_tools;

use crate::{HELM, SERVERS, SUITE, root};

const TESTED: &str = "tests/data/chart/alerts.yaml";

/// What Prometheus itself says of every target.
const OF_PROMETHEUS: &str = "up";

fn file(name: &str) -> String {
    fs::read_to_string(chart::directory().join("files").join(name)).unwrap()
}

fn rules() -> Value {
    serde_saphyr::from_str(&file("rules.yaml")).unwrap()
}

fn alerts() -> Vec<Value> {
    let rules = rules();
    let groups = rules["groups"].as_array().unwrap().iter();
    let all = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let all: Vec<Value> = all.cloned().collect();
    assert!(all.len() > 10);
    all
}

fn promtool(arguments: &[&str]) {
    let mut command = Command::new(chart_tools::promtool().unwrap());
    let output = command
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap();
    let said = [&*output.stdout, &*output.stderr]
        .map(String::from_utf8_lossy)
        .concat();
    assert!(output.status.success(), "{arguments:?}: {said}");
}

#[test]
fn prometheus_takes_the_rules_and_each_fault_raises_its_alert_and_ends_it() {
    if !requires::met(SUITE, &[Need::Promtool]) {
        return;
    }
    promtool(&["check", "rules", "charts/culvert/files/rules.yaml"]);
    promtool(&["test", "rules", TESTED]);
}

/// At which minutes a test expects which alert; none where all is quiet.
fn expected(test: &Value) -> Vec<Option<String>> {
    let evaluations = test["promql_expr_test"].as_array().unwrap().iter();
    let samples = evaluations.map(|one| one["exp_samples"].as_array().unwrap());
    let name = |labels: &str| labels.split('"').nth(1).unwrap().to_owned();
    samples
        .map(|samples| Some(name(samples.first()?["labels"].as_str().unwrap())))
        .collect()
}

#[test]
fn every_alert_has_a_fault_that_raises_it() {
    let text = fs::read_to_string(root().join(TESTED)).unwrap();
    let tests: Value = serde_saphyr::from_str(&text).unwrap();
    let mut raised = BTreeSet::new();
    for test in tests["tests"].as_array().unwrap() {
        match &expected(test)[..] {
            [None, Some(alert), None] => raised.insert(alert.clone()),
            other => panic!("quiet, the alert, quiet: {other:?}"),
        };
    }
    let alerts = alerts();
    let alerts = alerts
        .iter()
        .map(|one| one["alert"].as_str().unwrap().to_owned());
    assert_eq!(raised, alerts.collect());
}

#[test]
fn every_alert_says_what_is_wrong_and_what_to_do() {
    for alert in alerts() {
        for field in ["summary", "description"] {
            let said = alert["annotations"][field].as_str().unwrap_or_default();
            assert!(said.len() > 20, "{alert}");
        }
        let severity = alert["labels"]["severity"].as_str().unwrap();
        assert!(
            ["info", "warning", "critical"].contains(&severity),
            "{alert}"
        );
    }
}

/// Names of metrics in the page that the code makes, with their types.
fn metrics() -> BTreeMap<String, String> {
    let page = fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let all: BTreeMap<_, _> = cells
        .map(|cells| (cells[1].trim_matches('`').to_owned(), cells[2].to_owned()))
        .collect();
    assert!(all.len() > 50);
    all
}

/// Words of an expression that can only be metrics: those before a selector.
fn named(expression: &str) -> Vec<String> {
    let word = |text: &str| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let start = text.rfind(|c| !is_part(c)).map_or(0, |at| at + 1);
        text[start..].to_owned()
    };
    let before: Vec<_> = expression.split('{').collect();
    let before = before[..before.len() - 1].iter();
    before.map(|text| word(text)).collect()
}

fn assert_known(expression: &str, metrics: &BTreeMap<String, String>) {
    let named = named(expression);
    assert!(!named.is_empty(), "{expression}");
    for name in named {
        let of_histogram = name.strip_suffix("_bucket").unwrap_or(&name);
        let known = match metrics.get(of_histogram).map(String::as_str) {
            Some("histogram") => name != of_histogram,
            Some("counter") => ["rate(", "increase("]
                .iter()
                .any(|of| expression.contains(of)),
            Some(_) => name == of_histogram,
            None => name == OF_PROMETHEUS,
        };
        assert!(known, "{name}, in {expression}");
    }
}

#[test]
fn every_metric_of_the_alerts_is_one_of_the_agents() {
    let metrics = metrics();
    for alert in alerts() {
        assert_known(alert["expr"].as_str().unwrap(), &metrics);
    }
    let text = fs::read_to_string(root().join(TESTED)).unwrap();
    let tests: Value = serde_saphyr::from_str(&text).unwrap();
    for test in tests["tests"].as_array().unwrap() {
        for series in test["input_series"].as_array().unwrap() {
            let named = named(series["series"].as_str().unwrap());
            let known = metrics.contains_key(&named[0]) || named[0] == OF_PROMETHEUS;
            assert!(known, "{series}");
        }
    }
}

#[test]
fn every_metric_of_the_dashboard_is_one_of_the_agents() {
    let metrics = metrics();
    let dashboard: Value = serde_json::from_str(&file("dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(
            ids.insert(panel["id"].as_u64().unwrap()),
            "{}",
            panel["title"]
        );
        // What it is good for is said where it is seen.
        assert!(
            panel["description"].as_str().unwrap().len() > 20,
            "{}",
            panel["title"]
        );
        for target in panel["targets"].as_array().unwrap() {
            assert_known(target["expr"].as_str().unwrap(), &metrics);
        }
    }
    // Colours by name change with the theme; a number of one would be read in one of them only.
    assert!(!file("dashboard.json").contains("\"#"));
    assert!(panels.len() <= 12);
}

#[test]
fn the_notes_name_metrics_that_there_are() {
    let metrics = metrics();
    let notes = fs::read_to_string(chart::directory().join("templates/NOTES.txt")).unwrap();
    let named = notes
        .split_whitespace()
        .filter(|word| word.starts_with("culvert_"));
    let named: Vec<_> = named.collect();
    assert!(named.len() > 3);
    for name in named {
        assert!(metrics.contains_key(name), "{name}");
    }
}

#[test]
fn the_chart_installs_the_rules_and_the_dashboard_as_they_are_tested() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let set = [
        SERVERS,
        "prometheusRule.enabled=true",
        "dashboard.enabled=true",
    ];
    let chart = Chart::with(&set).unwrap();
    assert_eq!(chart.of_kind("PrometheusRule")[0]["spec"], rules());
    let dashboard = chart.files_of("culvert-dashboard").unwrap();
    let [(name, text)] = &dashboard[..] else {
        panic!("{dashboard:?}");
    };
    assert_eq!(name, "culvert.json");
    let rendered: Value = serde_json::from_str(text).unwrap();
    assert_eq!(
        rendered,
        serde_json::from_str::<Value>(&file("dashboard.json")).unwrap()
    );
}

/// The agents of another job, and alerts that somebody does not want.
#[test]
fn rules_follow_the_values() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let set = [
        SERVERS,
        "prometheusRule.enabled=true",
        "prometheusRule.job=proxies",
        "prometheusRule.disabled={CulvertLogLinesLost}",
        "prometheusRule.ruleLabels.severity=page",
    ];
    let chart = Chart::with(&set).unwrap();
    let object = chart.of_kind("PrometheusRule")[0].clone();
    let left = object["spec"]["groups"][0]["rules"].as_array().unwrap();
    assert_eq!(left.len() + 1, alerts().len());
    for alert in left {
        assert_ne!(alert["alert"], "CulvertLogLinesLost");
        assert_eq!(alert["labels"]["severity"], "page");
        let expression = alert["expr"].as_str().unwrap();
        assert!(expression.contains("job=\"proxies\""), "{expression}");
        assert!(!expression.contains("job=\"culvert\""), "{expression}");
    }
}
