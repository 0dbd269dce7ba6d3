//! Flows that netfilter translates already when a device begins to be served: they are its own until
//! they end. A packet of TCP that begins nothing is left to it anyway; datagrams would be led to
//! another endpoint in the middle of a conversation.

use std::net::SocketAddr;

use aya::{
    Ebpf,
    maps::{HashMap, MapData},
};
use proxy_common::{
    address,
    track::{BENEATH, ConnectionKey, ConnectionValue, DIALLED},
};

use super::{super::OpenError, flows::since_boot};

/// Where a key is already, it stays: `BPF_NOEXIST`.
const ADD: u64 = 1;

/// Enters them as left to the layer beneath, as many as half of the table holds.
pub fn enter(ebpf: &mut Ebpf) -> Result<usize, OpenError> {
    let failed = |error: &dyn std::fmt::Display| {
        OpenError::Later(format!(
            "entering the connections that netfilter translates: {error}"
        ))
    };
    let map = ebpf.map_mut("OPENING");
    let map = map.ok_or_else(|| OpenError::Other("no map OPENING".to_owned()))?;
    let room = match map {
        aya::maps::Map::LruHashMap(data) => data.info().map(|info| info.max_entries() / 2),
        _ => Ok(0),
    };
    let room = room.map_err(|error| failed(&error))? as usize;
    let map: Result<HashMap<&mut MapData, ConnectionKey, ConnectionValue>, _> = map.try_into();
    let mut map = map.map_err(|error| failed(&error))?;
    let now = since_boot().map_err(|error| failed(&error))?;
    let mut entered = 0;
    let visited = proxy_conntrack::each_translated(|flow| {
        if entered < room {
            let (key, value) = entry(flow.protocol, flow.source, flow.destination, now);
            // Fails where the flow is known.
            entered += usize::from(map.insert(key, value, ADD).is_ok());
        }
    });
    visited.map_err(|error| failed(&error))?;
    Ok(entered)
}

fn entry(
    protocol: u8,
    source: SocketAddr,
    destination: SocketAddr,
    now: u32,
) -> (ConnectionKey, ConnectionValue) {
    let key = ConnectionKey {
        source: address::from_ip(source.ip()),
        destination: address::from_ip(destination.ip()),
        source_port: source.port(),
        destination_port: destination.port(),
        protocol,
        role: DIALLED,
        padding: 0,
    };
    let mut value = ConnectionValue {
        owner: BENEATH,
        serial: now,
        last: now,
        since: now,
        ..bytemuck::Zeroable::zeroed()
    };
    value.seal(&key);
    (key, value)
}
