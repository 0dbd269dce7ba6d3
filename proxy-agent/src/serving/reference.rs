//! The reference page `docs/reference/metrics.md`, made from the definitions that the program
//! registers.

use std::fmt::Write as _;

use proxy_backend::BackendKind;
use proxy_model::{Figure, FigureKind};

use super::{
    clients,
    metrics::{
        definitions::{ALL, CLIENT_PROGRAMMING, Definition, OF_PROCESS},
        named,
    },
};

/// Every metric, those of the backends of `all` included, and those of `sources`, which are called so.
pub fn metrics(all: &[BackendKind], sources: &[(&str, Vec<Figure>)]) -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         <!-- Generated from the code by `cargo xtask docs`; do not edit. -->\n\n\
         Served on `--metrics-bind-address`, path `/metrics`, in Prometheus' text format. All \
         metrics exist from the start, with every label value that is known in advance, so that a \
         query finds zero instead of nothing.\n\n\
         Where the meaning is the same, the name is kube-proxy's, with its labels and buckets. One \
         sync of Culvert programs both families, so sync metrics with the label `ip_family` show \
         the same for both. Durations and times are in seconds.\n\n\
         ## Of the agent\n\n\
         | name | type | labels | meaning | same as kube-proxy |\n\
         | --- | --- | --- | --- | --- |\n",
    );
    for definition in ALL {
        line(&mut page, &row(definition));
    }
    line(
        &mut page,
        "\n## Of the process\n\n| name | type | labels | meaning | same as kube-proxy |\n\
         | --- | --- | --- | --- | --- |",
    );
    for (name, kind, help) in OF_PROCESS {
        let same = if *name == "process_threads" {
            "no"
        } else {
            "yes"
        };
        line(
            &mut page,
            &format!("| `{name}` | {} | | {help} | {same} |", kind.as_str()),
        );
    }
    for kind in all {
        let name = kind.name();
        table(
            &mut page,
            &format!("Of the backend `{name}`"),
            &format!("culvert_{name}_"),
            &kind.figures(),
        );
    }
    for (name, figures) in sources {
        table(&mut page, &format!("Of {name} as source"), "", figures);
    }
    table(
        &mut page,
        "Of clients of the node API",
        "",
        &clients::described(),
    );
    let Definition { name, help, .. } = CLIENT_PROGRAMMING;
    let labels = CLIENT_PROGRAMMING.labels.join("`, `");
    line(
        &mut page,
        &format!("| `{name}` | histogram | `{labels}` | {help} |"),
    );
    page
}

/// Figures, each name once. kube-proxy has those whose names begin with its own.
fn table(page: &mut String, title: &str, prefix: &str, figures: &[Figure]) {
    line(
        page,
        &format!("\n## {title}\n\n| name | type | labels | meaning |\n| --- | --- | --- | --- |"),
    );
    let mut before = "";
    for figure in figures.iter().filter(|figure| {
        let first = figure.name != before;
        before = figure.name;
        first
    }) {
        let labels: Vec<String> = figure
            .labels
            .iter()
            .map(|(label, _)| format!("`{label}`"))
            .collect();
        let kind = match figure.kind {
            FigureKind::Counter => "counter",
            FigureKind::Gauge => "gauge",
        };
        let help = figure.help.trim_end_matches('.');
        let (name, labels) = (named(prefix, figure.name), labels.join(", "));
        line(page, &format!("| `{name}` | {kind} | {labels} | {help} |"));
    }
}

fn row(definition: &Definition) -> String {
    let labels: Vec<String> = definition
        .labels
        .iter()
        .map(|label| format!("`{label}`"))
        .collect();
    format!(
        "| `{}` | {} | {} | {} | {} |",
        definition.name,
        definition.kind.as_str(),
        labels.join(", "),
        definition.help,
        if definition.of_kube_proxy {
            "yes"
        } else {
            "no"
        }
    )
}

fn line(page: &mut String, text: &str) {
    writeln!(page, "{text}").expect("writing to a string cannot fail");
}
