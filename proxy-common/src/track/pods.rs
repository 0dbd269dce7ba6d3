//! What becomes of packets on the device of a pod: it sees this node in the place of a client outside, by the
//! second translation of the flow ([`snat`](super::snat)). The first one is made where clients come from, and
//! nothing begins here: what pods dial is decided when they do, or beneath.

use super::{
    Connections, DIALLED, FOREIGN, Fragments, INSIDE, Network, SNAT, Sources, Table, Work, egress,
    foreign,
    hooks::{Kind, later, put, read},
    ingress,
    reason::Outcome,
    segment::is_bare,
};
use crate::{
    packet::{Packet, Version, rewrite::End},
    tables::ServiceTables,
};

/// Decides about a packet that the pod sent, and translates it.
#[inline(always)]
pub fn from<P, T>(packet: &mut P, version: Version, tables: &T, work: &mut Work) -> Outcome
where
    P: Packet,
    T: Connections + Fragments,
{
    match read(packet, version, work) {
        Kind::Other => return Outcome::UNTOUCHED,
        Kind::Icmp => return ingress::error(packet, tables, work),
        Kind::Later => return later(packet, tables, work, End::Destination),
        Kind::WithPorts => {}
    }
    work.key.set(&work.header, &work.transport, DIALLED);
    let mut end = second(tables, work);
    if end == Outcome::CLAIMED {
        end = egress::returns(tables, work);
    }
    if end != Outcome::TRANSLATED {
        return end;
    }
    put(packet, tables, work, End::Destination)
}

/// Decides about a packet that is sent to the pod, and translates it.
#[inline(always)]
pub fn to<P, T>(packet: &mut P, version: Version, tables: &T, work: &mut Work) -> Outcome
where
    P: Packet + Network,
    T: ServiceTables + Connections + Fragments + Sources,
{
    match read(packet, version, work) {
        Kind::Other => return Outcome::UNTOUCHED,
        Kind::Icmp => return egress::error(packet, tables, work),
        Kind::Later => return later(packet, tables, work, End::Source),
        Kind::WithPorts => {}
    }
    work.key.set(&work.header, &work.transport, INSIDE);
    let mut end = second(tables, work);
    if end == Outcome::CLAIMED {
        end = Outcome::TRANSLATED;
    } else if end == Outcome::UNTOUCHED && egress::may_collide(work) {
        end = foreign::moves(packet, tables, work);
    }
    if end != Outcome::TRANSLATED {
        return end;
    }
    put(packet, tables, work, End::Source)
}

/// Sets where a packet of a second translation goes: `TRANSLATED`, or `CLAIMED` if the flow is not answered
/// yet.
#[inline(always)]
fn second<T: Connections>(tables: &T, work: &mut Work) -> Outcome {
    if in_track(tables, work) {
        return Outcome::TRANSLATED;
    }
    // Nothing else is translated before the flow is answered, see there.
    if !egress::may_answer(work) && !is_bare(work) {
        return Outcome::UNTOUCHED;
    }
    if in_opening(tables, work) {
        return Outcome::CLAIMED;
    }
    // Another CPU may have moved it between the two looks.
    if in_track(tables, work) {
        Outcome::TRANSLATED
    } else {
        Outcome::UNTOUCHED
    }
}

#[inline(never)]
fn in_opening<T: Connections>(tables: &T, work: &mut Work) -> bool {
    let found = tables.find(Table::Opening, &work.key, &mut work.value);
    if found.is_none() || !work.value.holds_for(&work.key) || work.value.owner != SNAT {
        return false;
    }
    work.to = work.value.place();
    true
}

#[inline(never)]
fn in_track<T: Connections>(tables: &T, work: &mut Work) -> bool {
    let Some(at) = tables.find(Table::Track, &work.key, &mut work.value) else {
        return false;
    };
    if !work.value.holds_for(&work.key) || work.value.owner < SNAT {
        return false;
    }
    if work.value.owner == FOREIGN {
        foreign::used(tables, at, work);
    }
    work.to = work.value.place();
    true
}
