//! How the programs on devices end: at once, or when the last flow that they translate has ended.

use std::os::fd::OwnedFd;

use aya::maps::{Array, Map, MapData};
use proxy_common::{
    names::{EDGE_MAPS, TRACKED_MAP},
    track::{LEAVING, Settings},
};
use proxy_netlink::route::RouteSocket;

use super::{
    OpenError,
    edge::Flows,
    error::of_io,
    pins::{self, PinDir, PinError},
    rights, tc,
};

/// Takes the programs off all devices, at once.
pub fn detach(pins: &PinDir) -> Vec<PinError> {
    let swept = tc::sweep::sweep(&[], &pins.devices(), &mut RouteSocket::default());
    let problems = swept.problems.into_iter();
    problems
        .map(|problem| PinError::Device(problem.to_string()))
        .collect()
}

/// Has no flow begin any more. Returns how many there are that go on; none if no program is there.
pub fn wind_down(pins: &PinDir) -> Result<u64, OpenError> {
    let Some(settings) = open(pins, "SETTINGS") else {
        if pins.connections().exists() && rights::missing().is_ok_and(|missing| !missing.is_empty())
        {
            tracing::warn!(
                text = "it takes CAP_BPF to have them end by themselves",
                "connections from outside that programs on devices translate break now"
            );
        }
        return Ok(0);
    };
    let failed = |error: aya::maps::MapError| {
        OpenError::Later(format!("having no connection from outside begin: {error}"))
    };
    let map = MapData::from_fd(settings).map_err(failed)?;
    let mut map: Array<MapData, Settings> = Map::Array(map).try_into().map_err(failed)?;
    let mut settings = map.get(&0, 0).map_err(failed)?;
    if settings.flags & LEAVING == 0 {
        settings.flags |= LEAVING;
        map.set(0, settings, 0).map_err(failed)?;
    }
    let Some(track) = open(pins, TRACKED_MAP) else {
        return Ok(0);
    };
    let flows = Flows::in_map(track).and_then(|mut flows| flows.live(&settings));
    flows.map_err(|error| of_io(&error, "counting connections from outside"))
}

fn open(pins: &PinDir, name: &str) -> Option<OwnedFd> {
    let shape = EDGE_MAPS.iter().find(|shape| shape.name == name)?;
    pins::open_readable(&pins.connections().join(name), shape)
}
