//! The second translation of a flow whose endpoint is on another node and must see this one in the place
//! of the client ([`MASQUERADED`](super::MASQUERADED)).
//!
//! ```text
//!            egress, source replaced              ingress, destination replaced
//! request    client -> endpoint ──> node:port
//! reply                                           endpoint -> node:port ──> client
//! ```
//!
//! Two entries as of any flow ([`pair`](super::pair)), with the serial of the flow's own two. The one of replies is the
//! allocation of the port: of two flows that choose it for the same endpoint, one adds the entry. Between
//! both translations a packet is one of client and endpoint, so that each is undone where it was made.

use bytemuck::Zeroable as _;

use super::{
    Added, ConnectionKey, ConnectionValue, Connections, DIALLED, INSIDE, Network, SNAT, Setting,
    SourceValue, Sources, Table, Work, ended, idle,
    pair::other,
    ports,
    reason::{Outcome, Reason},
};
use crate::{node::NodeAddressKey, packet::Words, socket::UDP, tables::ServiceTables};

/// What is remembered of the second translation while one packet is looked at.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Second {
    /// Key of the entry of requests, at egress.
    pub forward: ConnectionKey,
    /// Its value.
    pub forward_value: ConnectionValue,
    /// Key of the entry of replies, at ingress.
    pub back: ConnectionKey,
    /// Its value.
    pub back_value: ConnectionValue,
    /// What was found instead.
    pub found: ConnectionValue,
    /// Entries of another flow, which may be over: that of its requests between both translations, that of its
    /// replies as they leave, and that of its requests as they come.
    pub others: [Entry; 3],
    /// The device by which requests leave.
    pub device: u32,
    /// The next hop there.
    pub hop: Words,
    /// One of the device's addresses.
    pub source: SourceValue,
    /// How near the address is that was chosen of these; 0 if none was.
    pub near: u32,
    /// The first of the ports that are chosen from,
    pub first_port: u32,
    /// how many these are,
    pub ports: u32,
    /// and which one is looked at next.
    pub start: u32,
    /// A flow has the port that was chosen, or not: 1 or 0.
    pub is_used: u32,
    /// What became of the attempt to take a port.
    pub outcome: Outcome,
    /// What the kernel is asked, and answers.
    pub asked: [u64; 8],
}

impl Second {
    /// Nothing was looked up yet.
    pub(super) fn none() -> Self {
        let (key, value) = (ConnectionKey::zeroed(), ConnectionValue::zeroed());
        Self {
            forward: key,
            forward_value: value,
            back: key,
            back_value: value,
            found: value,
            others: [(key, value); 3],
            device: 0,
            hop: [0; 4],
            source: SourceValue::zeroed(),
            near: 0,
            first_port: 0,
            ports: 0,
            start: 0,
            is_used: 0,
            outcome: Outcome::UNTOUCHED,
            asked: [0; 8],
        }
    }
}

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

/// Whether an entry of TRACK, of `work.key` and `work.value`, is of the second translation of a flow that is
/// not there any more. One that was just made may come before its flow.
#[inline(never)]
pub(super) fn is_left<T: Connections>(tables: &T, work: &mut Work) -> bool {
    let Work {
        key, value, second, ..
    } = work;
    if key.role == INSIDE {
        (second.forward, second.forward_value) = (*key, *value);
        set_back(work);
    } else {
        (second.back, second.back_value) = (*key, *value);
        set_forward_of(work);
    }
    let Second {
        forward,
        back_value,
        others: [_, inside, _],
        ..
    } = &mut work.second;
    turn_around(forward, &mut inside.0);
    is_orphan(tables, &inside.0, back_value.serial, back_value.last)
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

/// Frees the port of `work.second.back`, if its flow is over.
#[inline(never)]
pub(super) fn frees<T: Connections>(tables: &T, work: &mut Work) -> bool {
    let Second { back, found, .. } = &mut work.second;
    // One that is not whole leads to no entry with its serial.
    if tables.find(Table::Track, back, found).is_none() || found.owner != SNAT {
        return false;
    }
    let (serial, last) = (work.second.found.serial, work.second.found.last);
    set_others(work);
    let Second {
        back,
        others: [forward, inside, dialled],
        found,
        ..
    } = &mut work.second;
    turn_around(&forward.0, &mut inside.0);
    if !is_orphan(tables, &inside.0, serial, last) {
        if !is_over(tables, inside, dialled, found) {
            return false;
        }
        // What takes packets of the client goes first.
        remove(tables, Table::Track, &dialled.0, serial);
        remove(tables, Table::Track, &inside.0, serial);
    }
    remove(tables, Table::Track, &forward.0, serial);
    remove(tables, Table::Track, back, serial);
    true
}

/// An entry of a flow, with its key.
type Entry = (ConnectionKey, ConnectionValue);

/// Sets the entry of requests of the flow whose entry of replies was found in the place of this one's.
#[inline(never)]
fn set_others(work: &mut Work) {
    let Second {
        back,
        found,
        others: [forward, ..],
        ..
    } = &mut work.second;
    other(back, found, &mut forward.0, &mut forward.1);
}

/// Whether the flow is over of whose replies this is the entry in TRACK, at egress.
#[inline(always)]
fn is_over<T: Connections>(
    tables: &T,
    inside: &mut Entry,
    dialled: &mut Entry,
    found: &mut ConnectionValue,
) -> bool {
    if tables
        .find(Table::Track, &inside.0, &mut inside.1)
        .is_none()
    {
        return false;
    }
    other(&inside.0, &inside.1, &mut dialled.0, &mut dialled.1);
    if tables.find(Table::Track, &dialled.0, found).is_none() || found.serial != inside.1.serial {
        return false;
    }
    if inside.0.protocol == UDP {
        let now = tables.seconds();
        let silent = idle(now, inside.1.last).min(idle(now, found.last));
        return silent > tables.setting(Setting::UdpAnswered);
    }
    ended::is_closed(found, &inside.1)
}

/// Whether there is no flow with an entry of this key and serial, since a while.
#[inline(always)]
fn is_orphan<T: Connections>(tables: &T, inside: &ConnectionKey, serial: u32, last: u32) -> bool {
    !tables.has_serial(Table::Track, inside, serial)
        && !tables.has_serial(Table::Opening, inside, serial)
        && idle(tables.seconds(), last) > tables.setting(Setting::TcpReset)
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
fn set_forward_of(work: &mut Work) {
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
#[inline(never)]
fn remove<T: Connections>(tables: &T, table: Table, key: &ConnectionKey, serial: u32) {
    if tables.has_serial(table, key, serial)
        && tables.remove(table, key)
        && table == Table::Track
        && key.role == DIALLED
    {
        tables.count_flows(-1);
    }
}
