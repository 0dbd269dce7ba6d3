//! The rights that the chart gives the agent's account are those that the agent makes use of.

use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
};

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule};
use proxy_tests::{
    agent,
    api_server::{ApiServer, Fault, Kind, On, Verb},
    chart::Chart,
    process::Process,
    requires,
};

use crate::{HELM, SERVERS, SUITE, root};

/// Group, resource, verb.
type Right = (String, String, String);

/// Written when there is something to tell, and no part of what this server knows.
const EVENTS: &str = "events";

fn rights(rules: &[PolicyRule]) -> BTreeSet<Right> {
    let mut all = BTreeSet::new();
    for rule in rules {
        assert_eq!(rule.resource_names, None);
        assert_eq!(rule.non_resource_urls, None);
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    assert!(
                        ![group, resource, verb].iter().any(|word| *word == "*"),
                        "{rule:?}"
                    );
                    all.insert((group.clone(), resource.clone(), verb.clone()));
                }
            }
        }
    }
    all
}

fn rendered() -> ClusterRole {
    Chart::with(&[SERVERS]).unwrap().only().unwrap()
}

/// What a request takes, as the API server's authorizer sees it.
fn right(verb: Verb, kind: Kind) -> Right {
    let group = kind
        .api_version()
        .split_once('/')
        .map_or("", |(group, _)| group);
    let verb = match verb {
        Verb::Get => "get",
        Verb::List => "list",
        Verb::Watch | Verb::StreamingList => "watch",
    };
    (group.to_owned(), kind.plural().to_owned(), verb.to_owned())
}

/// All rights that the agent used on this server until it watched everything.
fn used(server: &ApiServer) -> BTreeSet<Right> {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(agent::path().unwrap());
    // A brain reads what an agent reads, and needs no right on this host.
    command
        .args(["brain", "--elsewhere", "--node-name=node-a", "--master"])
        .arg(server.url())
        .args(["--healthz-bind-address=", "--metrics-bind-address="])
        .arg("--listen")
        .arg(format!("unix://{}/api.sock", directory.path().display()))
        .arg("--admin-socket")
        .arg(directory.path().join("admin.sock"))
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let _brain = Process::spawn("proxy-agent brain", command).unwrap();
    server
        .wait("watches of all kinds", |sight| {
            let all = Kind::ALL.into_iter().all(|kind| sight.open(kind) > 0);
            let asked = sight.requests.iter().filter_map(|request| request.asks);
            all.then(|| asked.map(|(verb, kind)| right(verb, kind)).collect())
        })
        .unwrap()
}

#[test]
fn the_account_has_the_rights_that_are_used_and_no_others() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let new = ApiServer::new().unwrap();
    let mut seen = used(&new);
    // One that has no streaming lists is asked for ordinary ones.
    let old = ApiServer::new().unwrap();
    old.inject(Fault::Refused(422, None), On::streaming_list());
    seen.extend(used(&old));
    let (events, given): (BTreeSet<_>, BTreeSet<_>) = rights(&rendered().rules.unwrap())
        .into_iter()
        .partition(|(_, resource, _)| resource == EVENTS);
    assert_eq!(given, seen);
    let verbs: Vec<_> = events
        .iter()
        .map(|(group, _, verb)| (&**group, &**verb))
        .collect();
    assert_eq!(
        verbs,
        [("events.k8s.io", "create"), ("events.k8s.io", "patch")]
    );
}

#[test]
fn the_binding_gives_them_to_the_account_of_the_pods() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let chart = Chart::with(&[SERVERS, "serviceAccount.name=someone"]).unwrap();
    let binding: ClusterRoleBinding = chart.only().unwrap();
    assert_eq!(binding.role_ref.name, rendered().metadata.name.unwrap());
    let subjects = binding.subjects.unwrap();
    assert_eq!(subjects.len(), 1);
    let pod = chart.pod().unwrap();
    assert_eq!(Some(&subjects[0].name), pod.service_account_name.as_ref());
}

/// The page on the API server shows the same role.
#[test]
fn the_page_about_the_api_server_tells_the_same_rights() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let page = std::fs::read_to_string(root().join("docs/api-server.md")).unwrap();
    let told = page.split("```yaml\n").skip(1);
    let mut told = told.map(|rest| rest.split("```").next().unwrap());
    let told = told.find(|text| text.contains("ClusterRole")).unwrap();
    let told: ClusterRole = serde_json::from_value(serde_saphyr::from_str(told).unwrap()).unwrap();
    let given = rights(&rendered().rules.unwrap());
    assert_eq!(rights(&told.rules.unwrap()), given);
}
