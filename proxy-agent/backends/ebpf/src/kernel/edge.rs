//! The programs on devices: loaded beside those on sockets, over the same Service maps, and kept on
//! every device that packets from outside come in by. What they decide is in `proxy_common::track`.
//!
//! ```text
//! load ──> programs, maps of connections
//! moved: connections of an earlier run that are in maps of another size ──> these
//! settings (pure): NodeState, timeouts ──> written: SETTINGS
//! follower, a thread ──> devices: which are served, attached, put back
//!                    ├─> sourced: SOURCES, by the addresses of those; OWN_ADDRS (own), PORTS
//!                    ├─> flows: which are over, removed
//!                    └─> counted: packets by reason ──> told, with what changed about devices
//! asked: the pinned maps, for `conntrack`; with or without all of that
//! ```
//!
//! Above a packet backend nothing is unserved without them; alone, the backend says what it lacks then. So what
//! fails here is told and tried again, and keeps no sync from succeeding.

mod asked;
mod bypasses;
mod counted;
mod devices;
mod figures;
mod flows;
mod follower;
mod load;
mod moved;
mod names;
mod open_table;
mod own;
mod role;
mod room;
mod settings;
mod sourced;
mod standing;
mod timeouts;
mod told;
mod written;

use std::{net::IpAddr, sync::Arc};

use imbl::OrdSet;
use proxy_model::{Difference, Figure, NodeState, PacketLayer};

use self::{follower::Follower, load::Loaded, moved::Moved, timeouts::Idle};
use super::{
    EbpfOptions, OpenError, held_maps::HeldMap, links::Mended, load::Place, pins::PinDir,
    pins::repin,
};
use crate::service_addresses::ServiceAddresses;
pub use asked::Asked;
pub use bypasses::Bypasses;
pub use devices::{Seen, survey};
pub use figures::described;
pub use flows::Flows;
pub use load::try_load;

/// The programs on devices.
pub struct Edge {
    maps: Vec<HeldMap>,
    follower: Follower,
    idle: Idle,
    addresses: Addresses,
}

/// What Services have.
struct Addresses {
    virtual_ones: ServiceAddresses,
    endpoints: ServiceAddresses,
}

impl Edge {
    /// Loads the programs, writes the settings, attaches to every device that is served, and follows
    /// them from then on.
    pub fn start(
        pins: &PinDir,
        place: Place,
        options: &EbpfOptions,
        state: &NodeState,
        beneath: PacketLayer,
    ) -> Result<Self, OpenError> {
        let Loaded { ebpf, maps, chosen } = load::load(pins, place, options)?;
        let moved = match &chosen.earlier {
            Some(earlier) => {
                // Otherwise a run died while it moved them, maybe before it had moved any.
                let are_all = chosen.are_beside(pins);
                Moved::begin(earlier, &chosen.directory, are_all)?
            }
            None => None,
        };
        let idle = Idle::on_this_host(&options.timeouts);
        let mut addresses = Addresses {
            virtual_ones: ServiceAddresses::virtual_ones(),
            endpoints: ServiceAddresses::of_endpoints_here(),
        };
        let wanted = wanted(state, options, beneath, &idle, &mut addresses);
        let follower = Follower::start(pins.share()?, ebpf, options, wanted, moved)?;
        chosen.settle(pins)?;
        Ok(Self {
            maps,
            follower,
            idle,
            addresses,
        })
    }

    /// Takes over what the state says about the node.
    pub fn configure(&mut self, state: &NodeState, options: &EbpfOptions, beneath: PacketLayer) {
        let wanted = wanted(state, options, beneath, &self.idle, &mut self.addresses);
        self.follower.want(wanted);
    }

    /// What is on which device.
    pub fn devices(&self) -> Arc<[Seen]> {
        self.follower.devices()
    }

    /// Pins in this directory from now on, because it was made anew.
    pub fn move_to(&self, pins: &PinDir) -> Result<(), OpenError> {
        self.follower.move_to(pins.share()?);
        Ok(())
    }

    /// What is wrong with the pins of the maps.
    pub fn differences(&self, pins: &PinDir) -> Vec<Difference> {
        let found = self.maps.iter().filter_map(|map| {
            let pin = map.pin(pins, pins.services());
            repin::difference(&map.fd, &map.object(), &pin)
        });
        found.collect()
    }

    /// Puts back the pins of the maps.
    pub fn mend(&self, pins: &PinDir, mended: &mut Mended) {
        for map in &self.maps {
            let pin = map.pin(pins, pins.services());
            if let Some(difference) = repin::difference(&map.fd, &map.object(), &pin) {
                mended.note_pin(difference, repin::repin(&map.fd, &pin));
            }
        }
    }

    /// What is worth watching.
    pub fn figures(&self) -> Vec<Figure> {
        figures::figures(&self.follower)
    }

    /// Its maps.
    pub fn maps(&self) -> &[HeldMap] {
        &self.maps
    }
}

/// What the follower goes by.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The addresses by which the cluster knows the node.
    node: Vec<IpAddr>,
    /// Addresses of Services that it may have, and other nodes too.
    virtual_addresses: OrdSet<IpAddr>,
    /// Endpoints on this node that see it in the place of clients.
    masqueraded: OrdSet<IpAddr>,
    /// Devices from which pods come: no client outside does.
    pods: Option<settings::PodDevices>,
    settings: proxy_common::track::Settings,
}

fn wanted(
    state: &NodeState,
    options: &EbpfOptions,
    beneath: PacketLayer,
    idle: &Idle,
    addresses: &mut Addresses,
) -> Wanted {
    let endpoints = addresses.endpoints.of(state).clone();
    Wanted {
        node: state.node.addresses().to_vec(),
        virtual_addresses: addresses.virtual_ones.of(state).clone(),
        // With the client's address, they need nothing else.
        masqueraded: if options.keep_client_address {
            OrdSet::new()
        } else {
            endpoints
        },
        pods: settings::pod_devices(state),
        settings: settings::settings(state, options, beneath, idle),
    }
}
