//! Whether the dataplane that is in the kernel already serves an address: asked before an agent
//! takes it over, without the lock, and without changing anything.

use std::{net::SocketAddr, path::Path};

use aya::{
    Pod,
    maps::{HashMap, Map, MapData},
};
use proxy_common::{
    address,
    endpoint::{SetKey, SetValue},
    frontend::{FrontendKey, FrontendValue},
    names::MAPS,
};
use proxy_model::Protocol;

use super::{
    pins::{self, Peek, PinDir, PinPath},
    syscalls,
};
use crate::encode;

/// Whether the dataplane pinned in `pin_dir`, by whichever agent, leads sockets that dial `at` to
/// an endpoint. `false` where that cannot be told.
pub fn is_programmed(pin_dir: &Path, at: SocketAddr, protocol: Protocol) -> bool {
    PinDir::peek(pin_dir).is_some_and(|pins| {
        leads_somewhere(&pins, at, protocol).unwrap_or(false) && is_attached(&pins, at, protocol)
    })
}

fn leads_somewhere(pins: &Peek, at: SocketAddr, protocol: Protocol) -> Option<bool> {
    let services = pins.services();
    let key = FrontendKey::new(
        address::to_words(&address::from_ip(at.ip())),
        at.port(),
        encode::protocol_number(protocol)?,
    );
    let frontends: HashMap<_, FrontendKey, FrontendValue> = open(&services, "FRONTENDS")?;
    let frontend = frontends.get(&key, 0).ok()?;
    let sets: HashMap<_, SetKey, SetValue> = open(&services, "SETS")?;
    let set = SetKey {
        set: frontend.set(),
    };
    let value = sets.get(&set, 0).ok()?;
    Some(frontend.holds_for(&key) && value.holds_for(set.set) && value.count > 0)
}

/// Opens a map of an earlier run if it has the shape of ours: the kernel would hand out any other
/// without complaint.
pub fn open<K: Pod, V: Pod>(directory: &PinPath<'_>, name: &str) -> Option<HashMap<MapData, K, V>> {
    let shape = MAPS.iter().find(|shape| shape.name == name)?;
    let map = pins::open_readable(&directory.join(name), shape)?;
    Map::HashMap(MapData::from_fd(map).ok()?).try_into().ok()
}

/// Whether the programs that lead such sockets are attached to a cgroup that exists.
fn is_attached(pins: &Peek, at: SocketAddr, protocol: Protocol) -> bool {
    let programs: &[&str] = match (protocol, at.is_ipv4()) {
        (Protocol::Udp, true) => &["culvert_conn4", "culvert_send4"],
        (Protocol::Udp, false) => &["culvert_conn6", "culvert_send6"],
        (_, true) => &["culvert_conn4"],
        (_, false) => &["culvert_conn6"],
    };
    programs.iter().all(|name| {
        let link = syscalls::open_pinned(pins.links().join(name).as_ref());
        let link = link.and_then(syscalls::cgroup_link);
        matches!(link, Ok(Some(link)) if link.cgroup != 0)
    })
}
