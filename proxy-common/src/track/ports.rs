//! The address and the port that an endpoint sees in the place of a client.
//!
//! A port is taken for one endpoint: others see the same port of this node as one of another flow. The
//! sockets of this node and the layer beneath draw from the same ports. What this node listens on, or has a
//! connection to that endpoint from, is found by asking the kernel for a socket; for what else there may be
//! see [`foreign`](super::foreign).

use super::{
    Added, Connections, DIALLED, MOST_SOURCES, Network, SNAT, Setting, SourceKey, Sources, Table,
    Work, freed,
    reason::{Outcome, Reason},
    second::Second,
    snat,
};
use crate::{address, frontend::FrontendKey, packet::Version, tables::ServiceTables};

/// Ports that are looked at for one that no flow has: a range of as many is used up to the last free one. If there
/// is none, the flow of one may be over.
const TRIED: u32 = 12;
/// Of these, in one go, of which the first one that no flow has may be somebody else's.
const AT_ONCE: u32 = 4;
const _: () = assert!(TRIED.is_multiple_of(AT_ONCE));
/// From one to the next: a prime above any number of ports, so that all come up, and neighbours do not, which are
/// used together where a smaller range is.
const STRIDE: u32 = 104_729;

/// Adds the entry of replies to the flow of `work.key`, `work.value` and `work.second.forward`, with a port
/// that no other flow to its endpoint has, and sets the entry of requests. Sets `work.second.outcome`: what
/// keeps it from that, or `TRANSLATED`.
#[inline(never)]
pub(super) fn allocate<P, T>(packet: &P, tables: &T, work: &mut Work)
where
    P: Network,
    T: ServiceTables + Connections + Sources,
{
    packet.find_way(work);
    if work.second.device == 0 {
        work.second.outcome = Outcome::passed(Reason::NoRoute);
        return;
    }
    work.second.first_port = tables.setting(Setting::FirstPort);
    let last = tables.setting(Setting::LastPort);
    work.second.ports = last.wrapping_sub(work.second.first_port).wrapping_add(1);
    set_source(tables, work);
    if work.second.outcome != Outcome::TRANSLATED {
        return;
    }
    draw(packet, tables, work, Table::Opening);
}

/// Adds the entry of replies to `table`, by the key and the value of that of requests, whose port is set. Sets
/// `work.second.outcome`, too.
#[inline(always)]
pub(super) fn draw<P, T>(packet: &P, tables: &T, work: &mut Work, table: Table)
where
    P: Network,
    T: ServiceTables + Connections + Sources,
{
    set_start(tables, work);
    let mut tried = 0;
    while tried < TRIED && work.second.is_used != 0 {
        look_at_some(tables, work);
        tried += AT_ONCE;
        if work.second.is_used == 0 || tried == TRIED && freed::frees(tables, work) {
            look_at_others(packet, tables, work);
        }
    }
    take(packet, tables, work, table);
}

/// Sets `work.second.forward_value`: a flow that is sent as from the address of `device` that netfilter's
/// MASQUERADE would take (`inet_select_addr`, `ipv6_dev_get_saddr`). Sets `work.second.outcome` if there is
/// none.
#[inline(never)]
fn set_source<T: Sources>(tables: &T, work: &mut Work) {
    let Work { value, second, .. } = work;
    let to = &mut second.forward_value;
    (to.serial, to.last, to.since) = (value.serial, value.last, value.since);
    (to.service, to.set, to.endpoint) = (value.service, value.set, value.endpoint);
    (to.sequence, to.acknowledged, to.refusal) = (0, 0, 0);
    to.state = to.state_of(0);
    to.owner = SNAT;
    second.near = 0;
    second.outcome = Outcome::passed(Reason::NoSource);
    let mut index = 0;
    while index < MOST_SOURCES && consider(tables, work, index) {
        index += 1;
    }
}

/// Considers an address of the device. Whether there may be another one.
#[inline(never)]
fn consider<T: Sources>(tables: &T, work: &mut Work, index: u16) -> bool {
    let version = work.header.version;
    let Work { value, second, .. } = work;
    let source = &mut second.source;
    let key = SourceKey::new(second.device, version, index);
    if !tables.source(&key, source) || !source.holds_for(&key) {
        return false;
    }
    // One more than what is compared, so that the first one is chosen before any other.
    let near = 1 + match version {
        Version::V4 => u32::from(source.is_near(&second.hop)),
        Version::V6 => source.common_bits(&address::to_words(&value.address)),
    };
    if near > second.near {
        second.near = near;
        second.forward_value.address = source.address;
        second.outcome = Outcome::TRANSLATED;
    }
    true
}

/// Sets which port is looked at first: any.
#[inline(never)]
fn set_start<T: ServiceTables>(tables: &T, work: &mut Work) {
    let Second {
        forward,
        forward_value,
        back,
        start,
        is_used,
        ..
    } = &mut work.second;
    back.set_ends(
        (&forward.destination, forward.destination_port),
        (&forward_value.address, 0),
    );
    (back.protocol, back.role, back.padding) = (forward.protocol, DIALLED, 0);
    *start = tables.random();
    *is_used = 1;
}

/// Looks at the next ports, up to one that no flow has. Sets `work.second.is_used`.
// The verifier goes through each turn of a loop by itself, and through a loop of as many far more often.
#[inline(never)]
fn look_at_some<T: Connections + Sources>(tables: &T, work: &mut Work) {
    let Second {
        forward_value,
        back,
        first_port,
        ports,
        start,
        is_used,
        ..
    } = &mut work.second;
    let mut looked = 0;
    while looked < AT_ONCE {
        let port = match *ports {
            0 => 0,
            count => *first_port + *start % count,
        } as u16;
        *start = start.wrapping_add(STRIDE);
        back.destination_port = port;
        forward_value.port = port;
        let is_free = !tables.is_reserved(port)
            && !tables.has(Table::Opening, back)
            && !tables.has(Table::Track, back);
        if is_free {
            *is_used = 0;
            return;
        }
        looked += 1;
    }
}

/// Sets `work.second.is_used`: whether anything but a flow has the port of `work.second.forward_value`.
#[inline(never)]
fn look_at_others<P, T>(packet: &P, tables: &T, work: &mut Work)
where
    P: Network,
    T: ServiceTables + Sources,
{
    let is_used = is_reserved(tables, work) || packet.has_socket(work);
    work.second.is_used = is_used.into();
}

/// Takes the port of `work.second.forward_value`, if it is free.
#[inline(never)]
fn take<P, T>(packet: &P, tables: &T, work: &mut Work, table: Table)
where
    P: Network,
    T: Connections,
{
    work.second.outcome = taken(packet, tables, work, table);
}

#[inline(always)]
fn taken<P, T>(packet: &P, tables: &T, work: &mut Work, table: Table) -> Outcome
where
    P: Network,
    T: Connections,
{
    const NO: Outcome = Outcome::passed(Reason::NoPort);
    if work.second.is_used != 0 {
        return NO;
    }
    work.second.forward_value.seal(&work.second.forward);
    snat::set_back(work);
    let Second {
        back, back_value, ..
    } = &mut work.second;
    let other = match table {
        Table::Track => Table::Opening,
        Table::Opening => Table::Track,
    };
    match tables.add(table, back, back_value) {
        Added::Added => {}
        Added::Exists => return NO,
        Added::Full => return Outcome::passed(Reason::TableFull),
    }
    // A flow that is answered leaves OPENING once it is in TRACK. A socket that came meanwhile may have sent
    // before the entry was there to tell (`foreign`).
    if tables.has(other, back) || packet.has_socket(work) {
        tables.remove(table, &work.second.back);
        return NO;
    }
    Outcome::TRANSLATED
}

/// Whether the port is not to be used: by the operator's will, or because clients dial it.
#[inline(never)]
fn is_reserved<T: ServiceTables + Sources>(tables: &T, work: &Work) -> bool {
    let Work { key, second, .. } = work;
    let value = &second.forward_value;
    let dialled = FrontendKey::new(address::to_words(&value.address), value.port, key.protocol);
    value.port == 0
        || tables.is_reserved(value.port)
        || tables.frontend(&dialled).is_some()
        || tables.frontend(&dialled.of_node_port()).is_some()
}
