//! Bytes to settings, events and packets. Names and addresses come from a handful, so that objects
//! meet; now and then one is anything at all.

mod endpoints;
mod node;
mod services;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use arbitrary::{Result, Unstructured};
use proxy_model::{ClusterEvent, Diagnostic, IpNet, ObjectName, Protocol, oracle::Packet};

pub(crate) use node::settings;

const ADDRESSES: &[&str] = &[
    "10.0.0.1",
    "10.0.0.2",
    "10.96.0.1",
    "10.96.0.2",
    "127.0.0.1",
    "192.0.2.1",
    "203.0.113.1",
    "0.0.0.0",
    "::1",
    "::ffff:10.96.0.1",
    "2001:db8::1",
    "fd00::1",
    "fd00:96::1",
];

/// One event.
pub(crate) fn event(input: &mut Unstructured<'_>) -> Result<ClusterEvent> {
    Ok(match input.int_in_range(0..=15)? {
        0..=4 => ClusterEvent::ServiceUpserted(services::service(input)?),
        5 => ClusterEvent::ServiceDeleted(name(input)?),
        6..=9 => ClusterEvent::SliceUpserted(endpoints::slice(input)?),
        10 => ClusterEvent::SliceDeleted(name(input)?),
        11 => ClusterEvent::NodeUpserted(node::node(input)?),
        12 => ClusterEvent::NodeDeleted(node_name(input)?),
        13 if input.arbitrary()? => ClusterEvent::ServiceCidrUpserted(node::service_cidr(input)?),
        13 => ClusterEvent::ServiceCidrDeleted(word(input, &["kubernetes", "more"])?),
        14 => ClusterEvent::HostAddresses(several(input, address)?),
        _ => diagnosed(input)?,
    })
}

/// A packet from anywhere to anywhere.
pub(crate) fn packet(input: &mut Unstructured<'_>) -> Result<Packet> {
    Ok(Packet {
        source: address(input)?,
        destination: SocketAddr::new(address(input)?, port(input)?),
        protocol: protocol(input)?,
        interface: maybe(input, |input| word(input, &["cbr0", "eth0", "veth1"]))?,
    })
}

fn diagnosed(input: &mut Unstructured<'_>) -> Result<ClusterEvent> {
    let object = word(input, &["Service ns/a", "Node node-a"])?;
    let diagnostics = several(input, |input| {
        Ok(Diagnostic {
            object: Arc::clone(&object),
            field: word(input, &["spec", "status"])?.to_string(),
            message: String::new(),
        })
    })?;
    Ok(ClusterEvent::Diagnosed {
        object,
        diagnostics,
    })
}

fn name(input: &mut Unstructured<'_>) -> Result<ObjectName> {
    let namespace = word(input, &["ns", "other"])?;
    Ok(ObjectName::new(namespace, word(input, &["a", "b", "c"])?))
}

fn node_name(input: &mut Unstructured<'_>) -> Result<Arc<str>> {
    word(input, &["node-a", "node-a", "node-b", ""])
}

fn port_name(input: &mut Unstructured<'_>) -> Result<Arc<str>> {
    word(input, &["", "http", "http", "dns"])
}

fn protocol(input: &mut Unstructured<'_>) -> Result<Protocol> {
    let all = [Protocol::Tcp, Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
    input.choose(&all).copied()
}

fn port(input: &mut Unstructured<'_>) -> Result<u16> {
    match input.int_in_range(0..=7)? {
        0 => input.arbitrary(),
        1 | 2 => Ok(30080),
        _ => Ok(80),
    }
}

fn address(input: &mut Unstructured<'_>) -> Result<IpAddr> {
    if input.ratio(1, 16)? {
        return input.arbitrary();
    }
    let text = *input.choose(ADDRESSES)?;
    Ok(text.parse().expect("these are addresses"))
}

fn range(input: &mut Unstructured<'_>) -> Result<IpNet> {
    let address = address(input)?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let length = input.int_in_range(0..=longest)?;
    Ok(IpNet::new(address, length).expect("no longer than the address"))
}

/// One of `words`, or a few bytes of the fuzzer's own.
fn word(input: &mut Unstructured<'_>, words: &[&str]) -> Result<Arc<str>> {
    if input.ratio(1, 32)? {
        return Ok(input.arbitrary::<&str>()?.into());
    }
    Ok((*input.choose(words)?).into())
}

fn maybe<T>(
    input: &mut Unstructured<'_>,
    read: impl Fn(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Option<T>> {
    if input.arbitrary()? {
        return read(input).map(Some);
    }
    Ok(None)
}

/// Up to four; what a source would not repeat may come twice.
fn several<T>(
    input: &mut Unstructured<'_>,
    read: impl Fn(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = input.int_in_range(0..=4)?;
    (0..count).map(|_| read(input)).collect()
}
