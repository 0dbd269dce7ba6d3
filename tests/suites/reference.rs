//! The reference pages are what the code generates. `CULVERT_BLESS=1` (`cargo xtask docs`) writes
//! them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod chart;
mod logs;

use std::{env, fs, path::Path};

use proxy_agent::{
    backend, backends, cluster,
    config::{kube_proxy::version::Version, reference},
    serving,
};

fn check(page: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs/reference")
        .join(page);
    if env::var_os("CULVERT_BLESS").is_some() {
        fs::create_dir_all(path.parent().expect("joined above")).unwrap();
        fs::write(&path, generated).unwrap();
        return;
    }
    let present = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        present, generated,
        "docs/reference/{page} is not what the code says: run `cargo xtask docs`"
    );
}

#[test]
fn the_command_line_page_is_fresh() {
    check("cli.md", &reference::cli());
}

#[test]
fn the_pages_of_backends_are_fresh() {
    for page in backends::ALL.iter().filter_map(|kind| kind.page()) {
        check(page.file, &page.text);
    }
}

#[test]
fn the_configuration_page_is_fresh() {
    check("config.md", &reference::config());
}

#[test]
fn the_pages_and_schemas_of_its_versions_are_fresh() {
    for version in Version::ALL {
        for (name, text) in [
            reference::config_version(version),
            reference::config_schema(version),
        ] {
            check(&name, &text);
        }
    }
}

#[test]
fn the_metrics_page_is_fresh() {
    check(
        "metrics.md",
        &serving::reference::metrics(backends::ALL, &cluster::figures()),
    );
}

#[test]
fn the_backends_page_is_fresh() {
    check("backends.md", &backend::reference::backends(backends::ALL));
}

#[test]
fn the_page_of_the_chart_is_fresh() {
    check("chart.md", &chart::page());
}
