//! What both directions have in common: what a packet is, how it is changed, and what is noted of it.

use super::{
    Connections, DIALLED, FragmentKey, FragmentValue, Fragments, INSIDE, SNAT, Table, Work, ended,
    idle, pair,
    reason::{Outcome, Reason},
    seen,
    segment::opens,
};
use crate::{
    address,
    packet::{
        Packet, Version, is_same,
        parse::{self, Header, Part, flags},
        quoted,
        rewrite::{End, readdress},
    },
    socket::{TCP, UDP},
};

/// Seconds that a host waits for the fragments of a datagram (RFC 8200 section 4.5; Linux waits for
/// those of IPv4 half as long). What numbers a datagram is used again.
const REASSEMBLED_WITHIN: u32 = 60;

/// Seconds by which one fragment overtakes another on its way, at most. As long, who forges a later one
/// keeps a datagram of that number from its endpoint.
const OVERTAKEN_WITHIN: u32 = 1;

/// What a packet is, to these programs.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Nothing that they know, or damaged.
    Other,
    /// A message of ICMP: it may be an error about another packet.
    Icmp,
    /// A later fragment: it has no ports.
    Later,
    /// TCP or UDP, with its ports.
    WithPorts,
}

/// Reads its headers into `work`.
#[inline(always)]
pub(super) fn read<P: Packet>(packet: &P, version: Version, work: &mut Work) -> Kind {
    if !parse::header(packet, version, 0, &mut work.header) {
        return Kind::Other;
    }
    if work.header.is_icmp() {
        return Kind::Icmp;
    }
    if !matches!(work.header.protocol, TCP | UDP) {
        return Kind::Other;
    }
    if work.header.part == Part::Later {
        return Kind::Later;
    }
    if work.header.read_transport(packet, &mut work.transport) {
        Kind::WithPorts
    } else {
        Kind::Other
    }
}

/// Puts `work.to` into the packet, and remembers where its other fragments go.
#[inline(always)]
pub(super) fn put<P, T>(packet: &mut P, tables: &T, work: &mut Work, end: End) -> Outcome
where
    P: Packet,
    T: Connections + Fragments,
{
    if work.header.part == Part::First && !remember(tables, work, end) {
        return Outcome::dropped(Reason::Fragment);
    }
    translated(readdress(
        packet,
        &work.header,
        &work.transport,
        end,
        &work.to,
    ))
}

/// Remembers where the other fragments of a datagram go. Whether it did: not if one of them was left to the
/// layer beneath.
#[inline(never)]
fn remember<T: Connections + Fragments>(tables: &T, work: &Work, end: End) -> bool {
    if is_late(tables, work, end) {
        return false;
    }
    let key = fragments_of(&work.header, end);
    let value = FragmentValue::new(&key, &work.to.address, tables.seconds());
    tables.remember(&key, &value);
    true
}

/// Whether a first fragment comes after a later one of its datagram, which was left to the layer beneath.
#[inline(never)]
pub(super) fn is_late<T: Connections + Fragments>(tables: &T, work: &Work, end: End) -> bool {
    let key = fragments_of(&work.header, end);
    recall(tables, &key, OVERTAKEN_WITHIN).is_some_and(|value| value.is_without_first())
}

/// What is known of a datagram for at most so many seconds.
#[inline(always)]
fn recall<T: Connections + Fragments>(
    tables: &T,
    key: &FragmentKey,
    within: u32,
) -> Option<FragmentValue> {
    tables
        .recall(key)
        .filter(|value| value.holds_for(key) && idle(tables.seconds(), value.since) <= within)
}

/// What became of a packet that was to be changed.
#[inline(always)]
pub(super) const fn translated(changed: bool) -> Outcome {
    if changed {
        Outcome::TRANSLATED
    } else {
        Outcome::dropped(Reason::NotChanged)
    }
}

/// What the fragments of this packet are remembered by.
#[inline(always)]
fn fragments_of(header: &Header, end: End) -> FragmentKey {
    let role = match end {
        End::Source => INSIDE,
        End::Destination => DIALLED,
    };
    FragmentKey::new(
        &header.source,
        &header.destination,
        header.identification,
        header.protocol,
        role,
    )
}

/// A later fragment goes where the first one went. Of one that came before it nobody can tell whose
/// it is: it is left to the layer beneath, and so is the first one then, or it is dropped.
#[inline(never)]
pub(super) fn later<P, T>(packet: &mut P, tables: &T, work: &mut Work, end: End) -> Outcome
where
    P: Packet,
    T: Connections + Fragments,
{
    let key = fragments_of(&work.header, end);
    let first = recall(tables, &key, REASSEMBLED_WITHIN);
    let Some(to) = first.filter(|value| !value.is_without_first()) else {
        let value = FragmentValue::without_first(&key, tables.seconds());
        tables.remember(&key, &value);
        return Outcome::UNTOUCHED;
    };
    work.to.address = address::to_words(&to.address);
    translated(readdress(
        packet,
        &work.header,
        &work.transport,
        end,
        &work.to,
    ))
}

/// Sets where the packet goes if another CPU made its flow an answered one just between the look into
/// TRACK and that into OPENING. Whether it did.
#[inline(never)]
pub(super) fn moved<T: Connections>(tables: &T, work: &mut Work) -> bool {
    let Some(at) = tables.find(Table::Track, &work.key, &mut work.value) else {
        return false;
    };
    if !work.value.holds_for(&work.key) {
        return false;
    }
    if work.value.owner < SNAT {
        note(tables, at, work, tables.seconds());
    }
    work.to = work.value.place();
    true
}

/// Notes that a packet used the entry. Whether it is still what it says.
#[inline(always)]
pub(super) fn used<T: Connections>(tables: &T, at: T::At, work: &mut Work, now: u32) -> bool {
    // Once a second: CPUs that share a flow must not fight over its entry.
    if work.value.last == now {
        return true;
    }
    tables.set_last(at, now);
    let is_kept = pair::keep(tables, work);
    if is_kept && work.key.protocol == TCP {
        ended::catch_up(tables, at, work);
    }
    is_kept
}

/// Notes what a packet says about the life of its connection, if it is of TCP.
#[inline(always)]
pub(super) fn note<T: Connections>(tables: &T, at: T::At, work: &mut Work, now: u32) {
    if work.key.protocol != TCP {
        return;
    }
    ended::follow(tables, at, work, now);
    let said = work.transport.flags;
    let before = work.value.seen();
    let mut after = before;
    let may_go_on = before & seen::BROKEN == 0 || ended::is_next(work);
    if !opens(said) && may_go_on {
        // What goes on after it was broken was not: anybody can send such a packet.
        after &= !(seen::RST | seen::BROKEN | seen::REFUSED);
    }
    if said & (flags::FIN | flags::RST) != 0 {
        after = ended::ends(tables, at, work, after);
    }
    if after != before {
        tables.set_state(at, work.value.state_of(after));
    }
}

/// Replaces one end of the packet that an error quotes, if `work.key` is that of a flow. The error
/// itself goes to whom the quoted packet was from, or comes from whom it was for.
#[inline(always)]
pub(super) fn put_quoted<P: Packet, T: Connections>(
    packet: &mut P,
    tables: &T,
    work: &mut Work,
    end: End,
) -> Outcome {
    if !is_owned(tables, Table::Track, work) && !is_owned(tables, Table::Opening, work) {
        return Outcome::UNTOUCHED;
    }
    if work.quoted.redirect != 0 {
        return Outcome::dropped(Reason::Redirect);
    }
    let (outer, own, turned) = match end {
        End::Source => (
            &work.header.destination,
            &work.quoted.header.source,
            End::Destination,
        ),
        End::Destination => (
            &work.header.source,
            &work.quoted.header.destination,
            End::Source,
        ),
    };
    // A router's error is the router's.
    let whole = is_same(outer, own).then_some(turned);
    work.to = work.value.place();
    translated(quoted::readdress(
        packet,
        &work.header,
        whole,
        &work.quoted,
        end,
        &work.to,
    ))
}

/// Whether the entry of `work.key` in `table` says what to put in packets.
#[inline(always)]
fn is_owned<T: Connections>(tables: &T, table: Table, work: &mut Work) -> bool {
    tables.find(table, &work.key, &mut work.value).is_some()
        && (work.value.is_translated() || work.value.owner >= SNAT)
        && work.value.holds_for(&work.key)
}
