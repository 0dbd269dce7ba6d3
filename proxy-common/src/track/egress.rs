//! What becomes of a packet that leaves by a device: replies of endpoints are sent as from the
//! frontend that the client dialled.

use super::{
    ConnectionKey, Connections, FOREIGN, Fragments, INSIDE, LEAST_SOURCE_PORT, Network, SNAT,
    Setting, Sources, Table, Work, anew, answer, direct, foreign,
    hooks::{Kind, later, moved, note, put, put_quoted, read, used},
    idle, pair,
    reason::{Outcome, Reason},
    seen,
    segment::is_bare,
    snat,
};
use crate::{
    packet::{Packet, Version, parse::flags, quoted, rewrite::End},
    socket::{TCP, UDP},
    tables::ServiceTables,
};

/// Decides about a packet, and translates it.
#[inline(always)]
pub fn handle<P, T>(packet: &mut P, version: Version, tables: &T, work: &mut Work) -> Outcome
where
    P: Packet + Network,
    T: ServiceTables + Connections + Fragments + Sources,
{
    match read(packet, version, work) {
        Kind::Other => return Outcome::UNTOUCHED,
        Kind::Icmp => return error(packet, tables, work),
        Kind::Later => return later(packet, tables, work, End::Source),
        Kind::WithPorts => {}
    }
    work.key.set(&work.header, &work.transport, INSIDE);
    let mut end = frontend(tables, work);
    if end == Outcome::UNTOUCHED && may_collide(work) {
        end = foreign::moves(packet, tables, work);
        if end == Outcome::UNTOUCHED {
            foreign::spares(tables, work);
        }
    }
    if end != Outcome::TRANSLATED {
        return end;
    }
    put(packet, tables, work, End::Source)
}

/// Whether a packet may be from a port that endpoints see in the place of a client's, or of another
/// foreign flow's.
#[inline(always)]
pub(super) const fn may_collide(work: &Work) -> bool {
    may_answer(work) && work.key.source_port >= LEAST_SOURCE_PORT
}

/// Sets the frontend that the packet answers for; otherwise says what becomes of it.
#[inline(always)]
fn frontend<T: Connections>(tables: &T, work: &mut Work) -> Outcome {
    let now = tables.seconds();
    if let Some(at) = tables.find(Table::Track, &work.key, &mut work.value)
        && work.value.holds_for(&work.key)
    {
        if work.value.owner >= SNAT {
            if work.value.owner == FOREIGN {
                foreign::used(tables, at, work);
            }
            work.to = work.value.place();
            return Outcome::TRANSLATED;
        }
        if !used(tables, at, work, now) {
            return Outcome::dropped(Reason::Superseded);
        }
        if work.key.protocol == TCP && work.transport.flags & flags::SYN != 0 {
            anew::offers(tables, at, work);
        }
        note(tables, at, work, now);
        work.to = work.value.place();
        return Outcome::TRANSLATED;
    }
    // Nothing else answers a client that has not answered itself.
    if !may_answer(work) {
        return if is_bare(work) {
            direct::objects(tables, work)
        } else {
            Outcome::UNTOUCHED
        };
    }
    match answers(tables, work) {
        Outcome::CLAIMED => first_answer(tables, work),
        Outcome::UNTOUCHED if moved(tables, work) => Outcome::TRANSLATED,
        outcome => outcome,
    }
}

/// Whether a packet answers for a frontend, with an entry in OPENING: `CLAIMED`; or is one of a client to an
/// endpoint that sees this node: `TRANSLATED`.
#[inline(never)]
fn answers<T: Connections>(tables: &T, work: &mut Work) -> Outcome {
    let found = tables.find(Table::Opening, &work.key, &mut work.value);
    if found.is_none() || !work.value.holds_for(&work.key) {
        return Outcome::UNTOUCHED;
    }
    work.to = work.value.place();
    if work.value.owner == SNAT {
        Outcome::TRANSLATED
    } else if work.value.is_translated() && !is_no_answer(tables, work, tables.seconds()) {
        Outcome::CLAIMED
    } else {
        Outcome::UNTOUCHED
    }
}

/// Notes such an answer.
#[inline(never)]
fn first_answer<T: Connections>(tables: &T, work: &mut Work) -> Outcome {
    let now = tables.seconds();
    if let Some(at) = tables.find(Table::Opening, &work.key, &mut work.value) {
        tables.set_last(at, now);
        if work.key.protocol == UDP {
            answered_by_datagram(tables, at, work, now);
        } else if work.transport.flags & flags::SYN != 0 {
            answered(tables, at, work);
        }
    }
    Outcome::TRANSLATED
}

/// What becomes of a packet that comes in for the port that a flow has, of `work.value` in OPENING, at its
/// endpoint: the client gets it if it answers for the frontend then, as it leaves. Anything else is of
/// another connection from that port, or of one that the endpoint did not forget yet, and is the stack's.
// In parts: what each keeps on the stack stands there for what it calls.
#[inline(never)]
pub(super) fn returns<T: Connections>(tables: &T, work: &mut Work) -> Outcome {
    work.second.back_value = work.value;
    pair::turn(work);
    snat::turn_around(&work.other_key, &mut work.key);
    let outcome = if may_answer(work) {
        answers(tables, work)
    } else if is_bare(work) {
        direct::objects(tables, work)
    } else {
        Outcome::UNTOUCHED
    };
    work.to = work.second.back_value.place();
    let answers = outcome == Outcome::CLAIMED
        // Another CPU may just have made it an answered flow.
        || outcome == Outcome::UNTOUCHED && tables.has(Table::Track, &work.key);
    if answers {
        Outcome::TRANSLATED
    } else {
        outcome
    }
}

/// Whether a packet may be the first answer to one of a client.
#[inline(always)]
pub(super) const fn may_answer(work: &Work) -> bool {
    work.key.protocol == UDP || work.transport.flags & (flags::SYN | flags::RST) != 0
}

/// Whether a packet that looks like an answer, in OPENING, is none: the endpoint talks to the client
/// itself.
#[inline(always)]
fn is_no_answer<T: Connections>(tables: &T, work: &Work, now: u32) -> bool {
    if work.key.protocol == UDP {
        idle(now, work.value.last) > tables.setting(Setting::UdpUnanswered)
    } else {
        !answer::is_answer(work)
    }
}

/// The endpoint takes a connection of TCP. The client's next packet makes the flow an answered one.
#[inline(never)]
fn answered<T: Connections>(tables: &T, at: T::At, work: &mut Work) {
    let before = work.value.seen();
    let mut after = before | seen::ANSWERED;
    let began = work.transport.sequence;
    let is_other = before & seen::ANSWERED != 0 && work.value.sequence != began;
    if before & seen::ANSWERED == 0 {
        tables.set_sequence(at, began);
    } else if is_other {
        after |= seen::AMBIGUOUS;
    }
    // The client's packet must find its way even if the kernel needed the room meanwhile. To add what is
    // there would take a place from another flow first: the kernel looks for the key once it has made
    // room.
    pair::turn(work);
    let Work {
        other_key, found, ..
    } = work;
    if let Some(dialled) = tables.find(Table::Opening, other_key, found) {
        if is_other && found.serial == work.value.serial {
            tables.set_sequence(dialled, began);
        }
    } else {
        if is_other {
            work.other_value.sequence = began;
        }
        tables.add(Table::Opening, &work.other_key, &work.other_value);
    }
    // Once the other number is there.
    if after != before {
        tables.set_state(at, work.value.state_of(after));
    }
}

/// The second answer of an endpoint makes a flow of UDP an answered one: one answer is what a forged
/// request gets.
#[inline(never)]
fn answered_by_datagram<T: Connections>(tables: &T, at: T::At, work: &mut Work, now: u32) {
    if work.value.seen() & seen::ANSWERED == 0 {
        tables.set_state(at, work.value.state_of(seen::ANSWERED));
        return;
    }
    pair::turn(work);
    // Where there is no room it goes on as it is.
    pair::promote(tables, work, now);
}

/// An error about a request reaches the client as one about what it sent.
#[inline(never)]
pub(super) fn error<P: Packet, T: Connections>(
    packet: &mut P,
    tables: &T,
    work: &mut Work,
) -> Outcome {
    let Work { header, quoted, .. } = work;
    if !quoted::read(packet, header, quoted) {
        return Outcome::UNTOUCHED;
    }
    // The packet that is quoted went the other way.
    work.key = ConnectionKey::new(
        &quoted.destination(),
        &quoted.source(),
        quoted.header.protocol,
        INSIDE,
    );
    put_quoted(packet, tables, work, End::Destination)
}
