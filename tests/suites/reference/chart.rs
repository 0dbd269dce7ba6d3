//! The page of the chart's values, made of their schema and of `values.yaml`.

use std::fmt::Write as _;

use proxy_tests::chart::values;

const HEAD: &str = "# Values of the chart

<!-- Generated from charts/culvert/values.schema.json and values.yaml by `cargo xtask docs`; do not edit. -->

`charts/culvert` takes these. A value that is not here is refused, and so are values that contradict each other: when the chart is rendered, with the reason. Why a default is what it is stands in [values.yaml](../../charts/culvert/values.yaml); how to install is in the chart's [README](../../charts/culvert/README.md).

| value | type | default | meaning |
| --- | --- | --- | --- |
";

/// The page.
pub(super) fn page() -> String {
    let mut page = HEAD.to_owned();
    for row in values::rows().unwrap() {
        let default = if row.default.is_empty() {
            String::new()
        } else {
            format!("`{}`", row.default)
        };
        // A bar would end a cell.
        let meaning = row.meaning.replace('|', "\\|");
        writeln!(
            page,
            "| `{}` | {} | {default} | {meaning} |",
            row.name, row.kind
        )
        .unwrap();
    }
    page
}
