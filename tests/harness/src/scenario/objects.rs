//! Which addresses a scenario needs servers on. Reads no more of the objects than that: what
//! they mean is for the agent to say.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::Scenario;
use crate::pod::Listen;

/// Every endpoint address and port of every EndpointSlice in any step.
pub fn listeners(scenario: &Scenario) -> Result<BTreeSet<Listen>> {
    let mut found = BTreeSet::new();
    for step in &scenario.steps {
        for (file, content) in &step.files {
            let documents: Vec<Value> = serde_saphyr::from_multiple(content)
                .with_context(|| format!("cannot read {file} of {}", scenario.name))?;
            for document in &documents {
                collect(document, &mut found);
            }
        }
    }
    Ok(found)
}

fn collect(object: &Value, found: &mut BTreeSet<Listen>) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for item in list(&object["items"]) {
        collect(&item, found);
    }
    if object["kind"] != "EndpointSlice" {
        return;
    }
    let addresses: Vec<IpAddr> = list(&object["endpoints"])
        .iter()
        .flat_map(|endpoint| list(&endpoint["addresses"]))
        .filter_map(|address| address.as_str()?.parse().ok())
        .collect();
    for port in list(&object["ports"]) {
        let Some(number) = port["port"]
            .as_u64()
            .and_then(|number| u16::try_from(number).ok())
        else {
            continue;
        };
        let listen = match port["protocol"].as_str() {
            Some("UDP") => Listen::udp,
            Some("TCP") | None => Listen::tcp,
            Some(_) => continue,
        };
        found.extend(
            addresses
                .iter()
                .map(|address| listen(SocketAddr::new(*address, number))),
        );
    }
}
