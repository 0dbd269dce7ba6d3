//! A flow begins: its entries in OPENING, made so that of two packets of one flow, or of two flows that
//! would look the same behind the translation, one is first.

use super::{
    ALONE, Added, Connections, MASQUERADED, Network, Setting, Sources, Table, Work, answer, ended,
    hooks::moved,
    idle, owner, pair,
    reason::{Outcome, Reason},
    seen, snat,
};
use crate::{
    address,
    frontend::FrontendKey,
    node::NodeAddressKey,
    packet::is_same,
    socket::{TCP, UDP},
    tables::ServiceTables,
};

/// Seconds after which nobody waits for the answer to a datagram (the timeout of `resolv.conf(5)`).
const ANSWERED_WITHIN: u32 = 5;

/// Adds the first entry of the flow of `work.key` and `work.value`. Behind the translation no other flow may
/// look the same, so that its entry there comes first; of two packets of one flow, one succeeds, and the other
/// follows it. Sets `work.outcome`: `CLAIMED` once the entry is there.
#[inline(never)]
pub(super) fn claim<T: Connections>(tables: &T, work: &mut Work) {
    work.outcome = claimed(tables, work);
    if work.outcome == Outcome::passed(Reason::Collision) {
        work.collisions += 1;
    }
}

/// Ends the flow from the client's port to another frontend that has the place of this one behind the translation,
/// if it is over: another attempt finds it free then (`work.outcome`).
///
/// The layer beneath gives what it gets another port of the client, for the endpoint may know that port still.
/// So it is asked for that, where there is one, and the endpoint is to see the client.
#[inline(never)]
pub(super) fn make_way<T: Connections>(tables: &T, work: &mut Work) {
    let is_alone = tables.setting(Setting::Flags) & ALONE != 0;
    let is_masqueraded = work.value.owner == MASQUERADED;
    // What is left of a second translation, the later flow makes its own.
    if work.found.owner != work.value.owner
        || !(is_alone || is_masqueraded)
        || !work.found.holds_for(&work.other_key)
    {
        return;
    }
    let limit = match (is_alone && work.key.protocol == UDP, is_masqueraded) {
        // What the endpoint still answers goes to the port that this node had for the other flow.
        (true, true) => 0,
        (true, false) => ANSWERED_WITHIN,
        _ => tables.setting(Setting::UdpAnswered),
    };
    // There, as the stack has no room for it.
    work.second.others[0].0 = work.key;
    pair::turn_found(work);
    gives_way(tables, Table::Track, work, limit);
    gives_way(tables, Table::Opening, work, limit);
    work.key = work.second.others[0].0;
}

/// Removes the flow of `work.key`, and of `work.other_key` and `work.found` behind the translation, from `table` if it
/// is there and closed; where that is not to be seen, if it was silent for `limit` seconds.
#[inline(never)]
fn gives_way<T: Connections>(tables: &T, table: Table, work: &mut Work, limit: u32) {
    let serial = work.found.serial;
    if tables.find(table, &work.key, &mut work.value).is_none() || work.value.serial != serial {
        return;
    }
    let is_over = if table == Table::Track && work.key.protocol == TCP {
        ended::is_closed(&work.value, &work.found)
    } else {
        let now = tables.seconds();
        idle(now, work.value.last).min(idle(now, work.found.last)) >= limit
    };
    if is_over {
        pair::remove(tables, table, &work.key, serial);
        pair::remove(tables, table, &work.other_key, serial);
        work.outcome = Outcome::passed(Reason::Changed);
        work.collisions = 0;
    }
}

/// Adds the others, and sets where the packet goes.
// In parts: what each keeps on the stack stands there for what it calls.
#[inline(never)]
pub(super) fn enter<P, T>(packet: &P, tables: &T, work: &mut Work) -> Outcome
where
    P: Network,
    T: ServiceTables + Connections + Sources,
{
    work.outcome = Outcome::TRANSLATED;
    spare_frontends(tables, work);
    if work.outcome == Outcome::TRANSLATED && work.value.owner == MASQUERADED {
        // Before any other packet can follow the flow.
        snat::ensure(packet, tables, work);
        work.outcome = work.second.outcome;
    }
    if work.outcome == Outcome::TRANSLATED {
        publish(tables, work);
    }
    if work.outcome != Outcome::TRANSLATED && work.added == Added::Added {
        // What was made for a flow that does not begin.
        pair::forget(tables, Table::Opening, work);
    }
    if work.outcome == Outcome::CLAIMED {
        return Outcome::TRANSLATED;
    }
    owner::keep(tables, work)
}

/// Passes a packet on whose endpoint is a frontend: the layer beneath would take what is sent there for another
/// connection to a Service, where it translates but once itself.
#[inline(never)]
fn spare_frontends<T: ServiceTables>(tables: &T, work: &mut Work) {
    let address = work.value.address;
    let words = address::to_words(&address);
    let dialled = FrontendKey::new(words, work.value.port, work.key.protocol);
    let is_one = tables.frontend(&dialled).is_some()
        || tables.is_node_address(&NodeAddressKey { address })
            && tables.frontend(&dialled.of_node_port()).is_some();
    if is_one {
        work.outcome = Outcome::passed(Reason::Frontend);
    }
}

#[inline(always)]
fn claimed<T: Connections>(tables: &T, work: &mut Work) -> Outcome {
    pair::turn(work);
    answer::expect(work);
    if work.endpoint_before == work.value.endpoint {
        work.other_value.state = work.other_value.state_of(seen::FOLLOWS);
    }
    if tables
        .find(Table::Track, &work.other_key, &mut work.found)
        .is_some()
    {
        if !leads_here(work) {
            return Outcome::passed(Reason::Collision);
        }
        if is_moved(tables, work) {
            return Outcome::TRANSLATED;
        }
        // The rest of a flow of the same client that is over.
        tables.remove(Table::Track, &work.other_key);
    }
    work.added = tables.add(Table::Opening, &work.other_key, &work.other_value);
    match work.added {
        Added::Added => {
            let found = &mut work.found;
            if tables.find(Table::Track, &work.other_key, found).is_some() {
                tables.remove(Table::Opening, &work.other_key);
                return Outcome::passed(if leads_here(work) {
                    Reason::Changed
                } else {
                    Reason::Collision
                });
            }
        }
        Added::Exists => {
            let found = &mut work.found;
            let Some(inside) = tables.find(Table::Opening, &work.other_key, found) else {
                return Outcome::passed(Reason::Changed);
            };
            if !leads_here(work) {
                return owner::makes_room(tables, work);
            }
            // The same flow, of which the kernel needed the room of the other entry.
            answer::expect_another(tables, inside, work);
            pair::turn_found(work);
        }
        Added::Full => return Outcome::passed(Reason::TableFull),
    }
    Outcome::CLAIMED
}

/// The other entry, by which packets of the client find the flow; it may be there. Sets `work.outcome`:
/// `CLAIMED` if the packet follows another flow in its place.
#[inline(never)]
fn publish<T: Connections>(tables: &T, work: &mut Work) {
    work.outcome = published(tables, work);
}

#[inline(always)]
fn published<T: Connections>(tables: &T, work: &mut Work) -> Outcome {
    work.to = work.value.place();
    match tables.add(Table::Opening, &work.key, &work.value) {
        Added::Added => return Outcome::TRANSLATED,
        Added::Full => return Outcome::passed(Reason::TableFull),
        Added::Exists => {}
    }
    let found = tables.find(Table::Opening, &work.key, &mut work.found);
    if found.is_none() || !work.found.holds_for(&work.key) {
        return if moved(tables, work) {
            Outcome::TRANSLATED
        } else {
            Outcome::passed(Reason::Changed)
        };
    }
    if !work.found.is_translated() {
        return Outcome::passed(Reason::Beneath);
    }
    work.to = work.found.place();
    if work.found.serial == work.value.serial {
        Outcome::TRANSLATED
    } else {
        Outcome::CLAIMED
    }
}

/// Sets where the packet goes if another CPU is just making its flow an answered one. Whether it is:
/// such a flow is in TRACK before it leaves OPENING.
#[inline(never)]
fn is_moved<T: Connections>(tables: &T, work: &mut Work) -> bool {
    let found = &mut work.found;
    if tables.find(Table::Opening, &work.key, found).is_none()
        && tables.find(Table::Track, &work.key, found).is_none()
    {
        return false;
    }
    work.to = found.place();
    found.is_translated() && found.holds_for(&work.key)
}

/// Whether what was found in the place of a flow's other entry is of this client and frontend too.
#[inline(always)]
fn leads_here(work: &Work) -> bool {
    let (there, here) = (work.found.place(), work.key.destination());
    work.found.holds_for(&work.other_key)
        && work.found.is_translated()
        && there.port == here.port
        && is_same(&there.address, &here.address)
}
