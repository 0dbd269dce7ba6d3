//! OWN_ADDRS: the addresses of this host. A flow from one that it has no more ends, since answers go elsewhere:
//! see `proxy_common::track::snat`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::{Duration, Instant},
};

use aya::{
    Ebpf,
    maps::{HashMap, MapData, MapError},
};
use proxy_common::{
    address,
    node::{NodeAddressKey, NodeAddressValue},
};

use super::{
    super::OpenError,
    sourced::{failed, take},
};

/// How long an address may be gone before the flows end that have it: whoever configures a device anew takes it
/// away for a moment.
const GONE: Duration = Duration::from_secs(10);

/// The map, which nobody else writes.
pub struct Own {
    map: HashMap<MapData, NodeAddressKey, NodeAddressValue>,
    gone: Gone,
}

impl Own {
    /// The map of these programs.
    pub fn of(ebpf: &mut Ebpf) -> Result<Self, OpenError> {
        Ok(Self {
            map: take(ebpf, "OWN_ADDRS")?,
            gone: Gone::default(),
        })
    }

    /// Makes it hold the addresses that `are`. What cannot be written keeps nothing else from being so.
    pub fn settle(&mut self, are: &BTreeSet<IpAddr>) -> Result<(), OpenError> {
        let there: Result<BTreeSet<_>, _> = self.map.keys().collect();
        let there = there.map_err(|error| failed("reading map OWN_ADDRS", &error))?;
        let wanted = are.iter().map(|address| NodeAddressKey {
            address: address::from_ip(*address),
        });
        let wanted: BTreeSet<_> = wanted.collect();
        let mut first = Ok(());
        for key in wanted.difference(&there) {
            let written = self.map.insert(key, NodeAddressValue { present: 1 }, 0);
            if let Err(error) = written {
                first = first.and(Err(failed("writing to map OWN_ADDRS", &error)));
            }
        }
        let are_gone: BTreeSet<_> = there.difference(&wanted).copied().collect();
        for key in self.gone.over(are_gone, Instant::now()) {
            match self.map.remove(&key) {
                Ok(()) | Err(MapError::KeyNotFound) => {
                    let address = address::to_ip(key.address);
                    tracing::info!(%address, "gone; connections end that other nodes see from there");
                }
                Err(error) => {
                    first = first.and(Err(failed("removing from map OWN_ADDRS", &error)));
                }
            }
        }
        first
    }
}

/// Since when addresses are gone.
#[derive(Debug, Default)]
struct Gone(BTreeMap<NodeAddressKey, Instant>);

impl Gone {
    /// Those of the addresses that `are` gone which are for long enough.
    fn over(&mut self, are: BTreeSet<NodeAddressKey>, now: Instant) -> Vec<NodeAddressKey> {
        self.0.retain(|key, _| are.contains(key));
        let over = are.into_iter().filter(|key| {
            let since = *self.0.entry(*key).or_insert(now);
            now.duration_since(since) >= GONE
        });
        over.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_comes_back_in_time_was_never_gone() {
        let key = |last| NodeAddressKey {
            address: address::from_ip(IpAddr::from([192, 0, 2, last])),
        };
        let (start, mut gone) = (Instant::now(), Gone::default());
        let mut over = |are: &[u8], seconds| {
            let are = are.iter().map(|last| key(*last)).collect();
            gone.over(are, start + Duration::from_secs(seconds))
        };
        assert_eq!(over(&[1, 2], 0), []);
        assert_eq!(over(&[1], 9), []);
        assert_eq!(over(&[1, 2], 10), [key(1)]);
        assert_eq!(over(&[2], 19), []);
        assert_eq!(over(&[1, 2], 20), [key(2)]);
    }
}
