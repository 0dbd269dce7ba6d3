//! Health check node ports: load balancers ask each node, and for each Service apart, whether to
//! send that Service's traffic here. Answers with what was last told to be in force; where it is
//! asked is in `listeners`.
//!
//! A Service that goes away is answered for as one without endpoints on connections that are
//! still open.

mod listeners;
#[cfg(test)]
mod tests;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use axum::{
    Router,
    extract::State,
    http::{HeaderName, HeaderValue, StatusCode},
    response::{IntoResponse, Response},
};
use imbl::OrdMap;
use proxy_model::{
    Capability, HealthCheck, HealthCheckKey, IpFamily, NodePortSelection, NodeState,
};
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};
use tokio::{select, sync::watch, time::sleep};

use self::listeners::Listeners;
use super::{Moment, Serving, http::Limits, pages};

/// How many endpoints a node has for a Service, for load balancers that weigh nodes.
const WEIGHT: HeaderName = HeaderName::from_static("x-load-balancing-endpoint-weight");

/// What is in force. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct HealthChecks {
    /// What is told of each Service with a health check node port.
    checks: OrdMap<HealthCheckKey, HealthCheck>,
    /// Where these ports answer; `0.0.0.0` and `::` stand for every address of their family.
    addresses: Arc<[IpAddr]>,
    /// Whether traffic from outside, which is what load balancers send, is served at all.
    external_traffic: bool,
}

impl HealthChecks {
    /// What follows from `state`, which a backend that lacks `lacking` brought into force.
    pub fn of(state: &NodeState, selection: &NodePortSelection, lacking: &[Capability]) -> Self {
        Self {
            checks: state.health_checks.clone(),
            addresses: places(&state.node_port_addresses, selection),
            external_traffic: !lacking.contains(&Capability::ExternalTraffic),
        }
    }

    /// Endpoints on this node of the Service that `key` names, for who asks on `port`.
    fn local_endpoints(&self, key: &HealthCheckKey, port: u16) -> usize {
        let check = self
            .checks
            .get(key)
            .filter(|check| check.port.get() == port);
        check.map_or(0, |check| check.local_endpoints)
    }
}

/// Where health check node ports listen, given where NodePorts answer: nobody asks from outside
/// on loopback. A wildcard serves addresses that come later without a new listener.
fn places(node_ports: &[IpAddr], selection: &NodePortSelection) -> Arc<[IpAddr]> {
    let wildcards: [(IpFamily, IpAddr); 2] = [
        (IpFamily::V4, Ipv4Addr::UNSPECIFIED.into()),
        (IpFamily::V6, Ipv6Addr::UNSPECIFIED.into()),
    ];
    let everywhere = |family| selection.is_everything(family);
    let wildcards = wildcards
        .into_iter()
        .filter_map(|(family, wildcard)| everywhere(family).then_some(wildcard));
    let single = node_ports
        .iter()
        .copied()
        .filter(|address| !address.is_loopback() && !everywhere(IpFamily::of(*address)));
    wildcards.chain(single).collect()
}

/// Tells the task that answers what is in force.
#[derive(Debug, Default)]
pub struct ServiceHealth(watch::Sender<HealthChecks>);

impl ServiceHealth {
    /// This is in force now. Costs nothing: who is asked looks here, listeners follow by
    /// themselves.
    pub fn in_force(&self, checks: HealthChecks) {
        self.0.send_if_modified(|known| {
            let changed = known.external_traffic != checks.external_traffic
                || known.addresses != checks.addresses
                || !known.checks.ptr_eq(&checks.checks);
            *known = checks;
            changed
        });
    }
}

/// Answers until the process ends. Nothing listens before something was told.
pub(super) async fn run(serving: Arc<Serving>) {
    let mut told = serving.service_health.0.subscribe();
    // Something may have been told before this task got to run.
    told.mark_changed();
    let limits = Limits::of_many_ports();
    let pages = |key: &HealthCheckKey, port| {
        page(Arc::new(Asked {
            serving: Arc::clone(&serving),
            key: key.clone(),
            port,
        }))
    };
    let mut listeners = Listeners::new(pages, limits, serving.events.clone());
    let (mut listening, mut failed) = (0, 0);
    loop {
        select! {
            changed = told.changed() => {
                changed.expect("who tells lives as long as what is held here");
            }
            () = sleep(limits.bind_again), if failed + listening != 0 => {}
        }
        let checks = told.borrow_and_update().clone();
        listeners.reconcile(&checks).await;
        (listening, failed) = listeners.count();
        serving.metrics.health_check_ports(listening, failed);
    }
}

/// What one port is asked for.
#[derive(Debug)]
struct Asked {
    serving: Arc<Serving>,
    key: HealthCheckKey,
    port: u16,
}

/// Every path and every method is answered alike.
fn page(asked: Arc<Asked>) -> Router {
    Router::new().fallback(answer).with_state(asked)
}

/// As kube-proxy answers: 200 if there is an endpoint here and the proxy is well. Whether the
/// node is to be used is no part of it.
async fn answer(State(asked): State<Arc<Asked>>) -> Response {
    let healthy = asked.serving.health.outside(Moment::now());
    let (local_endpoints, healthy) = {
        let known = asked.serving.service_health.0.borrow();
        let count = known.local_endpoints(&asked.key, asked.port);
        (count, healthy && known.external_traffic)
    };
    let code = if local_endpoints != 0 && healthy {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let weight = [(WEIGHT, HeaderValue::from(local_endpoints))];
    let body = Body {
        service: Named {
            namespace: &asked.key.service.namespace,
            name: &asked.key.service.name,
        },
        local_endpoints,
        service_proxy_healthy: healthy,
    };
    let page = pages::with_type(pages::JSON, body.to_text());
    (code, weight, page).into_response()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    service: Named<'a>,
    local_endpoints: usize,
    service_proxy_healthy: bool,
}

#[derive(Serialize)]
struct Named<'a> {
    namespace: &'a str,
    name: &'a str,
}

impl Body<'_> {
    /// With tabs, as kube-proxy writes it.
    fn to_text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        let tabs = PrettyFormatter::with_indent(b"\t");
        self.serialize(&mut Serializer::with_formatter(&mut text, tabs))
            .expect("names, a number and a boolean always serialise");
        text
    }
}
