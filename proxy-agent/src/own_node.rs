//! Whether this node is one of the cluster's: a name that no node has is no error of anything, and
//! still nothing is local then. Pure; does not know who is told.

use std::collections::BTreeSet;

use proxy_model::Model;
use serde::Serialize;

/// Names of nodes that are told; the rest is counted.
const TOLD: usize = 10;
/// The API server takes no longer names. To compare such as a manifest may hold would take long.
const LONGEST_NAME: usize = 253;

/// What it means that a source tells of no Node object with the own name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nodes {
    /// There is none.
    Told,
    /// Nobody may have written it down: then endpoints that run on such a node count as well.
    Given,
}

/// No node has the own name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Missing {
    /// Names that nodes have, the most similar ones first.
    pub nodes: Vec<String>,
    /// How many more there are.
    pub more_nodes: usize,
    /// What that means, and what to do, for people.
    pub text: String,
}

/// Whether no node has the own name, by the state as of the last update of `model`, which knows the
/// whole cluster.
pub fn is_missing(model: &Model, nodes: Nodes) -> bool {
    if model.state().node.object.is_some() {
        return false;
    }
    match nodes {
        Nodes::Told => true,
        Nodes::Given => {
            let own = &*model.state().node.name;
            let mut names = model.node_names().peekable();
            names.peek().is_some() && names.all(|name| name != own)
        }
    }
}

/// What there is to tell where [`is_missing`] is true.
pub fn missing(model: &Model, nodes: Nodes) -> Option<Missing> {
    is_missing(model, nodes).then(|| Missing::of(&model.state().node.name, model.node_names()))
}

impl Missing {
    fn of<'a>(own: &str, names: impl Iterator<Item = &'a str>) -> Self {
        let names: BTreeSet<&str> = names.filter(|name| name.len() <= LONGEST_NAME).collect();
        let runs = names.contains(own);
        // Ordered by name where they are as similar: the sort is stable.
        let mut names: Vec<_> = names.into_iter().filter(|name| *name != own).collect();
        names.sort_by(|a, b| {
            let likeness = |name: &str| strsim::jaro_winkler(own, name);
            likeness(b).total_cmp(&likeness(a))
        });
        let more_nodes = names.len().saturating_sub(TOLD);
        names.truncate(TOLD);
        Self {
            text: text(own, &names, more_nodes, runs),
            nodes: names.into_iter().map(str::to_owned).collect(),
            more_nodes,
        }
    }
}

fn text(own: &str, names: &[&str], more: usize, runs: bool) -> String {
    let unknown = "its zone, its addresses and the ranges of its pods are not known";
    let what = if runs {
        format!("there is no Node object {own}, although endpoints run there: {unknown}")
    } else {
        format!(
            "no node of the cluster is called {own}: no endpoint counts as local, so traffic \
             policy Local leads nowhere, and {unknown}"
        )
    };
    let there_are = match (names, more) {
        ([], _) => "no other node is known".to_owned(),
        (names, 0) => format!("there are: {}", names.join(", ")),
        (names, more) => format!("there are: {} and {more} more", names.join(", ")),
    };
    format!(
        "{what}; {there_are}; start the agent with the name that `kubectl get nodes` shows \
         (--node-name), or wait if kubelet has yet to register this node"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proxy_model::{
        ClusterEvent, Conditions, EndpointSlice, IpFamily, Node, ObjectName, SliceEndpoint,
    };

    use super::*;

    fn node(name: &str) -> ClusterEvent {
        ClusterEvent::NodeUpserted(Node {
            name: name.into(),
            zone: None,
            pod_cidrs: Vec::new(),
            addresses: Vec::new(),
            eligible: true,
        })
    }

    /// One endpoint, which runs on `node`.
    fn endpoint_on(node: &str) -> ClusterEvent {
        ClusterEvent::SliceUpserted(EndpointSlice {
            name: ObjectName::new("shop", format!("web-{node}")),
            service: ObjectName::new("shop", "web"),
            family: IpFamily::V4,
            ports: Vec::new(),
            endpoints: vec![SliceEndpoint {
                address: [10, 244, 0, 1].into(),
                conditions: Conditions {
                    ready: true,
                    serving: true,
                    terminating: false,
                },
                node: Some(Arc::from(node)),
                hints: None,
            }],
        })
    }

    fn after(events: Vec<ClusterEvent>) -> Model {
        Model::after("node-a", events)
    }

    #[test]
    fn a_name_is_missing_that_no_object_tells_of() {
        for (events, told, given) in [
            (vec![], true, false),
            (vec![node("node-a")], false, false),
            (vec![node("node-a"), node("node-b")], false, false),
            (vec![node("node-b")], true, true),
            (
                vec![node("node-a"), ClusterEvent::NodeDeleted("node-a".into())],
                true,
                false,
            ),
            (
                vec![node("node-b"), ClusterEvent::NodeDeleted("node-b".into())],
                true,
                false,
            ),
            // Whoever writes manifests may leave out the Nodes.
            (vec![endpoint_on("node-a")], true, false),
            (vec![endpoint_on("node-b")], true, true),
            (vec![node("node-b"), endpoint_on("node-a")], true, false),
        ] {
            let said = format!("{events:?}");
            let model = after(events);
            let missing = [Nodes::Told, Nodes::Given].map(|nodes| is_missing(&model, nodes));
            assert_eq!(missing, [told, given], "{said}");
        }
    }

    #[test]
    fn the_names_that_there_are_are_told_the_most_similar_first() {
        let model = after(vec![
            node("gateway"),
            endpoint_on("worker-1"),
            node("node-a.example.com"),
            node("node-b"),
        ]);
        let missing = missing(&model, Nodes::Told).unwrap();
        let expected = ["node-b", "node-a.example.com"];
        assert_eq!(missing.nodes[..2], expected);
        assert_eq!((missing.nodes.len(), missing.more_nodes), (4, 0));
        for part in [
            "called node-a:",
            "node-b, node-a.example.com",
            "--node-name",
        ] {
            assert!(missing.text.contains(part), "{}", missing.text);
        }
        let model = after(vec![endpoint_on("node-a"), endpoint_on("node-b")]);
        let missing = super::missing(&model, Nodes::Told).unwrap();
        assert_eq!(missing.nodes, ["node-b"]);
        assert!(
            missing.text.contains("endpoints run there"),
            "{}",
            missing.text
        );
    }

    #[test]
    fn of_many_nodes_a_few_are_told() {
        let long = node(&"n".repeat(10_000));
        let nodes = (0..1_000).map(|number| node(&format!("node-{number}")));
        let missing = missing(&after(nodes.chain([long]).collect()), Nodes::Told).unwrap();
        assert_eq!((missing.nodes.len(), missing.more_nodes), (TOLD, 990));
        assert!(missing.text.contains("and 990 more"), "{}", missing.text);
    }
}
