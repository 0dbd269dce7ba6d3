//! EndpointSlices.

use std::{collections::BTreeSet, sync::Arc};

use proxy_model::{
    Conditions, EndpointSlice, Hints, IpFamily, ServiceName, SliceEndpoint, SlicePort,
};

use super::{
    Converted, Report, is_not_ours, non_empty, object_name, parse_ordinary_address, parse_port,
    parse_protocol,
};
use crate::cluster::{names::Names, object};

/// Converts an EndpointSlice. Ignored are those without name, those that belong to no Service or
/// to a headless one or to another proxy's, and those of domain names.
pub fn slice(object: &object::EndpointSlice, names: &mut Names) -> Converted<EndpointSlice> {
    let metadata = &object.metadata;
    let service = non_empty(metadata.labels.service_name.as_deref());
    let address_type = object.address_type.as_deref().unwrap_or_default();
    let ours = !is_not_ours(metadata) && address_type != "FQDN";
    let (Some(name), Some(service), true) = (object_name(metadata, names), service, ours) else {
        return Converted::ignored();
    };
    let mut report = Report::about("EndpointSlice", &name);
    let family = match address_type {
        "IPv4" => IpFamily::V4,
        "IPv6" => IpFamily::V6,
        other => {
            let message =
                format!("{other:?} is none of IPv4, IPv6 and FQDN: this slice is left out");
            report.add("addressType", message);
            return Converted::refused(report);
        }
    };
    let mut endpoints = Vec::with_capacity(object.endpoints.len());
    for (index, object) in object.endpoints.iter().enumerate() {
        endpoints.extend(endpoint(object, index, family, names, &mut report));
    }
    let value = EndpointSlice {
        service: ServiceName::new(name.namespace.clone(), service),
        family,
        ports: ports(&object.ports, names, &mut report),
        endpoints,
        name,
    };
    Converted {
        value: Some(value),
        diagnostics: report.diagnostics,
    }
}

fn ports(
    objects: &[object::EndpointPort],
    names: &mut Names,
    report: &mut Report,
) -> Vec<SlicePort> {
    let mut seen = BTreeSet::new();
    let mut ports = Vec::with_capacity(objects.len());
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
                let message = "is missing, which means every port, so no Service can lead to it: \
                               this port is left out";
                report.add(format!("ports[{index}].port"), message);
                continue;
            }
        };
        if !seen.insert((name, protocol)) {
            let message = format!(
                "{name:?} is already the name of an earlier {protocol} port: this port is left out"
            );
            report.add(format!("ports[{index}].name"), message);
            continue;
        }
        ports.push(SlicePort {
            name: names.share(name),
            protocol,
            port,
        });
    }
    ports
}

fn endpoint(
    object: &object::Endpoint,
    index: usize,
    family: IpFamily,
    names: &mut Names,
    report: &mut Report,
) -> Option<SliceEndpoint> {
    let Some(text) = object.addresses.first() else {
        report.add(
            format!("endpoints[{index}].addresses"),
            "is empty: this endpoint is left out",
        );
        return None;
    };
    let address = match parse_ordinary_address(text) {
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
    let conditions = &object.conditions;
    Some(SliceEndpoint {
        address,
        conditions: Conditions {
            ready: conditions.ready.unwrap_or(true),
            serving: conditions.serving.unwrap_or(true),
            terminating: conditions.terminating.unwrap_or(false),
        },
        node: non_empty(object.node_name.as_deref()).map(|node| names.share(node)),
        hints: hints(&object.hints, names),
    })
}

fn hints(object: &object::Hints, names: &mut Names) -> Option<Arc<Hints>> {
    if object.for_zones.is_empty() && object.for_nodes.is_empty() {
        return None;
    }
    let mut of = |hints: &[object::Hint]| -> Vec<_> {
        let hints = hints.iter().filter_map(|hint| hint.name.as_deref());
        hints.map(|name| names.share(name)).collect()
    };
    let (zones, nodes) = (of(&object.for_zones), of(&object.for_nodes));
    Some(names.share_hints(Hints { zones, nodes }))
}

#[cfg(test)]
mod tests;
