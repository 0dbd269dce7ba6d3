//! Cluster objects as an API server gives them: with all that a proxy does not need and must read
//! over, so that time and bytes are those of a real cluster.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::super::clusters::{self, ENDPOINTS};

/// What clients of the Service that is changed dial.
pub(in super::super) const FRONTEND: ([u8; 4], u16) = ([10, 97, 0, 1], 80);
pub(in super::super) const CHANGED: &str = "changed";
/// Where all Services are.
pub(in super::super) const NAMESPACE: &str = "bench";
/// What its port is called.
pub(in super::super) const PORT_NAME: &str = "main";

/// The objects of one Service with [`ENDPOINTS`] endpoints.
pub(super) fn service(number: u32) -> [Value; 2] {
    [
        dressed(clusters::service(number)),
        dressed(clusters::slice(number, ENDPOINTS)),
    ]
}

/// The Service that is changed.
pub(super) fn changed_service() -> Value {
    let (address, port) = FRONTEND;
    let address = std::net::Ipv4Addr::from(address).to_string();
    dressed(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": CHANGED, "namespace": NAMESPACE },
        "spec": {
            "clusterIP": address,
            "clusterIPs": [address],
            "ipFamilies": ["IPv4"],
            "ports": [{ "name": PORT_NAME, "port": port, "protocol": "TCP", "targetPort": port }],
            "type": "ClusterIP"
        }
    }))
}

/// Its slice, with one endpoint; changed at `moment`, in RFC 3339.
pub(in super::super) fn changed_slice(endpoint: SocketAddr, moment: &str) -> Value {
    let mut slice = dressed(json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{CHANGED}-a"),
            "namespace": NAMESPACE,
            "labels": { "kubernetes.io/service-name": CHANGED }
        },
        "addressType": "IPv4",
        "ports": [{ "name": PORT_NAME, "port": endpoint.port(), "protocol": "TCP" }],
        "endpoints": [{
            "addresses": [endpoint.ip().to_string()],
            "conditions": { "ready": true, "serving": true, "terminating": false },
            "nodeName": "node-a"
        }]
    }));
    slice["metadata"]["annotations"]["endpoints.kubernetes.io/last-change-trigger-time"] =
        moment.into();
    slice
}

/// What clients of the Service that never changes dial, one port for each server: TCP, UDP, and TCP to
/// who only reads.
pub(in super::super) const STEADY: [([u8; 4], u16, &str); 3] = [
    ([10, 97, 0, 2], 80, "TCP"),
    ([10, 97, 0, 2], 53, "UDP"),
    ([10, 97, 0, 2], 81, "TCP"),
];

/// The Service that never changes, with the servers of its ports in this order.
pub(in super::super) fn steady(servers: [SocketAddr; 3]) -> [Value; 2] {
    let address = std::net::Ipv4Addr::from(STEADY[0].0).to_string();
    let ports = |number: fn(usize, &SocketAddr) -> u16| -> Vec<Value> {
        let all = STEADY.iter().zip(&servers).enumerate();
        all.map(|(index, ((_, _, protocol), server))| {
            let port = number(index, server);
            json!({ "name": format!("p{index}"), "protocol": protocol, "port": port })
        })
        .collect()
    };
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": "steady", "namespace": NAMESPACE },
        "spec": {
            "clusterIP": address,
            "clusterIPs": [address],
            "ipFamilies": ["IPv4"],
            "ports": ports(|index, _| STEADY[index].1),
            "type": "ClusterIP"
        }
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "steady-a",
            "namespace": NAMESPACE,
            "labels": { "kubernetes.io/service-name": "steady" }
        },
        "addressType": "IPv4",
        "ports": ports(|_, server| server.port()),
        "endpoints": [{
            "addresses": [servers[0].ip().to_string()],
            "conditions": { "ready": true, "serving": true, "terminating": false },
            "nodeName": "node-a"
        }]
    });
    [dressed(service), dressed(slice)]
}

/// Adds what controllers and the API server add.
fn dressed(mut object: Value) -> Value {
    let slice = object["kind"] == "EndpointSlice";
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let uid = format!("368f234f-49a9-46aa-b506-{:0>12}", name.len());
    let owner = json!([{
        "apiVersion": "v1", "kind": "Service", "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true
    }]);
    let metadata = &mut object["metadata"];
    metadata["uid"] = uid.clone().into();
    metadata["generation"] = 7.into();
    metadata["creationTimestamp"] = "2026-01-05T09:30:00Z".into();
    metadata["managedFields"] = json!([{
        "manager": "kube-controller-manager",
        "operation": "Update",
        "apiVersion": "discovery.k8s.io/v1",
        "time": "2026-01-05T09:30:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:addressType": {}, "f:endpoints": {}, "f:ports": {},
            "f:metadata": {
                "f:annotations": {
                    ".": {}, "f:endpoints.kubernetes.io/last-change-trigger-time": {}
                },
                "f:generateName": {},
                "f:labels": {
                    ".": {},
                    "f:app.kubernetes.io/managed-by": {},
                    "f:endpointslice.kubernetes.io/managed-by": {},
                    "f:kubernetes.io/service-name": {}
                },
                "f:ownerReferences": { ".": {}, "k:{\"uid\":\"368f234f\"}": {} }
            }
        }
    }]);
    metadata["labels"]["app.kubernetes.io/managed-by"] = "Helm".into();
    if !slice {
        return object;
    }
    metadata["labels"]["endpointslice.kubernetes.io/managed-by"] =
        "endpointslice-controller.k8s.io".into();
    metadata["annotations"]["endpoints.kubernetes.io/last-change-trigger-time"] =
        "2026-01-05T09:30:00Z".into();
    metadata["ownerReferences"] = owner;
    for endpoint in object["endpoints"].as_array_mut().into_iter().flatten() {
        endpoint["conditions"] = json!({ "ready": true, "serving": true, "terminating": false });
        endpoint["targetRef"] = json!({
            "kind": "Pod", "namespace": NAMESPACE, "uid": uid,
            "name": "a-deployment-7c5ddbdf54-x2x9z"
        });
        endpoint["zone"] = "zone-a".into();
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_as_large_as_real_ones() {
        let [service, slice] = service(2);
        let size = |object: &Value| object.to_string().len();
        assert!(size(&service) > 800, "{}", size(&service));
        assert!(size(&slice) > 3_000, "{}", size(&slice));
        assert_eq!(slice["endpoints"].as_array().unwrap().len(), 10);
    }
}
