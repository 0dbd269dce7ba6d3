//! The two entries of a flow: made together, removed together, and mended where one is missing.

use super::{
    Added, ConnectionKey, ConnectionValue, Connections, DIALLED, INSIDE, MASQUERADED, Table, Work,
    reason::{Outcome, Reason},
    seen,
    segment::behind,
    snat,
};
use crate::packet::parse::flags;

/// Sets the other entry of the flow that `work.key` and `work.value` are of. What is written in place
/// begins anew.
// These are functions of their own in the programs: what they keep on the stack would stand there for
// every packet.
#[inline(never)]
pub fn turn(work: &mut Work) {
    let Work {
        key,
        value,
        other_key,
        other_value,
        ..
    } = work;
    other(key, value, other_key, other_value);
}

/// Sets `work.key` and `work.value` to the other entry of the flow that `work.other_key` and `work.found`
/// are of.
#[inline(never)]
pub fn turn_found(work: &mut Work) {
    let Work {
        key,
        value,
        other_key,
        found,
        ..
    } = work;
    other(other_key, found, key, value);
}

/// The other entry of a flow, as it must be.
#[inline(always)]
pub(crate) fn other(
    key: &ConnectionKey,
    value: &ConnectionValue,
    other_key: &mut ConnectionKey,
    other_value: &mut ConnectionValue,
) {
    set_ends(key, value, other_key, other_value);
    other_key.protocol = key.protocol;
    other_key.padding = 0;
    other_value.owner = value.owner;
    other_value.service = value.service;
    other_value.set = value.set;
    other_value.endpoint = value.endpoint;
    other_value.serial = value.serial;
    other_value.last = value.last;
    other_value.state = value.state_of(0);
    other_value.sequence = 0;
    other_value.acknowledged = 0;
    other_value.refusal = 0;
    other_value.since = value.since;
    other_value.seal(other_key);
}

/// Sets between whom the packet goes that goes the other way, where it is met, and to whom it is led there.
// Addresses are copied as they are: taken apart they would be put together byte by byte. A function of its own, that
// ends in one way for the verifier: it goes through what follows once.
#[inline(never)]
fn set_ends(
    key: &ConnectionKey,
    value: &ConnectionValue,
    other_key: &mut ConnectionKey,
    other_value: &mut ConnectionValue,
) {
    let there = &value.address;
    if key.role == DIALLED {
        other_key.set_ends((there, value.port), (&key.source, key.source_port));
        other_key.role = INSIDE;
        other_value.address = key.destination;
        other_value.port = key.destination_port;
    } else {
        other_key.set_ends(
            (&key.destination, key.destination_port),
            (there, value.port),
        );
        other_key.role = DIALLED;
        other_value.address = key.source;
        other_value.port = key.source_port;
    }
}

/// Looks up the other entry of the answered flow that `work.key` and `work.value` are of.
#[inline(always)]
pub(super) fn find_other<T: Connections>(tables: &T, work: &mut Work) -> Option<T::At> {
    turn(work);
    let Work {
        other_key, found, ..
    } = work;
    let at = tables.find(Table::Track, other_key, found)?;
    (work.found.serial == work.value.serial).then_some(at)
}

/// Looks up the flow's other entry, which may be another flow's.
#[inline(always)]
pub(super) fn is_there<T: Connections>(tables: &T, table: Table, work: &mut Work) -> bool {
    let Work {
        other_key, found, ..
    } = work;
    tables.find(table, other_key, found).is_some()
}

/// Removes both entries of the flow from `table`; what is asked for first goes first. An entry that
/// is another flow's by now stays.
#[inline(never)]
pub fn forget<T: Connections>(tables: &T, table: Table, work: &mut Work) {
    turn(work);
    let serial = work.value.serial;
    let (first, second) = if work.key.role == DIALLED {
        (&work.key, &work.other_key)
    } else {
        (&work.other_key, &work.key)
    };
    remove(tables, table, first, serial);
    remove(tables, table, second, serial);
    if work.value.owner == MASQUERADED && snat::is_known(tables, work) {
        snat::set_back(work);
        snat::clear(tables, work);
    }
}

/// Removes an entry of the flow with this serial.
#[inline(always)]
pub(super) fn remove<T: Connections>(tables: &T, table: Table, key: &ConnectionKey, serial: u32) {
    if tables.has_serial(table, key, serial)
        && tables.remove(table, key)
        && table == Table::Track
        && key.role == DIALLED
    {
        tables.count_flows(-1);
    }
}

/// Makes sure that the other entry of an answered flow is there. Whether the flow is still what its
/// entry says: otherwise its other end has become another flow's, or its second translation is gone, and this
/// entry goes.
///
/// Asked once a second of flows that are used, so that an entry lost in a race of which there can be
/// no end is back before anybody gives up.
#[inline(never)]
pub fn keep<T: Connections>(tables: &T, work: &mut Work) -> bool {
    turn(work);
    // Without, nobody knows which port it had.
    let goes_on = work.value.owner != MASQUERADED || snat::is_kept(tables, work);
    let is_there = tables
        .find(Table::Track, &work.other_key, &mut work.found)
        .is_some();
    if goes_on && !is_there {
        let added = tables.add(Table::Track, &work.other_key, &work.other_value);
        if added == Added::Added && work.other_key.role == DIALLED {
            tables.count_flows(1);
        }
        return true;
    }
    // One that does not hold was caught while it was written: the next second tells.
    let is_same = work.found.serial == work.value.serial || !work.found.holds_for(&work.other_key);
    if goes_on && is_same {
        return true;
    }
    let serial = work.value.serial;
    remove(tables, Table::Track, &work.key, serial);
    false
}

/// Makes an answered flow of one that was not: both entries in TRACK, the one that takes no new
/// packets first, then none in OPENING. Of two that do so at once, both succeed; a flow whose place
/// is taken does not. The other entry must be that of [`turn`].
#[inline(never)]
pub fn promote<T: Connections>(tables: &T, work: &mut Work, now: u32) -> Outcome {
    work.value.state = work.value.state_of(0);
    work.value.last = now;
    work.other_value.last = now;
    work.value.sequence = 0;
    work.other_value.sequence = 0;
    if work.key.role == DIALLED {
        // What a client acknowledges with, it begins with: that is what its endpoint expects.
        work.other_value.acknowledged = work.transport.sequence;
        work.other_value.sequence = work.transport.acknowledged;
        work.value.acknowledged = work.transport.acknowledged;
        work.value.sequence = behind(work);
        if work.transport.flags & flags::FIN != 0 {
            work.value.state = work.value.state_of(seen::FIN);
        }
    }
    if work.value.owner == MASQUERADED {
        let promoted = snat::promote(tables, work, now);
        if promoted != Outcome::TRANSLATED {
            return promoted;
        }
    }
    let serial = work.value.serial;
    let (dialled, inside) = if work.key.role == DIALLED {
        (
            (&work.key, &work.value),
            (&work.other_key, &work.other_value),
        )
    } else {
        (
            (&work.other_key, &work.other_value),
            (&work.key, &work.value),
        )
    };
    let added = tables.add(Table::Track, inside.0, inside.1);
    match added {
        Added::Full => return Outcome::dropped(Reason::TableFull),
        Added::Exists if !tables.has_serial(Table::Track, inside.0, serial) => {
            return Outcome::dropped(Reason::Superseded);
        }
        Added::Added | Added::Exists => {}
    }
    let failed = match tables.add(Table::Track, dialled.0, dialled.1) {
        Added::Added => {
            tables.count_flows(1);
            None
        }
        Added::Exists if !tables.has_serial(Table::Track, dialled.0, serial) => {
            Some(Reason::Superseded)
        }
        Added::Exists => None,
        Added::Full => Some(Reason::TableFull),
    };
    if let Some(reason) = failed {
        if added == Added::Added {
            tables.remove(Table::Track, inside.0);
        }
        return Outcome::dropped(reason);
    }
    tables.remove(Table::Opening, dialled.0);
    tables.remove(Table::Opening, inside.0);
    Outcome::TRANSLATED
}
