//! The reference page `docs/reference/metrics.md`, made from the definitions that the program
//! registers.

use std::fmt::Write as _;

use super::metrics::definitions::{ALL, Definition, OF_PROCESS};

/// Every metric that the agent has whatever its backend and source.
pub fn metrics() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         <!-- Generated from the code by `cargo xtask docs`; do not edit. -->\n\n\
         On `--metrics-bind-address`, path `/metrics`, in Prometheus' text format. All of them are \
         there from the start, with every label value that is known before, so that a query finds \
         a zero and not nothing.\n\n\
         Where the meaning is the same, the name is kube-proxy's, with its labels and buckets. One \
         sync of Culvert programs both families: what carries `ip_family` then shows the same for \
         both. Durations and times are in seconds.\n\n\
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
    line(
        &mut page,
        "\n## Of the backend and of the source\n\n\
         Figures of a backend begin with `culvert_` and its name, such as `culvert_ebpf_`; how the \
         API server is read is in `culvert_api_*`. Their `# HELP` lines say what they are.",
    );
    page
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
