//! Clusters as events of the model: one Service port for each Service, ten endpoints each. Like
//! [`super::clusters`], for benches that read no objects.

use std::{net::IpAddr, sync::Arc};

use proxy_model::{
    ClusterEvent, Conditions, EndpointSlice, IpFamily, Protocol, Service, ServiceName, ServicePort,
    SliceEndpoint, SliceName, SlicePort, TrafficPolicy,
};

/// The node that all endpoints are on.
pub(super) const NODE: &str = "node-a";
/// Endpoints of a Service: the last bytes of their addresses.
pub(super) const ENDPOINTS: std::ops::RangeInclusive<u8> = 1..=10;

/// All that a cluster of `services` Services says, in order.
pub(super) fn cluster(services: u32) -> impl Iterator<Item = ClusterEvent> {
    (0..services).flat_map(|number| [service(number), slice(number, ENDPOINTS)])
}

/// Another endpoint takes the place of a Service's last one. `turn` counts the changes: each is of
/// another Service until all have had their turn, and each changes something.
pub(super) fn replaced(turn: u32, services: u32) -> ClusterEvent {
    // The distance shares no factor with the sizes of the benches; neighbours lie close together
    // in memory, and would be too cheap.
    let number = turn.wrapping_mul(7) % services;
    let last = if (turn / services).is_multiple_of(2) {
        ENDPOINTS.end() + 1
    } else {
        *ENDPOINTS.end()
    };
    slice(number, ENDPOINTS.take(9).chain([last]))
}

fn name(number: u32) -> ServiceName {
    ServiceName::new("bench", format!("s{number}"))
}

fn service(number: u32) -> ClusterEvent {
    ClusterEvent::ServiceUpserted(Service {
        name: name(number),
        cluster_ips: vec![IpAddr::from((0x0a60_0001 + number).to_be_bytes())],
        ports: vec![ServicePort {
            name: "main".into(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: None,
        }],
        internal_policy: TrafficPolicy::Cluster,
        ..Service::default()
    })
}

/// The endpoints of the Service `number`.
pub(super) fn slice(number: u32, endpoints: impl IntoIterator<Item = u8>) -> ClusterEvent {
    let node: Arc<str> = NODE.into();
    let endpoint = |last| SliceEndpoint {
        address: IpAddr::from([10, 244, 0, last]),
        conditions: Conditions {
            ready: true,
            serving: true,
            terminating: false,
        },
        node: Some(Arc::clone(&node)),
        hints: None,
    };
    ClusterEvent::SliceUpserted(EndpointSlice {
        name: SliceName::new("bench", format!("s{number}-a")),
        service: name(number),
        family: IpFamily::V4,
        ports: vec![SlicePort {
            name: "main".into(),
            protocol: Protocol::Tcp,
            port: 8080,
        }],
        endpoints: endpoints.into_iter().map(endpoint).collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proxy_model::Model;

    use super::*;

    #[test]
    fn a_cluster_has_its_size_and_each_turn_changes_one_service() {
        const SERVICES: u32 = 10;
        let mut model = Model::new(NODE);
        for event in cluster(SERVICES) {
            model.apply(event);
        }
        assert_eq!(model.update().changes.len(), 10);
        let sizes = |model: &Model| -> BTreeSet<usize> {
            let all = model.state().services.values();
            all.map(|one| one.cluster_endpoints.as_ref().unwrap().len())
                .collect()
        };
        assert_eq!(sizes(&model), [10].into());
        for turn in 0..3 * SERVICES {
            model.apply(replaced(turn, SERVICES));
            assert_eq!(model.update().changes.len(), 1, "turn {turn}");
        }
        assert_eq!(sizes(&model), [10].into());
    }
}
