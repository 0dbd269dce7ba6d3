//! EndpointSlices.

use std::collections::BTreeSet;

use k8s_openapi::api::discovery::v1 as api;
use proxy_model::{Conditions, EndpointSlice, IpFamily, ServiceName, SliceEndpoint, SlicePort};

use super::{
    Converted, LABEL_HEADLESS, LABEL_PROXY_NAME, Report, label, non_empty, object_name,
    parse_address, parse_port, parse_protocol,
};

const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Converts an EndpointSlice. Ignored are those without name, those that belong to no Service or
/// to a headless one or to another proxy's, and those of domain names.
pub fn slice(object: &api::EndpointSlice) -> Converted<EndpointSlice> {
    let metadata = &object.metadata;
    let service = non_empty(label(metadata, LABEL_SERVICE_NAME));
    let ours = label(metadata, LABEL_HEADLESS).is_none()
        && label(metadata, LABEL_PROXY_NAME).is_none()
        && object.address_type != "FQDN";
    let (Some(name), Some(service), true) = (object_name(metadata), service, ours) else {
        return Converted::ignored();
    };
    let mut report = Report::about("EndpointSlice", &name);
    let family = match object.address_type.as_str() {
        "IPv4" => IpFamily::V4,
        "IPv6" => IpFamily::V6,
        other => {
            let message =
                format!("{other:?} is none of IPv4, IPv6 and FQDN: this slice is left out");
            report.add("addressType", message);
            return Converted {
                value: None,
                diagnostics: report.diagnostics,
            };
        }
    };
    let endpoints = object.endpoints.as_deref().unwrap_or_default();
    let value = EndpointSlice {
        service: ServiceName::new(name.namespace.clone(), service),
        family,
        ports: ports(object.ports.as_deref().unwrap_or_default(), &mut report),
        endpoints: endpoints
            .iter()
            .enumerate()
            .filter_map(|(index, object)| endpoint(object, index, family, &mut report))
            .collect(),
        name,
    };
    report_hints(endpoints, &mut report);
    Converted {
        value: Some(value),
        diagnostics: report.diagnostics,
    }
}

fn ports(objects: &[api::EndpointPort], report: &mut Report) -> Vec<SlicePort> {
    let mut seen = BTreeSet::new();
    let mut ports = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        // No name means the empty name: that is what the API server fills in.
        let name = object.name.as_deref().unwrap_or_default();
        let protocol = match parse_protocol(object.protocol.as_deref()) {
            Ok(protocol) => protocol,
            Err(message) => {
                report.add(format!("ports[{index}].protocol"), message);
                continue;
            }
        };
        let port = match object.port.map(parse_port) {
            Some(Ok(port)) => port,
            Some(Err(message)) => {
                report.add(format!("ports[{index}].port"), message);
                continue;
            }
            None => {
                let message = "is missing, which means every port, and no Service can lead there: \
                               this port is left out";
                report.add(format!("ports[{index}].port"), message);
                continue;
            }
        };
        if !seen.insert((name, protocol)) {
            let message = format!(
                "{name:?} is the name of an earlier {protocol} port too: this port is left out"
            );
            report.add(format!("ports[{index}].name"), message);
            continue;
        }
        ports.push(SlicePort {
            name: name.into(),
            protocol,
            port,
        });
    }
    ports
}

fn endpoint(
    object: &api::Endpoint,
    index: usize,
    family: IpFamily,
    report: &mut Report,
) -> Option<SliceEndpoint> {
    let Some(text) = object.addresses.first() else {
        report.add(
            format!("endpoints[{index}].addresses"),
            "is empty: this endpoint is left out",
        );
        return None;
    };
    let address = match parse_address(text) {
        Ok(address) if IpFamily::of(address) == family => address,
        Ok(address) => {
            let message = format!("{address} is not an {family} address: it is left out");
            report.add(format!("endpoints[{index}].addresses[0]"), message);
            return None;
        }
        Err(message) => {
            report.add(format!("endpoints[{index}].addresses[0]"), message);
            return None;
        }
    };
    let conditions = object.conditions.as_ref();
    Some(SliceEndpoint {
        address,
        conditions: Conditions {
            ready: conditions
                .and_then(|conditions| conditions.ready)
                .unwrap_or(true),
            serving: conditions
                .and_then(|conditions| conditions.serving)
                .unwrap_or(true),
            terminating: conditions
                .and_then(|conditions| conditions.terminating)
                .unwrap_or(false),
        },
        node: non_empty(object.node_name.as_deref()).map(Into::into),
    })
}

/// One diagnostic for a whole slice: hints are on all of its endpoints or on none.
fn report_hints(endpoints: &[api::Endpoint], report: &mut Report) {
    let hinted = |endpoint: &api::Endpoint| {
        endpoint.hints.as_ref().is_some_and(|hints| {
            hints
                .for_zones
                .as_ref()
                .is_some_and(|zones| !zones.is_empty())
                || hints
                    .for_nodes
                    .as_ref()
                    .is_some_and(|nodes| !nodes.is_empty())
        })
    };
    if let Some(first) = endpoints.iter().position(hinted) {
        report.add(
            format!("endpoints[{first}].hints"),
            "topology hints are not followed yet: endpoints of every zone and node are used",
        );
    }
}

#[cfg(test)]
mod tests;
