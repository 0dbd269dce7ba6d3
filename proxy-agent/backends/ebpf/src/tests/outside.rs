//! Clients outside: what the programs on devices make of maps in memory, and what states want.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use proxy_common::{
    address,
    affinity::{AffinityValue, ClientKey},
    endpoint::{MemberKey, SetKey, SetValue, SlotKey, SlotValue},
    frontend::{FrontendKey, FrontendValue},
    node::NodeAddressKey,
    packet::{Covers, Packet, Pod, Sum, Version, Words, parse::flags},
    ranges::{RangeKey, RangeValue},
    tables::{Admitting, ServiceTables},
    track::{
        Added, ConnectionKey, ConnectionValue, Connections, FragmentKey, FragmentValue, Fragments,
        MASQUERADED, Network, Setting, SourceKey, SourceValue, Sources, Table, Work, ingress,
        reason::Outcome as Done,
    },
};
use proxy_model::{
    NodeState, Protocol, ServicePortKey, ServiceState, SourceRanges,
    oracle::{self, Taken},
};

use super::{
    super::{
        entry::{Entry, Key},
        memory_maps::MemoryMaps,
    },
    fixtures::{dialled, owner},
};

/// Maps in memory as a program on a device reads them. No flow is known, and all begin.
struct Device<'a>(&'a MemoryMaps);

macro_rules! read {
    ($self:ident, $variant:ident, $key:expr) => {
        match $self.0.entries.get(&Key::$variant($key)) {
            Some(Entry::$variant(_, value)) => Some(*value),
            _ => None,
        }
    };
}

impl ServiceTables for Device<'_> {
    type Client = ClientKey;

    fn frontend(&self, key: &FrontendKey) -> Option<FrontendValue> {
        read!(self, Frontend, *key)
    }
    fn set(&self, set: u32) -> Option<SetValue> {
        read!(self, Set, SetKey { set })
    }
    fn slot(&self, key: &SlotKey) -> Option<SlotValue> {
        read!(self, Slot, *key)
    }
    fn is_node_address(&self, key: &NodeAddressKey) -> bool {
        read!(self, NodeAddress, *key).is_some()
    }
    fn member(&self, set: u32, endpoint: u32) -> Option<u32> {
        read!(self, Member, MemberKey { set, endpoint }).map(|value| value.index)
    }
    fn affinity(&self, _: &ClientKey) -> Option<AffinityValue> {
        None
    }
    fn keep(&self, _: &ClientKey, _: &AffinityValue, _: bool) -> bool {
        true
    }
    fn release(&self, _: &ClientKey) {}
    fn touch(&self, _: &ClientKey, _: u64) {}
    fn now(&self) -> u64 {
        0
    }
    fn random(&self) -> u32 {
        0
    }
}

impl Admitting for Device<'_> {
    fn range(&self, key: &RangeKey) -> Option<RangeValue> {
        let mut found = self.0.entries.values().filter_map(|entry| match entry {
            Entry::Range(range, value) => Some((range, value)),
            _ => None,
        });
        found
            .find(|(range, _)| range.contains(key.service, key.address))
            .map(|(_, value)| *value)
    }
}

impl Connections for Device<'_> {
    type At = ();

    fn find(&self, _: Table, _: &ConnectionKey, _: &mut ConnectionValue) -> Option<()> {
        None
    }
    fn has(&self, _: Table, _: &ConnectionKey) -> bool {
        false
    }
    fn has_serial(&self, _: Table, _: &ConnectionKey, _: u32) -> bool {
        false
    }
    fn add(&self, _: Table, _: &ConnectionKey, _: &ConnectionValue) -> Added {
        Added::Added
    }
    fn remove(&self, _: Table, _: &ConnectionKey) -> bool {
        false
    }
    fn set_last(&self, (): (), _: u32) {}
    fn set_state(&self, (): (), _: u32) {}
    fn set_sequence(&self, (): (), _: u32) {}
    fn set_acknowledged(&self, (): (), _: u32) {}
    fn set_refusal(&self, (): (), _: u32) {}
    fn set_since(&self, (): (), _: u32) {}
    fn count_flows(&self, _: i64) {}
    fn flows(&self) -> u64 {
        0
    }
    fn seconds(&self) -> u32 {
        1000
    }
    fn setting(&self, which: Setting) -> u32 {
        match which {
            Setting::MostFlows => 1,
            Setting::FirstPort | Setting::LastPort => 40_000,
            _ => 0,
        }
    }
    fn is_own(&self, _: &NodeAddressKey) -> bool {
        false
    }
    fn is_pod(&self, _: &Words) -> bool {
        false
    }
}

/// Every endpoint may be reached as from one address.
impl Sources for Device<'_> {
    fn source(&self, key: &SourceKey, value: &mut SourceValue) -> bool {
        let source = address::from_ip([192, 0, 2, 1].into());
        *value = SourceValue::new(key, source, [0xff; 16]);
        key.index == 0
    }
    fn is_reserved(&self, _: u16) -> bool {
        false
    }
}

impl Fragments for Device<'_> {
    fn remember(&self, _: &FragmentKey, _: &FragmentValue) {}
    fn recall(&self, _: &FragmentKey) -> Option<FragmentValue> {
        None
    }
}

/// A SYN over IPv4. Its sums are nobody's business here.
struct Syn([u8; 40]);

impl Syn {
    fn new(from: IpAddr, to: SocketAddr) -> Self {
        let mut bytes = [0; 40];
        bytes[0] = 0x45;
        bytes[3] = 40;
        bytes[9] = 6;
        for (at, address) in [(12, from), (16, to.ip())] {
            bytes[at..at + 4].copy_from_slice(&address::from_ip(address)[12..]);
        }
        bytes[20..22].copy_from_slice(&40000_u16.to_be_bytes());
        bytes[22..24].copy_from_slice(&to.port().to_be_bytes());
        bytes[32] = 0x50;
        bytes[33] = u8::try_from(flags::SYN).unwrap();
        Self(bytes)
    }

    fn destination(&self) -> SocketAddr {
        let byte = |at: usize| self.0[at];
        let port = u16::from_be_bytes([byte(22), byte(23)]);
        SocketAddr::from(([byte(16), byte(17), byte(18), byte(19)], port))
    }
}

impl Network for Syn {
    fn find_way(&self, work: &mut Work) {
        work.second.device = 1;
    }
    fn has_socket(&self, _: &mut Work) -> bool {
        false
    }
}

impl Packet for Syn {
    fn read<T: Pod>(&self, at: u32) -> Option<T> {
        let bytes = self.0.get(at as usize..)?.get(..size_of::<T>())?;
        Some(bytemuck::pod_read_unaligned(bytes))
    }
    fn write<T: Pod>(&mut self, at: u32, value: &T) -> bool {
        let bytes = bytemuck::bytes_of(value);
        self.0[at as usize..][..bytes.len()].copy_from_slice(bytes);
        true
    }
    fn fix_sum(&mut self, _: u32, _: &Words, _: &Words, _: Covers, _: Sum) -> bool {
        true
    }
    fn fix_sum_half(&mut self, _: u32, _: u16, _: u16, _: Sum) -> bool {
        true
    }
}

/// A client outside, and what it dials.
#[derive(Debug, Clone, Copy)]
pub struct Dial {
    pub from: IpAddr,
    pub key: FrontendKey,
}

impl Dial {
    fn to(&self) -> SocketAddr {
        SocketAddr::new(address::to_ip(self.key.address), self.key.port)
    }

    fn packet(&self) -> oracle::Packet {
        oracle::Packet {
            source: self.from,
            destination: self.to(),
            protocol: Protocol::Tcp,
            interface: None,
        }
    }
}

/// Every frontend, dialled from inside and outside of ranges, and from its own address.
pub fn dials() -> impl Iterator<Item = Dial> {
    let clients = ["192.0.2.99", "198.19.0.1", "203.0.113.7", "203.0.113.200"];
    dialled().flat_map(move |key| {
        let clients = clients.map(|client| client.parse().unwrap());
        let all = clients.into_iter().chain([address::to_ip(key.address)]);
        all.map(move |from| Dial { from, key })
    })
}

/// Where the programs on devices send a client that has no flow yet, and whether its endpoint sees this node;
/// `None` if they pass it on.
pub fn led(maps: &MemoryMaps, dial: &Dial) -> Option<(SocketAddr, bool)> {
    let mut packet = Syn::new(dial.from, dial.to());
    let mut work = Work::default();
    let done = ingress::handle(&mut packet, Version::V4, &Device(maps), &mut work);
    let to = packet.destination();
    assert_eq!(
        done == Done::TRANSLATED,
        to != dial.to(),
        "{dial:?}: {done:?}"
    );
    assert!(!done.is_dropped(), "{dial:?}: {done:?}");
    (done == Done::TRANSLATED).then_some((to, work.value.owner == MASQUERADED))
}

/// Whether that is what `state` wants. `keeps`: endpoints on this node see clients outside.
pub fn is_wanted(
    state: &NodeState,
    keeps: bool,
    dial: &Dial,
    led: Option<(SocketAddr, bool)>,
) -> bool {
    match (oracle::taken_on_device(state, &dial.packet(), keeps), led) {
        (Ok(taken), Some(led)) => {
            let mut targets = taken.verdict.targets.iter().zip(taken.leads_to);
            targets.any(|(target, leads)| {
                leads && (target.address, target.masquerade.is_some()) == led
            })
        }
        (Ok(taken), None) => !taken.whatever_is_chosen(),
        (Err(_), led) => led.is_none(),
    }
}

/// Whether that may become of a client while `old` becomes `new`. It is led by a Service that has the
/// frontend before or after, to one of its endpoints, if one of the states admits the client. A Service
/// that gives the frontend up may do so by the ranges that it then has elsewhere. What is passed on,
/// the layer beneath decides: nothing that one Service takes before and after.
pub fn is_legal_between(
    states: [&NodeState; 2],
    keeps: bool,
    dial: &Dial,
    led: Option<(SocketAddr, bool)>,
) -> bool {
    let Some((to, _)) = led else {
        let [before, after] = states.map(|state| {
            let taken = oracle::taken_on_device(state, &dial.packet(), keeps).ok();
            let taken = taken.filter(Taken::whatever_is_chosen);
            taken.and_then(|_| owner(state, &dial.key))
        });
        return before.is_none() || before != after;
    };
    let holders: BTreeSet<_> = states.iter().filter_map(|s| owner(s, &dial.key)).collect();
    holders.iter().any(|holder| {
        let services = states.map(|state| state.services.get(holder));
        let mut leads = services.into_iter().flatten();
        leads.any(|service| may_lead(service, to))
            && states.iter().any(|state| admits(state, holder, dial))
    })
}

fn may_lead(service: &ServiceState, to: SocketAddr) -> bool {
    let local = service.local_endpoints.iter().flat_map(|set| set.iter());
    let all = service.cluster_endpoints.iter().flat_map(|set| set.iter());
    local.chain(all).any(|endpoint| endpoint.address == to)
}

fn admits(state: &NodeState, holder: &ServicePortKey, dial: &Dial) -> bool {
    let Some(service) = state.services.get(holder) else {
        return false;
    };
    let within =
        |ranges: &SourceRanges| ranges.ranges.iter().any(|range| range.contains(&dial.from));
    let is_balanced = dial.to().ip().to_string().starts_with("198.51.100.");
    match service.source_ranges.as_deref().filter(|_| is_balanced) {
        Some(ranges) => within(ranges),
        None => owner(state, &dial.key).as_ref() == Some(holder),
    }
}
