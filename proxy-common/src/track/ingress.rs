//! What becomes of a packet that comes in on a device: requests to frontends are sent to endpoints.

use super::{
    Added, BENEATH, ConnectionKey, Connections, DIALLED, FOREIGN, Fragments, MASQUERADED, Network,
    SNAT, Setting, Sources, Table, Work, anew, answer, begin, egress, ended, foreign,
    hooks::{Kind, later, moved, note, put, put_quoted, read, used},
    idle, open, pair,
    reason::{Outcome, Reason},
    seen,
    segment::{behind, is_bare, opens},
};
use crate::{
    packet::{Packet, Version, parse::flags, quoted, rewrite::End},
    socket::{TCP, UDP},
    tables::{Admitting, ServiceTables},
};

/// Decides about a packet, and translates it.
#[inline(always)]
pub fn handle<P, T>(packet: &mut P, version: Version, tables: &T, work: &mut Work) -> Outcome
where
    P: Packet + Network,
    T: Admitting + Connections + Fragments + Sources,
{
    match read(packet, version, work) {
        Kind::Other => return Outcome::UNTOUCHED,
        Kind::Icmp => return error(packet, tables, work),
        Kind::Later => return later(packet, tables, work, End::Destination),
        Kind::WithPorts => {}
    }
    work.key.set(&work.header, &work.transport, DIALLED);
    let mut end = way(tables, work);
    if end == Outcome::CLAIMED {
        end = begin::enter(packet, tables, work);
    }
    if end != Outcome::TRANSLATED {
        return end;
    }
    put(packet, tables, work, End::Destination)
}

/// Sets where the packet goes; otherwise says what becomes of it.
#[inline(always)]
fn way<T>(tables: &T, work: &mut Work) -> Outcome
where
    T: Admitting + Connections + Fragments,
{
    let mut over = None;
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
        let outcome = tracked(tables, at, work);
        if outcome != Outcome::BEGINS {
            return outcome;
        }
        over = Some(Table::Track);
    } else if let Some(at) = tables.find(Table::Opening, &work.key, &mut work.value)
        && work.value.holds_for(&work.key)
    {
        if work.value.owner == SNAT {
            return egress::returns(tables, work);
        }
        let outcome = opening(tables, at, work);
        if outcome != Outcome::BEGINS {
            return outcome;
        }
        over = Some(Table::Opening);
    }
    if work.key.protocol == TCP && !opens(work.transport.flags) {
        return if over.is_none() && moved(tables, work) {
            Outcome::TRANSLATED
        } else {
            Outcome::UNTOUCHED
        };
    }
    work.endpoint_before = match over {
        Some(Table::Track) => work.value.endpoint,
        _ => 0,
    };
    if let Some(table) = over {
        pair::forget(tables, table, work);
    }
    open::open(tables, work, over.is_none())
}

/// What becomes of a packet of an answered flow.
#[inline(always)]
fn tracked<T>(tables: &T, at: T::At, work: &mut Work) -> Outcome
where
    T: ServiceTables + Connections,
{
    let now = tables.seconds();
    if work.key.protocol == UDP {
        let idle = idle(now, work.value.last);
        if (idle > tables.setting(Setting::UdpAnswered) && is_silent(tables, work, now))
            || !ended::is_member(tables, &work.value)
        {
            return Outcome::BEGINS;
        }
    } else if opens(work.transport.flags) {
        if ended::is_over(tables, work) {
            return Outcome::BEGINS;
        }
        tables.set_refusal(at, behind(work));
    } else if anew::may_complete(work) {
        anew::completes(tables, at, work);
    }
    if !used(tables, at, work, now) {
        return Outcome::dropped(Reason::Superseded);
    }
    note(tables, at, work, now);
    work.to = work.value.place();
    Outcome::TRANSLATED
}

/// Whether the endpoint of an answered flow of UDP said nothing for too long either.
#[inline(never)]
fn is_silent<T: Connections>(tables: &T, work: &mut Work, now: u32) -> bool {
    pair::find_other(tables, work).is_none()
        || idle(now, work.found.last) > tables.setting(Setting::UdpAnswered)
}

/// What becomes of a packet of a flow that is not answered yet.
#[inline(never)]
fn opening<T>(tables: &T, at: T::At, work: &mut Work) -> Outcome
where
    T: ServiceTables + Connections,
{
    let now = tables.seconds();
    let is_udp = work.key.protocol == UDP;
    let begins = is_udp || opens(work.transport.flags);
    let idle = idle(now, work.value.last);
    if work.value.owner == BENEATH {
        let stays = tables.setting(if is_udp {
            Setting::UdpAnswered
        } else {
            Setting::TcpBeneath
        });
        if begins && idle > stays {
            return Outcome::BEGINS;
        }
        tables.set_last(at, now);
        return Outcome::passed(Reason::Beneath);
    }
    if begins
        && (!ended::is_member(tables, &work.value)
            || (is_udp && idle > tables.setting(Setting::UdpUnanswered)))
    {
        return Outcome::BEGINS;
    }
    tables.set_last(at, now);
    pair::turn(work);
    let inside = tables.find(Table::Opening, &work.other_key, &mut work.found);
    let mut there = inside.is_some();
    if let Some(inside) = inside {
        if begins && work.found.serial == work.value.serial {
            answer::expect_another(tables, inside, work);
        }
    } else {
        answer::expect(work);
        // The kernel needed its room, and another flow may have taken its place; or another CPU has
        // just moved the flow. Only once it is added, nobody else takes the place any more.
        let added = tables.add(Table::Opening, &work.other_key, &work.other_value);
        there = pair::is_there(tables, Table::Track, work);
        if there && added == Added::Added {
            tables.remove(Table::Opening, &work.other_key);
        }
    }
    if there && work.found.serial != work.value.serial {
        tables.remove(Table::Opening, &work.key);
        return if begins {
            Outcome::BEGINS
        } else {
            Outcome::dropped(Reason::Superseded)
        };
    }
    if begins && work.value.owner == MASQUERADED {
        // The kernel may have needed the room of the other two entries.
        work.added = Added::Added;
        return Outcome::CLAIMED;
    }
    if there && !begins && work.transport.flags & flags::RST == 0 && completes(work) {
        let promoted = pair::promote(tables, work, now);
        if promoted != Outcome::TRANSLATED {
            return promoted;
        }
    } else if work.value.owner == MASQUERADED && !is_udp && !leaves_early(work) {
        return Outcome::dropped(Reason::Unanswered);
    }
    work.to = work.value.place();
    Outcome::TRANSLATED
}

/// Whether a packet of a flow that is not answered is found in OPENING as it leaves: others are not looked
/// for there, since nearly all that leave are of nobody here.
#[inline(always)]
const fn leaves_early(work: &Work) -> bool {
    work.transport.flags & (flags::SYN | flags::RST) != 0 || is_bare(work)
}

/// Whether a packet acknowledges what the endpoint began with: who only claims to be the client
/// cannot know that, and takes no room in TRACK.
#[inline(always)]
fn completes(work: &Work) -> bool {
    let Work {
        value: dialled,
        found: inside,
        ..
    } = work;
    let begun = work.transport.acknowledged.wrapping_sub(1);
    inside.seen() & seen::ANSWERED != 0
        && (begun == inside.sequence
            || (inside.seen() & seen::AMBIGUOUS != 0 && begun == dialled.sequence))
}

/// An error about a reply reaches the endpoint that sent it.
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
        DIALLED,
    );
    put_quoted(packet, tables, work, End::Source)
}
