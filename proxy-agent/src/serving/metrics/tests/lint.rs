//! What `promtool check metrics` says of a scrape, and what makes one grow: words in labels.

use super::*;
use crate::{backend::toy::TOY, backends, cluster, serving::Clients};

/// Names that are kube-proxy's, and not as they should be.
const OF_KUBE_PROXY: [&str; 2] = [
    "kubeproxy_sync_proxy_rules_iptables_total",
    "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
];

/// Ours, older than this test: a name is not changed for its order of words.
const OF_OLD: [&str; 1] = ["culvert_api_bytes_read_total"];

/// Units that are not base units, as words of a name.
const OTHER_UNITS: [&str; 16] = [
    "milliseconds",
    "microseconds",
    "nanoseconds",
    "minutes",
    "hours",
    "days",
    "ms",
    "us",
    "ns",
    "kilobytes",
    "megabytes",
    "kb",
    "mb",
    "mib",
    "bits",
    "percent",
];

/// What is wrong with a metric, by the rules of promtool and of
/// <https://prometheus.io/docs/practices/naming/>.
fn problems(name: &str, read: &Read) -> Vec<String> {
    let mut problems = Vec::new();
    let mut unless = |holds: bool, problem: &str| {
        if !holds {
            problems.push(format!("{name}: {problem}"));
        }
    };
    unless(!read.help.is_empty(), "no HELP");
    unless(!read.kind.is_empty(), "no TYPE");
    let is_counter = read.kind == "counter";
    if !OF_KUBE_PROXY.contains(&name) {
        unless(
            is_counter == name.ends_with("_total"),
            "a counter ends with _total, nothing else does",
        );
    }
    for suffix in ["_count", "_sum", "_bucket"] {
        unless(
            !name.ends_with(suffix),
            "ends as a part of a histogram does",
        );
    }
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    unless(name.bytes().all(is_plain), "lower case with underscores");
    let words: Vec<_> = name.split('_').collect();
    for word in &words {
        unless(!OTHER_UNITS.contains(word), "not in base units");
        let kinds = ["counter", "gauge", "histogram", "summary"];
        unless(!kinds.contains(word), "says its type");
    }
    // A unit stands last; behind it, what it is counted as.
    for unit in ["seconds", "bytes"] {
        let mut rest = words.iter().skip_while(|word| **word != unit).skip(1);
        unless(
            rest.all(|word| *word == "total") || OF_OLD.contains(&name),
            "something stands behind the unit",
        );
    }
    for sample in read.samples.keys() {
        let labels = sample.split_once('{').map_or("", |(_, labels)| labels);
        for label in labels.trim_end_matches('}').split("\",") {
            let value = label.split_once("=\"").map_or("", |(_, value)| value);
            let value = value.trim_end_matches('"');
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
            unless(
                value.bytes().all(allowed) && value.len() <= 63,
                &format!("{value:?} is no name"),
            );
        }
    }
    problems
}

/// A scrape of an agent that has everything there is.
fn everything() -> BTreeMap<String, Read> {
    let clients = Clients::new();
    let elsewhere: Vec<Collector> = vec![
        Box::new(|| {
            cluster::figures()
                .into_iter()
                .flat_map(|(_, all)| all)
                .collect()
        }),
        clients.collector(),
    ];
    let metrics = Metrics::new(&chosen(), &BACKENDS, &Conntrack::new(), elsewhere);
    metrics.also(clients.latency());
    for kind in backends::ALL.iter().chain(&[TOY]) {
        metrics.figures(kind.name(), kind.figures());
    }
    let mode = choice::Mode::Only(TOY);
    metrics.chosen(&choice::choose(mode, &[], |_| None).unwrap().choice());
    scraped(&metrics)
}

#[test]
fn every_metric_is_as_a_linter_wants_it() {
    let all = everything();
    assert!(all.len() > 60, "{}", all.len());
    let problems: Vec<_> = all
        .iter()
        .flat_map(|(name, read)| problems(name, read))
        .collect();
    assert_eq!(problems, [""; 0]);
    // What clients bring is described where the page is made.
    for figure in crate::serving::clients::described() {
        let kind = match figure.kind {
            FigureKind::Counter => "counter",
            FigureKind::Gauge => "gauge",
        };
        let read = Read {
            kind: kind.to_owned(),
            help: figure.help.to_owned(),
            samples: BTreeMap::new(),
        };
        assert_eq!(self::problems(figure.name, &read), [""; 0]);
    }
}

#[test]
fn the_linter_sees_what_is_wrong() {
    let read = |kind: &str, sample: &str| Read {
        kind: kind.to_owned(),
        help: "What it is".to_owned(),
        samples: [(sample.to_owned(), 1.0)].into(),
    };
    for (name, kind, sample, problem) in [
        ("culvert_events", "counter", "", "_total"),
        ("culvert_open_total", "gauge", "", "_total"),
        ("culvert_wait_ms", "gauge", "", "base units"),
        ("culvert_seconds_waited", "gauge", "", "behind the unit"),
        ("culvert_open_gauge", "gauge", "", "its type"),
        ("culvert_open", "", "", "no TYPE"),
        ("culvertOpen", "gauge", "", "lower case"),
        ("culvert_open_count", "gauge", "", "histogram"),
        (
            "culvert_open",
            "gauge",
            "culvert_open{a=\"b\",reason=\"no mode is set, so\"}",
            "no name",
        ),
    ] {
        let problems = problems(name, &read(kind, sample));
        assert!(
            problems.len() == 1 && problems[0].contains(problem),
            "{name}: {problems:?}"
        );
    }
    let good = read("counter", "culvert_events_total{a=\"b.c\",d=\"e-f\"}");
    assert_eq!(problems("culvert_events_total", &good), [""; 0]);
}
