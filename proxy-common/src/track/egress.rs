//! What becomes of a packet that leaves by a device: replies of endpoints are sent as from the
//! frontend that the client dialled.

use super::{
    ConnectionKey, Connections, Fragments, INSIDE, Setting, TRANSLATED, Table, Work, anew, answer,
    direct,
    hooks::{Kind, later, moved, note, put, put_quoted, read, used},
    idle, pair,
    reason::{Outcome, Reason},
    seen,
    segment::is_bare,
};
use crate::{
    packet::{Packet, Version, parse::flags, quoted, rewrite::End},
    socket::{TCP, UDP},
};

/// Decides about a packet, and translates it.
#[inline(always)]
pub fn handle<P, T>(packet: &mut P, version: Version, tables: &T, work: &mut Work) -> Outcome
where
    P: Packet,
    T: Connections + Fragments,
{
    match read(packet, version, work) {
        Kind::Other => return Outcome::UNTOUCHED,
        Kind::Icmp => return error(packet, tables, work),
        Kind::Later => return later(packet, tables, work, End::Source),
        Kind::WithPorts => {}
    }
    work.key.set(&work.header, &work.transport, INSIDE);
    let end = frontend(tables, work);
    if end != Outcome::TRANSLATED {
        return end;
    }
    put(packet, tables, work, End::Source)
}

/// Sets the frontend that the packet answers for; otherwise says what becomes of it.
#[inline(always)]
fn frontend<T: Connections>(tables: &T, work: &mut Work) -> Outcome {
    let now = tables.seconds();
    if let Some(at) = tables.find(Table::Track, &work.key, &mut work.value)
        && work.value.holds_for(&work.key)
    {
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
    if work.key.protocol == TCP && work.transport.flags & (flags::SYN | flags::RST) == 0 {
        return if is_bare(work) {
            direct::objects(tables, work)
        } else {
            Outcome::UNTOUCHED
        };
    }
    let Some(at) = tables.find(Table::Opening, &work.key, &mut work.value) else {
        return if moved(tables, work) {
            Outcome::TRANSLATED
        } else {
            Outcome::UNTOUCHED
        };
    };
    if work.value.owner != TRANSLATED || !work.value.holds_for(&work.key) {
        return Outcome::UNTOUCHED;
    }
    if is_no_answer(tables, work, now) {
        return Outcome::UNTOUCHED;
    }
    tables.set_last(at, now);
    work.to = work.value.place();
    if work.key.protocol == UDP {
        answered_by_datagram(tables, at, work, now);
    } else if work.transport.flags & flags::SYN != 0 {
        answered(tables, at, work);
    }
    Outcome::TRANSLATED
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
fn error<P: Packet, T: Connections>(packet: &mut P, tables: &T, work: &mut Work) -> Outcome {
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
