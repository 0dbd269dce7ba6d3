//! Frontends and endpoints that are there, and the maps that programs find. Addresses and ports differ
//! in few bits, so that a changed packet is often one of another flow.

use std::net::{IpAddr, SocketAddr};

use proxy_common::{
    address,
    frontend::{MASQUERADED, OUTSIDE_TO_CLUSTER, SCOPE_NODE},
    in_memory::{Bytes, Hook, World},
    node::NodeAddressKey,
    packet::{Version, rewrite::Place},
    socket::{TCP, UDP},
    track::{ConnectionKey, DIALLED, INSIDE, LEAVING, SNAT, reason::Outcome},
};

use super::fields::Side;

/// What is served in one IP version.
pub(super) struct Family {
    /// Leads anywhere.
    pub(super) frontend: &'static str,
    /// Leads a client where it led it before.
    pub(super) sticky: &'static str,
    /// Leads anywhere; endpoints see this node.
    pub(super) masqueraded: &'static str,
    /// The address that they see.
    pub(super) own: &'static str,
    /// A port of the node.
    pub(super) node: &'static str,
    /// The same on any address, as the map has it.
    any: &'static str,
    pub(super) endpoints: [&'static str; 3],
    /// The set of `frontend`; the next is that of the others.
    set: u32,
}

/// Of IPv4, and of IPv6.
pub(super) const FAMILIES: [Family; 2] = [
    Family {
        frontend: "192.0.2.10:80",
        sticky: "192.0.2.11:80",
        masqueraded: "192.0.2.12:80",
        own: "192.0.2.1:0",
        node: "192.0.2.8:81",
        any: "0.0.0.0:81",
        endpoints: ["10.1.0.1:8080", "10.1.0.2:8080", "10.1.0.3:8080"],
        set: 1,
    },
    Family {
        frontend: "[2001:db8::10]:80",
        sticky: "[2001:db8::11]:80",
        masqueraded: "[2001:db8::12]:80",
        own: "[2001:db8::1]:0",
        node: "[2001:db8::18]:81",
        any: "[::]:81",
        endpoints: ["[fd00::1]:8080", "[fd00::2]:8080", "[fd00::3]:8080"],
        set: 3,
    },
];

/// So few that a fuzzer reaches the end: of what begins, and, of an odd number, of half of a flow.
const OPENING: usize = 9;
const TRACK: usize = 7;
const MOST_FLOWS: u32 = 3;
/// From which endpoints are reached in the place of clients.
pub(super) const SOURCE_PORTS: [u16; 2] = [40_000, 40_003];
/// By which everything is sent to endpoints that see this node.
const WIRE: u32 = 3;

/// Longer than any flow is remembered, in seconds.
const FOREVER: u32 = 10_000;

/// All endpoints, as [`Site::lead`] takes them.
const ALL: u8 = 7;

/// The programs' other hook.
pub(super) fn other(hook: Hook) -> Hook {
    match hook {
        Hook::Ingress => Hook::Egress,
        Hook::Egress => Hook::Ingress,
        Hook::FromPod => Hook::ToPod,
        Hook::ToPod => Hook::FromPod,
    }
}

/// The maps.
pub(super) struct Site(World);

impl Default for Site {
    fn default() -> Self {
        let site = Self(World::default());
        for family in &FAMILIES {
            for protocol in [TCP, UDP] {
                site.0.serve(family.frontend, protocol, family.set);
                for at in [family.sticky, family.any] {
                    site.serve_others(at, protocol, family.set + 1);
                }
                let key = site.0.serve(family.masqueraded, protocol, family.set);
                site.0.put(key, |value| {
                    value.flags = OUTSIDE_TO_CLUSTER | MASQUERADED;
                    value.cluster_set = family.set;
                    value.local_set = 0;
                    value.service = 3;
                });
            }
            let address = address::from_ip(at(family.node).ip());
            site.0
                .maps(|maps| maps.node_addresses.push(NodeAddressKey { address }));
        }
        site.0.maps(|maps| {
            maps.opening.room = OPENING;
            maps.track.room = TRACK;
            maps.settings.most_flows = MOST_FLOWS;
            [maps.settings.first_port, maps.settings.last_port] = SOURCE_PORTS.map(u32::from);
        });
        let sources = FAMILIES.each_ref().map(|family| (family.own, 24));
        site.0.leave_by(WIRE, "203.0.113.1:0", &sources);
        site.lead(ALL);
        site
    }
}

impl Site {
    fn serve_others(&self, to: &str, protocol: u8, set: u32) {
        let mut key = self.0.serve(to, protocol, set);
        if at(to).ip().is_unspecified() {
            self.0.maps(|maps| maps.frontends.remove(&key));
            key.scope = SCOPE_NODE;
        }
        self.0.put(key, |value| {
            value.local_set = set;
            value.service = 2;
            value.affinity = 100;
        });
    }

    /// What becomes of a packet.
    pub(super) fn meets(&self, hook: Hook, version: Version, packet: &Bytes) -> (Outcome, Bytes) {
        hook.meets(&self.0.alone(), version, packet)
    }

    /// The same maps, with every endpoint: what is tried there is not known here.
    pub(super) fn copy(&self) -> Self {
        let copy = Self(World::of(self.0.maps(|maps| maps.clone())));
        copy.lead(ALL);
        copy
    }

    /// Makes these the endpoints: a bit for each.
    pub(super) fn lead(&self, mask: u8) {
        for family in &FAMILIES {
            let all = (0..).zip(family.endpoints);
            let all = all.filter(|(index, _)| mask & (1 << index) != 0);
            let left: Vec<_> = all.map(|(index, to)| (10 + index, to)).collect();
            self.0.set(family.set, &left);
            self.0.set(family.set + 1, &left);
        }
    }

    pub(super) fn pass(&self, seconds: u32) {
        self.0.pass(seconds);
    }

    pub(super) fn sweep(&self) {
        self.0.sweep();
    }

    /// Has flows begin no more, or again.
    pub(super) fn turn_leaving(&self) {
        self.0.maps(|maps| maps.settings.flags ^= LEAVING);
    }

    /// Whether this is dialled at a frontend; of any port, where there is none.
    pub(super) fn is_frontend((address, port): Side) -> bool {
        let mut all = FAMILIES.iter().flat_map(|family| {
            [
                family.frontend,
                family.sticky,
                family.masqueraded,
                family.node,
            ]
            .map(at)
        });
        all.any(|one| is_at(one, address, port))
    }

    /// Whether an endpoint is there, or was.
    pub(super) fn is_endpoint((address, port): Side) -> bool {
        let mut all = FAMILIES.iter().flat_map(|family| family.endpoints.map(at));
        all.any(|one| is_at(one, address, port))
    }

    /// Whether endpoints see this address in the place of clients.
    pub(super) fn is_own((address, _): Side) -> bool {
        FAMILIES.iter().any(|family| at(family.own).ip() == address)
    }

    /// Whether the endpoint of an answered flow sees `own` in the place of the client, and both entries that say so
    /// are there.
    pub(super) fn is_seen_as(&self, client: Side, own: Side, endpoint: Side, protocol: u8) -> bool {
        let [client, own, endpoint] = [client, own, endpoint].map(place);
        let forward = ConnectionKey::new(&client, &endpoint, protocol, INSIDE);
        let back = ConnectionKey::new(&endpoint, &own, protocol, DIALLED);
        self.has(&forward, own) && self.has(&back, client)
    }

    fn has(&self, key: &ConnectionKey, to: Place) -> bool {
        self.0
            .maps(|maps| maps.track.get(key).is_some_and(|value| value.place() == to))
    }

    /// Whether a flow is answered, and both of its entries are there.
    pub(super) fn is_tracked(
        &self,
        client: Side,
        frontend: Side,
        endpoint: Side,
        protocol: u8,
    ) -> bool {
        let [client, frontend, endpoint] = [client, frontend, endpoint].map(place);
        let dialled = ConnectionKey::new(&client, &frontend, protocol, DIALLED);
        let inside = ConnectionKey::new(&endpoint, &client, protocol, INSIDE);
        self.has(&dialled, endpoint) && self.has(&inside, frontend)
    }

    /// Asserts that no flow is half, and that each is counted once.
    pub(super) fn is_whole(&self) {
        self.0.maps(|maps| {
            assert_eq!(maps.halves(), []);
            let flows = usize::try_from(maps.flows).expect("no fewer than none");
            assert_eq!(flows, maps.dialled());
            assert_eq!(flows * 2, maps.track.keys().len());
        });
    }

    /// Asserts that nothing stays of what nobody uses.
    pub(super) fn ends(&self) {
        self.pass(FOREVER);
        self.sweep();
        // What is left now is the second translation of a flow that just ended.
        self.0.maps(|maps| {
            let owners = maps.track.keys().into_iter();
            let mut owners = owners.map(|key| maps.track.get(&key).map(|value| value.owner));
            assert!(owners.all(|owner| owner == Some(SNAT)));
        });
        self.sweep();
        self.is_whole();
        self.0
            .maps(|maps| assert_eq!((maps.flows, maps.track.keys()), (0, Vec::new())));
    }
}

/// An address and a port, of text.
pub(super) fn at(text: &str) -> SocketAddr {
    text.parse().expect("this is one")
}

fn is_at(one: SocketAddr, address: IpAddr, port: Option<u16>) -> bool {
    one.ip() == address && port.is_none_or(|port| port == one.port())
}

fn place((address, port): Side) -> Place {
    let address = address::to_words(&address::from_ip(address));
    Place::new(address, port.unwrap_or(0))
}
