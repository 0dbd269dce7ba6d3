//! The second translation of a flow whose endpoint, in a pod of this node or on another one, must see this node in
//! the place of the client ([`MASQUERADED`](super::MASQUERADED)). It is made on the device that leads there.
//!
//! ```text
//!            egress, source replaced              ingress, destination replaced
//! request    client -> endpoint ──> node:port
//! reply                                           endpoint -> node:port ──> client
//! ```
//!
//! Two entries as of any flow (the module `pair`), with the serial of the flow's own two. The one of
//! replies is the allocation of the port: of two flows that choose it for the same endpoint, one adds the entry. Between
//! both translations a packet is one of client and endpoint, so that each is undone where it was made.

use super::{
    Added, ConnectionKey, Connections, DIALLED, INSIDE, Network, SNAT, Sources, Table, Work,
    pair::{self, other},
    ports,
    reason::{Outcome, Reason},
    second::Second,
};
use crate::{node::NodeAddressKey, tables::ServiceTables};

/// Makes sure that the endpoint of the flow of `work.key` (from a client, at ingress) and `work.value` sees
/// this node. Sets `work.second.outcome`: what keeps it from that, or `TRANSLATED`.
// What is returned the verifier knows, and it would go through all that follows once for each outcome.
#[inline(never)]
pub(super) fn ensure<P, T>(packet: &P, tables: &T, work: &mut Work)
where
    P: Network,
    T: ServiceTables + Connections + Sources,
{
    work.second.outcome = Outcome::TRANSLATED;
    if is_there(tables, work) {
        return;
    }
    // Of an earlier flow between the two, if of any.
    clear(tables, work);
    ports::allocate(packet, tables, work);
    if work.second.outcome == Outcome::TRANSLATED {
        add_forward(tables, work, Table::Opening);
    }
}

/// Adds the entry of requests, once that of replies is there. Sets `work.second.outcome`.
#[inline(never)]
pub(super) fn add_forward<T: Connections>(tables: &T, work: &mut Work, table: Table) {
    let Second {
        forward,
        forward_value,
        back,
        outcome,
        ..
    } = &mut work.second;
    let serial = forward_value.serial;
    if tables.add(table, forward, forward_value) == Added::Added {
        if table == Table::Track || !tables.has(Table::Track, forward) {
            return;
        }
        tables.remove(table, forward);
    }
    // Another packet of the flow was faster.
    tables.remove(table, back);
    let is_there = tables.has_serial(Table::Opening, forward, serial)
        || tables.has_serial(Table::Track, forward, serial);
    if !is_there {
        *outcome = Outcome::passed(Reason::Changed);
    }
}

/// Whether the second translation of the flow is there, in either table. Otherwise `work.second` has what there
/// is for another flow, if its serial is not 0.
#[inline(never)]
fn is_there<T: Connections>(tables: &T, work: &mut Work) -> bool {
    set_forward(work);
    if let Some(table) = find(tables, work) {
        take_found(work);
        restore(tables, table, work)
    } else {
        work.second.forward_value.serial = 0;
        false
    }
}

/// The same for an answered flow, of which both entries are in TRACK. One of replies that is lost is put back.
#[inline(never)]
pub(super) fn is_kept<T: Connections>(tables: &T, work: &mut Work) -> bool {
    set_forward(work);
    let Second {
        forward,
        forward_value,
        ..
    } = &mut work.second;
    if tables.find(Table::Track, forward, forward_value).is_none()
        || !forward_value.holds_for(forward)
    {
        return false;
    }
    let address = forward_value.address;
    if !tables.is_own(&NodeAddressKey { address }) {
        // The endpoint's answers go elsewhere.
        return false;
    }
    set_back(work);
    restore(tables, Table::Track, work)
}

/// Moves it to TRACK, as the flow is answered: before the flow itself, so that no packet of an answered one
/// leaves without it.
#[inline(never)]
pub(super) fn promote<T: Connections>(tables: &T, work: &mut Work, now: u32) -> Outcome {
    set_forward(work);
    let table = find(tables, work);
    let Some(table) = table.filter(|_| work.second.found.serial == work.value.serial) else {
        return Outcome::dropped(Reason::Superseded);
    };
    take_found(work);
    if table == Table::Track {
        // Another CPU was faster, or will be done with the other one at once.
        return if restore(tables, table, work) {
            Outcome::TRANSLATED
        } else {
            Outcome::dropped(Reason::Superseded)
        };
    }
    let serial = work.value.serial;
    let Second {
        forward,
        forward_value,
        back,
        back_value,
        ..
    } = &mut work.second;
    forward_value.last = now;
    back_value.last = now;
    match tables.add(Table::Track, back, back_value) {
        Added::Added => tables.count_flows(1),
        Added::Full => return Outcome::dropped(Reason::TableFull),
        Added::Exists if tables.has_serial(Table::Track, back, serial) => {}
        Added::Exists => return Outcome::dropped(Reason::Superseded),
    }
    if tables.add(Table::Track, forward, forward_value) == Added::Full {
        remove(tables, Table::Track, back, serial);
        return Outcome::dropped(Reason::TableFull);
    }
    tables.remove(Table::Opening, forward);
    tables.remove(Table::Opening, back);
    Outcome::TRANSLATED
}

/// Whether the flow of `work.key` and `work.value` has a second translation; if so, `work.second` has one of its
/// entries.
#[inline(never)]
pub(super) fn is_known<T: Connections>(tables: &T, work: &mut Work) -> bool {
    set_forward(work);
    let Work { value, second, .. } = work;
    let Second {
        forward,
        forward_value,
        ..
    } = second;
    // With this serial, it is whole, or it is not removed.
    for table in [Table::Track, Table::Opening] {
        if tables.find(table, forward, forward_value).is_some()
            && forward_value.serial == value.serial
        {
            return true;
        }
    }
    false
}

/// Removes both entries of `work.second`, if any, from both tables.
#[inline(never)]
pub(super) fn clear<T: Connections>(tables: &T, work: &mut Work) {
    let serial = work.second.forward_value.serial;
    if serial == 0 {
        return;
    }
    let Second { forward, back, .. } = &work.second;
    for table in [Table::Track, Table::Opening] {
        remove(tables, table, forward, serial);
        remove(tables, table, back, serial);
    }
}

/// Sets `work.second.forward`: from the client to the endpoint.
#[inline(always)]
fn set_forward(work: &mut Work) {
    let Work {
        key, value, second, ..
    } = work;
    let forward = &mut second.forward;
    if key.role == DIALLED {
        forward.set_ends((&key.source, key.source_port), (&value.address, value.port));
    } else {
        forward.set_ends(
            (&key.destination, key.destination_port),
            (&key.source, key.source_port),
        );
    }
    forward.protocol = key.protocol;
    forward.role = INSIDE;
    forward.padding = 0;
}

/// The key of packets that go the other way, at the same hook.
#[inline(always)]
pub(super) const fn turn_around(key: &ConnectionKey, other: &mut ConnectionKey) {
    other.set_ends(
        (&key.destination, key.destination_port),
        (&key.source, key.source_port),
    );
    other.protocol = key.protocol;
    other.role = key.role;
    other.padding = 0;
}

/// Where `work.second.forward` is, with what `work.second.found` is then.
#[inline(always)]
fn find<T: Connections>(tables: &T, work: &mut Work) -> Option<Table> {
    let Second { forward, found, .. } = &mut work.second;
    // What leaves OPENING between the two looks is in TRACK before.
    [Table::Opening, Table::Track].into_iter().find(|table| {
        tables.find(*table, forward, found).is_some()
            && found.holds_for(forward)
            && found.owner == SNAT
    })
}

/// Takes over what [`find`] found, and sets the other entry.
#[inline(always)]
fn take_found(work: &mut Work) {
    work.second.forward_value = work.second.found;
    set_back(work);
}

/// Sets the entry of replies by that of requests.
#[inline(never)]
pub(super) fn set_back(work: &mut Work) {
    let Second {
        forward,
        forward_value,
        back,
        back_value,
        ..
    } = &mut work.second;
    other(forward, forward_value, back, back_value);
}

/// Sets the entry of requests by that of replies.
#[inline(never)]
pub(super) fn set_forward_of(work: &mut Work) {
    let Second {
        forward,
        forward_value,
        back,
        back_value,
        ..
    } = &mut work.second;
    other(back, back_value, forward, forward_value);
}

/// Whether what was found in `table` is this flow's, and whole: an entry of replies that the kernel
/// needed the room of comes back.
#[inline(always)]
fn restore<T: Connections>(tables: &T, table: Table, work: &mut Work) -> bool {
    let serial = work.value.serial;
    if work.second.forward_value.serial != serial {
        return false;
    }
    let Second {
        back, back_value, ..
    } = &mut work.second;
    if tables.has(Table::Track, back) {
        return tables.has_serial(Table::Track, back, serial);
    }
    match tables.add(table, back, back_value) {
        Added::Added if table == Table::Track => {
            tables.count_flows(1);
            true
        }
        // As where it was allocated.
        Added::Added if tables.has(Table::Track, back) => {
            tables.remove(table, back);
            tables.has_serial(Table::Track, back, serial)
        }
        Added::Added => true,
        // Another CPU may just have made it an answered flow.
        Added::Exists => {
            tables.has_serial(table, back, serial) || tables.has_serial(Table::Track, back, serial)
        }
        Added::Full => false,
    }
}

/// Removes an entry with this serial.
// A function of its own here: it is called for each of four entries.
#[inline(never)]
pub(super) fn remove<T: Connections>(tables: &T, table: Table, key: &ConnectionKey, serial: u32) {
    pair::remove(tables, table, key, serial);
}
