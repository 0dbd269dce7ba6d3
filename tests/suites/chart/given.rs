//! What an operator gives: what comes of it, and what is refused because the agent, the API server, or
//! the chart itself would not stand it.

use std::{collections::BTreeSet, fs};

use proxy_tests::{
    chart::{self, Chart, Values},
    requires,
};
use serde_json::Value;

use crate::{HELM, SERVERS, SUITE, files, root};

/// Of two entries of one name the last would count.
#[test]
fn no_variable_of_the_chart_is_given_twice() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let agent = Chart::with(&[SERVERS]).unwrap().agent().unwrap();
    assert!(agent.env.len() > 1, "{:?}", agent.env);
    for (name, _) in agent.env {
        let again = [&format!("env[0].name={name}"), "env[0].value=x"];
        let refusal = chart::refusal(&Values::set(&[SERVERS, again[0], again[1]])).unwrap();
        let says = format!("env: {name} is set by the chart");
        assert!(
            refusal.as_ref().is_some_and(|it| it.contains(&says)),
            "{refusal:?}"
        );
    }
}

#[test]
fn no_flag_of_the_chart_is_given_twice() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let mut given = BTreeSet::new();
    for file in files("ci") {
        let file = Values::file(&file);
        let own = Values {
            set: vec!["extraArgs=null".to_owned()],
            ..file
        };
        let agent = Chart::render(&own).unwrap().agent().unwrap();
        if agent.args[0] == "run" {
            let flags = agent.args[1..].iter();
            given.extend(flags.map(|flag| flag.split('=').next().unwrap().to_owned()));
        }
    }
    assert!(given.len() > 9, "{given:?}");
    for flag in given {
        let again = format!("extraArgs={{{flag}=x}}");
        let refusal = chart::refusal(&Values::set(&[SERVERS, &again])).unwrap();
        let says = format!("extraArgs: {flag} is given by the chart");
        assert!(
            refusal.as_ref().is_some_and(|it| it.contains(&says)),
            "{flag}: {refusal:?}"
        );
    }
}

/// The page is made of the maps themselves.
#[test]
fn the_sizes_that_are_taken_are_those_of_maps_that_have_one() {
    let page = fs::read_to_string(root().join("docs/reference/maps.md")).unwrap();
    let rows = page.lines().filter(|line| line.contains("| yes |"));
    let sizable: BTreeSet<_> = rows.map(|row| row.split('`').nth(1).unwrap()).collect();
    let schema = chart::values::schema().unwrap();
    let taken = schema.pointer("/properties/mapSizes/propertyNames/enum");
    let taken = taken.unwrap().as_array().unwrap();
    let taken: BTreeSet<_> = taken.iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(taken, sizable);
}
