//! EndpointSlices.

use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use proxy_model::{
    Conditions, EndpointSlice, Hints, IpFamily, ObjectName, SliceEndpoint, SlicePort,
};

use super::{address, maybe, name, node_name, port, port_name, protocol, several, word};

pub(super) fn slice(input: &mut Unstructured<'_>) -> Result<EndpointSlice> {
    let name = name(input)?;
    let service = word(input, &["a", "b", "c"])?;
    let families = [IpFamily::V4, IpFamily::V6];
    Ok(EndpointSlice {
        service: ObjectName::new(Arc::clone(&name.namespace), service),
        name,
        family: *input.choose(&families)?,
        ports: several(input, slice_port)?,
        endpoints: several(input, endpoint)?,
    })
}

fn slice_port(input: &mut Unstructured<'_>) -> Result<SlicePort> {
    Ok(SlicePort {
        name: port_name(input)?,
        protocol: protocol(input)?,
        port: port(input)?,
    })
}

fn endpoint(input: &mut Unstructured<'_>) -> Result<SliceEndpoint> {
    Ok(SliceEndpoint {
        address: address(input)?,
        conditions: Conditions {
            ready: input.arbitrary()?,
            serving: input.arbitrary()?,
            terminating: input.arbitrary()?,
        },
        node: maybe(input, node_name)?,
        hints: maybe(input, hints)?.map(Arc::new),
    })
}

fn hints(input: &mut Unstructured<'_>) -> Result<Hints> {
    Ok(Hints {
        zones: several(input, |input| word(input, &["zone-a", "zone-b"]))?,
        nodes: several(input, node_name)?,
    })
}
