//! The flows in TRACK: how many there are, which seem to be over, and their removal by the program
//! that can look and remove at once. OPENING is read in the same way.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use aya::{
    Ebpf,
    maps::{Array, MapData},
};
use proxy_common::{
    address::Address,
    names::{SWEEP_PROGRAM, TRACKED_MAP},
    track::{
        ConnectionKey, ConnectionValue, DIALLED, INSIDE, SNAT, SWEPT_AT_ONCE, Setting, Settings,
        sweep,
    },
};

use super::super::{
    OpenError,
    error::of_io,
    links::program_fd,
    syscalls::{self, Table},
};

/// Entries that are read at once.
const BATCH: usize = 4096;
/// Bytes before the keys: what an Ethernet header has.
const BEFORE: usize = 14;

/// Reads TRACK, or OPENING.
pub struct Flows {
    table: Table<ConnectionKey, ConnectionValue>,
    keys: Vec<ConnectionKey>,
    values: Vec<ConnectionValue>,
}

/// What tells a flow from every other: client, its port, and serial. By the serial alone, two of a
/// hundred thousand flows would count as one.
type Identity = (Address, u16, u32);

fn identity(key: &ConnectionKey, value: &ConnectionValue) -> Identity {
    let (client, port) = match (value.owner == SNAT, key.role) {
        (false, DIALLED) | (true, INSIDE) => (key.source, key.source_port),
        (false, _) => (key.destination, key.destination_port),
        (true, _) => (value.address, value.port),
    };
    (client, port, value.serial)
}

/// What the entries of one flow say together.
#[derive(Debug, Clone, Copy)]
struct Flow {
    key: ConnectionKey,
    /// Nothing but its second translation was met.
    is_left: bool,
    /// Translations of it that were met.
    pairs: u64,
    /// Seen by either entry, and how far it got.
    seen: [u32; 2],
    reached: [u32; 2],
    last: u32,
}

impl Flow {
    /// Whether it was idle for too long.
    fn is_over(&self, settings: &Settings, now: u32) -> bool {
        now.saturating_sub(self.last) > settings.get(self.timeout())
    }

    /// Whether it was broken by one side, or both are done.
    fn is_closed(&self) -> bool {
        matches!(self.timeout(), Setting::TcpReset | Setting::TcpClosed)
    }

    fn timeout(&self) -> Setting {
        if self.is_left {
            return Setting::TcpReset;
        }
        sweep::timeout(self.key.protocol, self.seen, self.reached)
    }
}

/// What a sweep saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Flows that live; those that are translated twice count as two, as they take the room of two.
    pub flows: u64,
    /// Flows that were removed.
    pub removed: u64,
}

impl Flows {
    /// The flows of a loaded object.
    pub fn of(ebpf: &Ebpf) -> Result<Self, OpenError> {
        let Some(aya::maps::Map::HashMap(data)) = ebpf.map(TRACKED_MAP) else {
            let reason = "the kernel object has no map TRACK".to_owned();
            return Err(OpenError::Other(reason));
        };
        let track = data.fd().as_fd().try_clone_to_owned();
        let track = track.and_then(Self::in_map);
        track.map_err(|error| of_io(&error, "opening map TRACK"))
    }

    /// The flows in a map that is open.
    pub fn in_map(track: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            table: Table::of(track)?,
            keys: vec![bytemuck::Zeroable::zeroed(); BATCH],
            values: vec![bytemuck::Zeroable::zeroed(); BATCH],
        })
    }

    /// The flows in TRACK.
    fn all(&mut self) -> io::Result<HashMap<Identity, Flow>> {
        let mut flows = HashMap::new();
        self.each(|key, value| {
            let is_second = value.owner == SNAT;
            let flow = flows.entry(identity(key, value)).or_insert(Flow {
                key: *key,
                is_left: is_second,
                pairs: 0,
                seen: [0; 2],
                reached: [value.reached(key.role); 2],
                last: value.last,
            });
            flow.pairs += u64::from(key.role == DIALLED);
            if is_second {
                return;
            }
            if flow.is_left {
                (flow.key, flow.is_left, flow.last) = (*key, false, value.last);
                flow.reached = [value.reached(key.role); 2];
            }
            let at = usize::from(key.role == DIALLED);
            flow.seen[at] |= value.seen();
            flow.reached[at] = value.reached(key.role);
            flow.last = flow.last.max(value.last);
        })?;
        Ok(flows)
    }

    /// Reads all entries, some thousand at a time. One that moves meanwhile may be met twice, or not.
    pub fn each(
        &mut self,
        mut met: impl FnMut(&ConnectionKey, &ConnectionValue),
    ) -> io::Result<()> {
        self.try_each(|key, value| {
            met(key, value);
            Ok(())
        })
    }

    /// The same, until one fails.
    pub fn try_each(
        &mut self,
        mut met: impl FnMut(&ConnectionKey, &ConnectionValue) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut position = None;
        loop {
            let batch = self
                .table
                .batch(&mut position, &mut self.keys, &mut self.values)?;
            let mut entries = self.keys.iter().zip(&self.values).take(batch.count);
            entries.try_for_each(|(key, value)| met(key, value))?;
            if batch.last {
                return Ok(());
            }
        }
    }

    /// The same, and whether each is of a connection of TCP that is closed: its client may begin another
    /// one at any moment.
    pub fn try_each_closed(
        &mut self,
        mut met: impl FnMut(&ConnectionKey, &ConnectionValue, bool) -> io::Result<()>,
    ) -> io::Result<()> {
        let flows = self.all()?;
        self.try_each(|key, value| {
            let flow = flows.get(&identity(key, value));
            met(key, value, flow.is_some_and(Flow::is_closed))
        })
    }

    /// How many there are that are neither closed nor over by `settings`.
    pub fn live(&mut self, settings: &Settings) -> io::Result<u64> {
        let now = since_boot()?;
        let flows = self.all()?;
        let live = |flow: &&Flow| !flow.is_closed() && !flow.is_over(settings, now);
        Ok(flows.values().filter(live).count() as u64)
    }

    /// Removes those that are over, and writes how many there are.
    pub fn sweep(&mut self, ebpf: &mut Ebpf, settings: &Settings) -> io::Result<Swept> {
        let now = since_boot()?;
        let flows = self.all()?;
        let over = flows.values().filter(|flow| flow.is_over(settings, now));
        let over: Vec<_> = over.map(|flow| (flow.key, flow.pairs)).collect();
        let mut taken: u64 = flows.values().map(|flow| flow.pairs).sum();
        let program = program_fd(ebpf, SWEEP_PROGRAM).map_err(io::Error::other)?;
        let mut removed = 0;
        for some in over.chunks(SWEPT_AT_ONCE as usize) {
            let keys: Vec<_> = some.iter().map(|(key, _)| *key).collect();
            let mut data = vec![0; BEFORE];
            data.extend_from_slice(bytemuck::cast_slice(&keys));
            let gone = u64::from(syscalls::run(program, &data)?);
            removed += gone;
            // Of some that live on it is not known which: the next sweep counts all.
            taken -= match some.len() as u64 {
                all if all == gone => some.iter().map(|(_, pairs)| pairs).sum(),
                _ => gone.min(taken),
            };
        }
        let swept = Swept {
            flows: taken,
            removed,
        };
        if let Some(map) = ebpf.map_mut("TRACKED") {
            let tracked: Result<Array<&mut MapData, u64>, _> = map.try_into();
            if let Ok(mut tracked) = tracked {
                tracked.set(0, swept.flows, 0).map_err(io::Error::other)?;
            }
        }
        Ok(swept)
    }
}

/// Seconds since boot, as programs count them.
pub fn since_boot() -> io::Result<u32> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)?;
    u32::try_from(now.tv_sec()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable as _;
    use proxy_common::{address, packet::rewrite::Place, socket::TCP};

    use super::*;

    fn entries(client: &str, serial: u32) -> [Identity; 2] {
        let place = |at: &str| {
            let at: std::net::SocketAddr = at.parse().unwrap();
            Place::new(address::to_words(&address::from_ip(at.ip())), at.port())
        };
        let [client, frontend, endpoint] = [client, "192.0.2.1:30080", "10.1.0.1:80"].map(place);
        let value = ConnectionValue {
            serial,
            ..ConnectionValue::zeroed()
        };
        [
            ConnectionKey::new(&client, &frontend, TCP, DIALLED),
            ConnectionKey::new(&endpoint, &client, TCP, INSIDE),
        ]
        .map(|key| identity(&key, &value))
    }

    #[test]
    fn both_entries_are_of_one_flow_and_no_other_client_shares_it() {
        let [dialled, inside] = entries("198.51.100.7:40000", 9);
        assert_eq!(dialled, inside);
        for (client, serial) in [
            ("198.51.100.8:40000", 9),
            ("198.51.100.7:40001", 9),
            ("198.51.100.7:40000", 10),
        ] {
            let [other, _] = entries(client, serial);
            assert_ne!(other, dialled);
        }
    }
}
