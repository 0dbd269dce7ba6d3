//! Nodes.

use proxy_model::Node;

use super::{Converted, non_empty};
use crate::cluster::object;

/// Converts a Node. One without a name is ignored.
pub fn node(object: &object::Node) -> Converted<Node> {
    let Some(name) = non_empty(object.metadata.name.as_deref()) else {
        return Converted::ignored();
    };
    let zone = non_empty(object.metadata.labels.zone.as_deref()).map(Into::into);
    Converted {
        value: Some(Node {
            name: name.into(),
            zone,
            pod_cidrs: Vec::new(),
            addresses: Vec::new(),
            eligible: true,
        }),
        diagnostics: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_zone_is_the_label_unless_empty() {
        for (labels, zone) in [
            (
                json!({"topology.kubernetes.io/zone": "zone-a"}),
                Some("zone-a"),
            ),
            (json!({"topology.kubernetes.io/zone": ""}), None),
            (json!({"topology.kubernetes.io/region": "r1"}), None),
            (json!(null), None),
        ] {
            let object =
                serde_json::from_value(json!({"metadata": {"name": "node-a", "labels": labels}}))
                    .unwrap();
            let expected = Node {
                name: "node-a".into(),
                zone: zone.map(Into::into),
                pod_cidrs: Vec::new(),
                addresses: Vec::new(),
                eligible: true,
            };
            assert_eq!(
                node(&object),
                Converted {
                    value: Some(expected),
                    diagnostics: vec![]
                }
            );
        }
    }

    #[test]
    fn a_node_without_a_name_is_ignored() {
        assert_eq!(node(&object::Node::default()), Converted::ignored());
    }
}
