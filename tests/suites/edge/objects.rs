//! Objects of nodes that reach each other, and of a Service with endpoints on them, as manifests.

use std::net::IpAddr;

use super::rig::{DNS, HTTP};

/// A node that is known by two addresses of each family.
pub fn node(name: &str, internal: [IpAddr; 2], external: [IpAddr; 2]) -> String {
    let ([v4, v6], [external4, external6]) = (internal, external);
    format!(
        "---
apiVersion: v1
kind: Node
metadata: {{name: {name}}}
status:
  addresses:
  - {{type: InternalIP, address: {v4}}}
  - {{type: InternalIP, address: \"{v6}\"}}
  - {{type: ExternalIP, address: {external4}}}
  - {{type: ExternalIP, address: \"{external6}\"}}
"
    )
}

/// A Service of both families with NodePorts and policy Cluster, and its endpoints, each with the node that it is
/// on.
pub fn service<const N: usize>(name: &str, endpoints: &[[(IpAddr, &str); N]; 2]) -> String {
    let [v4, v6] = endpoints;
    let slices = [slice(name, "IPv4", v4), slice(name, "IPv6", v6)].concat();
    format!(
        "---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: shop}}
spec:
  type: NodePort
  clusterIP: 10.96.0.200
  clusterIPs: [10.96.0.200, \"fd00:10:96::200\"]
  ipFamilies: [IPv4, IPv6]
  ipFamilyPolicy: RequireDualStack
  ports:
  - {{name: http, port: 80, protocol: TCP, nodePort: {HTTP}}}
  - {{name: dns, port: 53, protocol: UDP, nodePort: {DNS}}}
{slices}"
    )
}

fn slice(service: &str, family: &str, endpoints: &[(IpAddr, &str)]) -> String {
    let name = family.to_lowercase();
    let each = endpoints.iter().map(|(ip, node)| {
        format!("- {{addresses: [\"{ip}\"], nodeName: {node}, conditions: {{ready: true}}}}\n")
    });
    let endpoints: String = each.collect();
    format!(
        "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {service}-{name}
  namespace: shop
  labels: {{kubernetes.io/service-name: {service}}}
addressType: {family}
ports:
- {{name: http, port: 8080, protocol: TCP}}
- {{name: dns, port: 5353, protocol: UDP}}
endpoints:
{endpoints}"
    )
}
