//! What an operator gives: what comes of it, and what is refused because the agent, the API server, or
//! the chart itself would not stand it.

use std::{collections::BTreeSet, fs};

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use proxy_tests::{
    chart::{self, Chart, Values},
    requires,
};
use serde_json::Value;

use crate::{HELM, SERVERS, SUITE, assert_refused, files, root};

/// The maps and lists that are the operator's as a whole: null empties them, as everywhere in Helm.
const EMPTIED: [&str; 5] = [
    "resources",
    "nodeSelector",
    "tolerations",
    "updateStrategy.rollingUpdate",
    "dashboard.labels",
];

fn defaults() -> Value {
    let text = fs::read_to_string(chart::directory().join("values.yaml")).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

/// Every value of `values.yaml` that the schema names, sections included.
fn named() -> Vec<(String, Value)> {
    fn add(all: &mut Vec<(String, Value)>, above: &str, schema: &Value, values: &Value) {
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            let Some(value) = values.get(name) else {
                continue;
            };
            let path = format!("{above}{name}");
            add(all, &format!("{path}."), schema, value);
            all.push((path, value.clone()));
        }
    }
    let mut all = Vec::new();
    add(&mut all, "", &chart::values::schema().unwrap(), &defaults());
    assert!(all.len() > 80, "{all:?}");
    all
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
    }
}

/// Helm takes null for a value that is not there. Where nothing is the default, it means the default;
/// elsewhere the chart says which value is missing.
#[test]
fn null_means_the_default_or_is_refused_by_name() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let as_it_is = Values::set(&[SERVERS]);
    let as_it_is = chart::render_text(&as_it_is).unwrap();
    for (name, default) in named() {
        let null = Values::set(&[SERVERS, &format!("{name}=null")]);
        let of_operator = |one: &&str| name == **one || name.starts_with(&format!("{one}."));
        if name == "apiServers" {
            let alone = Values::set(&["apiServers=null"]);
            assert_refused(&alone, "apiServers is required");
        } else if EMPTIED.iter().any(of_operator) {
            assert_eq!(chart::refusal(&null).unwrap(), None, "{name}");
        } else if is_empty(&default) {
            let rendered = chart::render_text(&null).unwrap();
            // Nothing, and zero, are the same to Kubernetes.
            let rendered = rendered.replace("minReadySeconds: \n", "minReadySeconds: 0\n");
            assert_eq!(rendered, as_it_is, "{name}");
        } else {
            let last = name.rsplit('.').next().unwrap();
            assert_refused(&null, &format!("missing property '{last}'"));
        }
    }
}

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
        let values = Values::set(&[SERVERS, again[0], again[1]]);
        assert_refused(&values, &format!("env: {name} is set by the chart"));
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
        let values = Values::set(&[SERVERS, &again]);
        assert_refused(&values, &format!("extraArgs: {flag} is given by the chart"));
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

/// Whatever YAML makes of such words without quotes.
#[test]
fn words_arrive_as_they_are_given() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let file = chart::directory().join("ci/quoted-values.yaml");
    let chart = Chart::render(&Values::file(&file)).unwrap();
    let agent = chart.agent().unwrap();
    let level =
        "--log-level=INFO, proxy_agent::pipeline=debug,hyper,proxy_api[span{a=\"#\"}]=trace";
    assert!(
        agent.args.iter().any(|arg| arg == level),
        "{:?}",
        agent.args
    );
    assert_eq!(
        agent.image,
        "[fd00::5]:5000/mirror/net.example/culvert__x:1.0"
    );
    let set: DaemonSet = chart.only().unwrap();
    let labels = set.metadata.labels.unwrap();
    assert_eq!(labels["app.kubernetes.io/name"], "123");
    let pod = chart.pod().unwrap();
    assert_eq!(pod.service_account_name.as_deref(), Some("1e3"));
    assert_eq!(pod.priority_class_name.as_deref(), Some("null"));
}

#[test]
fn every_container_has_the_label_of_selinux() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    for mode in ["auto", "nftables", "cleanup"] {
        let mode = format!("mode={mode}");
        let label = ["seLinuxOptions.type=spc_t", "seLinuxOptions.level=s0"];
        let chart = Chart::with(&[SERVERS, &mode, label[0], label[1]]).unwrap();
        let mut parts = chart.init_parts().unwrap();
        parts.push(chart.agent().unwrap());
        for part in parts {
            let given = part.security.se_linux_options.unwrap();
            let given = (given.type_.as_deref(), given.level.as_deref(), given.user);
            assert_eq!(given, (Some("spc_t"), Some("s0"), None), "{mode}");
        }
    }
}

#[test]
fn further_init_containers_come_after_those_of_the_chart() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let names = |set: &str| {
        let further = [
            "extraInitContainers[0].name=wait",
            "extraInitContainers[0].image=x",
        ];
        let chart = Chart::with(&[SERVERS, further[0], further[1], set]).unwrap();
        let all = chart.pod().unwrap().init_containers.unwrap();
        all.into_iter().map(|one| one.name).collect::<Vec<_>>()
    };
    assert_eq!(names("mode=auto"), ["mount-bpffs", "wait"]);
    assert_eq!(names("mode=nftables"), ["wait"]);
    // What prepares a node for the agent has no part in its end.
    assert_eq!(names("mode=cleanup"), ["cleanup"]);
}

/// Releases of one name in two namespaces, for two pools of nodes, do not share their rights.
#[test]
fn objects_without_a_namespace_are_named_after_that_of_the_release() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let chart = Chart::with(&[SERVERS]).unwrap();
    let set: DaemonSet = chart.only().unwrap();
    let name = [set.metadata.namespace, set.metadata.name].map(Option::unwrap);
    let name = Some(name.join(":"));
    let role: ClusterRole = chart.only().unwrap();
    let binding: ClusterRoleBinding = chart.only().unwrap();
    assert_eq!(role.metadata.name, name);
    assert_eq!(binding.metadata.name, name);
    assert_eq!(Some(binding.role_ref.name), name);
}

/// The longest name of a Service has 63 characters.
#[test]
fn long_names_are_not_too_long() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let name = format!("fullnameOverride={}", "a".repeat(63));
    let monitored = [
        "metricsBindAddress=0.0.0.0:10249",
        "serviceMonitor.enabled=true",
    ];
    let chart = Chart::with(&[SERVERS, &name, monitored[0], monitored[1]]).unwrap();
    for kind in ["Service", "DaemonSet", "ServiceAccount"] {
        let name = chart.of_kind(kind)[0]["metadata"]["name"].as_str().unwrap();
        assert_eq!(name.len(), 63, "{kind}: {name}");
    }
}

/// `helm show values` shows no more than this file.
#[test]
fn every_value_has_a_comment_where_helm_shows_it() {
    let text = fs::read_to_string(chart::directory().join("values.yaml")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for (name, _) in named() {
        let mut from = 0;
        for (depth, part) in name.split('.').enumerate() {
            let start = format!("{}{part}:", "  ".repeat(depth));
            let below = lines[from..].iter();
            from += below
                .clone()
                .position(|line| line.starts_with(&start))
                .unwrap()
                + 1;
        }
        let above = lines[..from - 1].last().unwrap_or(&"");
        assert!(above.trim_start().starts_with("# "), "{name}");
    }
}
