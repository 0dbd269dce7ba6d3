//! Texts of files to objects or problems.

use super::*;

fn keys(text: &str) -> Vec<String> {
    let objects = read_file(Path::new("a.yaml"), text.as_bytes()).unwrap();
    objects
        .iter()
        .map(|object| format!("{}: {}", object.place, object.key))
        .collect()
}

fn problems(text: &str) -> Vec<String> {
    read_file(Path::new("a.yaml"), text.as_bytes()).unwrap_err()
}

#[test]
fn documents_and_lists_of_all_kinds_are_read() {
    let text = "
apiVersion: v1
kind: Node
metadata: {name: node-a}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {namespace: shop, name: web}, spec: {}}
- apiVersion: v1
  kind: List
  items:
  - {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-1}, addressType: IPv4}
---
{apiVersion: v1, kind: ServiceList, items: [{metadata: {name: bare}}]}
---
{apiVersion: v1, kind: NodeList, items: [{metadata: {name: node-b}}]}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSliceList, items: [{metadata: {name: s}}]}
---
{apiVersion: networking.k8s.io/v1, kind: ServiceCIDRList, items: [{metadata: {name: a}}]}
---
{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: b}, spec: {cidrs: []}}
---
{apiVersion: v1, kind: List, items: null}
";
    assert_eq!(
        keys(text),
        [
            "document 1: Node node-a",
            "document 2, items[0]: Service shop/web",
            "document 2, items[1].items[0]: EndpointSlice default/web-1",
            "document 3, items[0]: Service default/bare",
            "document 4, items[0]: Node node-b",
            "document 5, items[0]: EndpointSlice default/s",
            "document 6, items[0]: ServiceCIDR a",
            "document 7: ServiceCIDR b",
        ]
    );
}

#[test]
fn other_kinds_are_ignored_whatever_they_hold() {
    let text = "
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: 7}
---
{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: web}, spec: {ports: x}}
";
    assert!(keys(text).is_empty());
}

#[test]
fn a_problem_names_document_object_and_field() {
    for (text, expected) in [
        (
            "{apiVersion: v1, kind: Node, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Service, \
             metadata: {namespace: shop, name: web}, spec: {ports: [{port: x}]}}",
            "document 2 (Service shop/web): spec.ports[0].port: invalid type: string \"x\", expected i32",
        ),
        (
            "{apiVersion: v1, kind: ServiceList, items: [{}, {metadata: {name: 7}}]}",
            "document 1 (Service): items[0].metadata.name: is missing",
        ),
        (
            "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Service, metadata: {name: web}, \
             spec: {ports: {}}}]}",
            "document 1 (Service web): items[0].spec.ports: invalid type: map, expected a sequence",
        ),
        (
            "{apiVersion: discovery.k8s.io/v1beta1, kind: EndpointSlice, metadata: {name: a}}",
            "document 1 (EndpointSlice a): apiVersion: discovery.k8s.io/v1beta1 is not known: \
             use discovery.k8s.io/v1",
        ),
        (
            "{kind: Service}",
            "document 1: apiVersion: is missing, or is not a string",
        ),
        (
            "{apiVersion: v1, kind: [Service]}",
            "document 1: kind: is missing, or is not a string",
        ),
        (
            "{apiVersion: v1, kind: List, items: 7}",
            "document 1: items: is not a list",
        ),
        (
            "{apiVersion: v1, kind: List, items: [x]}",
            "document 1: items[0]: is not a Kubernetes object",
        ),
        ("some text", "document 1: is not a Kubernetes object"),
        (
            "# nothing",
            "is empty: write `kind: List` without items if it is to define nothing",
        ),
    ] {
        assert_eq!(problems(text)[0], expected, "{text}");
    }
}

#[test]
fn all_problems_of_a_file_are_found_up_to_a_limit() {
    let three = "{kind: a}\n---\n{apiVersion: v1}\n---\na: [\n";
    assert_eq!(problems(three).len(), 3);
    let many = problems(&"--- {kind: a}\n".repeat(MAX_PROBLEMS + 5));
    assert_eq!(many.len(), MAX_PROBLEMS + 1);
    assert_eq!(many[MAX_PROBLEMS], "and 5 more problems");
}

#[test]
fn bytes_that_are_no_text_are_a_problem() {
    let problems = read_file(Path::new("a.yaml"), b"a: \xff\n").unwrap_err();
    assert!(problems[0].starts_with("is not text: "), "{problems:?}");
}
