//! The first packet of a flow: whether this layer takes it, and to which endpoint it goes.
//!
//! A retransmitted packet goes to the same endpoint, and so does one that another CPU handles at the
//! same time: the choice is made by a hash over the packet's addresses and ports.

use super::{
    ConnectionKey, Connections, Fragments, LEAVING, MASQUERADED, Setting, TRANSLATED, Work, begin,
    direct,
    hooks::{is_late, moved},
    owner,
    reason::{Outcome, Reason},
};
use crate::{
    address,
    affinity::{
        ClientKey, RECORD,
        client::{LOOK_AGAIN, slot_of_client},
    },
    check,
    endpoint::{ON_NODE, SlotKey, pick},
    frontend::{
        self, FrontendKey, FrontendValue, MASQUERADED_ELSEWHERE, OUTSIDE_TO_CLUSTER,
        OUTSIDE_TO_LOCAL, RANGED,
    },
    node::{NodeAddressKey, as_dialled},
    packet::{is_same, parse::Part, rewrite::End},
    ranges::RangeKey,
    socket::{TCP, UDP},
    tables::{Admitting, ServiceTables},
};

/// How often it is tried to find an endpoint: again when the Service changed meanwhile, or when the
/// client's port is taken at the endpoint.
const ATTEMPTS: u32 = 3;

/// What becomes of a packet that no flow is known for: `CLAIMED` if it begins one. What is decided otherwise
/// is remembered. `is_new`: nothing was found, not even a flow that is over.
// Functions of their own in the programs: most packets need none of it.
#[inline(never)]
pub(super) fn open<T>(tables: &T, work: &mut Work, is_new: bool) -> Outcome
where
    T: Admitting + Connections + Fragments,
{
    if !find(tables, work) {
        return if work.key.protocol == UDP {
            direct::datagram(tables, work)
        } else {
            direct::connects(tables, work);
            Outcome::UNTOUCHED
        };
    }
    if is_new && moved(tables, work) {
        return Outcome::TRANSLATED;
    }
    work.outcome = Outcome::passed(Reason::Changed);
    work.collisions = 0;
    let mut attempt = 0;
    while attempt < ATTEMPTS && is_tried_again(work.outcome) {
        if attempt > 0 && !find(tables, work) {
            return Outcome::UNTOUCHED;
        }
        choose(tables, work);
        if work.outcome == Outcome::TRANSLATED {
            begin::claim(tables, work);
        }
        // Once: the verifier goes through each attempt by itself.
        if attempt == 0 && work.outcome == Outcome::passed(Reason::Collision) {
            begin::make_way(tables, work);
        }
        attempt += 1;
    }
    owner::keep(tables, work)
}

/// Whether another attempt may end otherwise: the Service changed meanwhile, or the endpoint is taken.
#[inline(always)]
fn is_tried_again(outcome: Outcome) -> bool {
    outcome == Outcome::passed(Reason::Changed) || outcome == Outcome::passed(Reason::Collision)
}

/// Sets `work.frontend`: what the packet is for. Whether there is such a frontend; its value need not
/// be whole.
#[inline(never)]
fn find<T: ServiceTables>(tables: &T, work: &mut Work) -> bool {
    let to = work.key.destination();
    let mut dialled = FrontendKey::new(to.address, to.port, work.key.protocol);
    let mut found = tables.frontend(&dialled);
    if found.is_none() {
        let (address, loopback) = as_dialled(&work.key.destination);
        if loopback || !tables.is_node_address(&address) {
            return false;
        }
        dialled = dialled.of_node_port();
        found = tables.frontend(&dialled);
    }
    let Some(found) = found else {
        return false;
    };
    work.frontend = found;
    work.frontend_is_whole = found.holds_for(&dialled).into();
    true
}

/// Sets `work.outcome`: whether this layer serves the packet for `work.frontend`; and `work.value`: the
/// flow to the endpoint that it goes to. After `work.collisions`, that is another one than before.
// What is returned the verifier knows, and it would go through all that follows once for each outcome.
#[inline(never)]
fn choose<T>(tables: &T, work: &mut Work)
where
    T: Admitting + Connections + Fragments,
{
    work.outcome = chosen(tables, work);
}

#[inline(always)]
fn chosen<T>(tables: &T, work: &mut Work) -> Outcome
where
    T: Admitting + Connections + Fragments,
{
    let collisions = work.collisions;
    if work.frontend_is_whole == 0 {
        return Outcome::passed(Reason::Changed);
    }
    let refused = refuses(tables, work);
    if refused != Outcome::TRANSLATED {
        return refused;
    }
    let FrontendValue {
        service, affinity, ..
    } = work.frontend;
    let chosen_from = work.frontend.set_of_outside();
    let Some(set) = tables.set(chosen_from) else {
        return Outcome::passed(Reason::Changed);
    };
    if !set.holds_for(chosen_from) {
        return Outcome::passed(Reason::Changed);
    }
    if set.count == 0 {
        return Outcome::passed(Reason::NoEndpoint);
    }
    let hash = hash(&work.key, tables.setting(Setting::Seed));
    let slot = if affinity != 0 {
        let client = ClientKey {
            address: work.key.source,
            service,
            claim: RECORD,
        };
        slot_of_client(tables, &client, affinity, chosen_from, set.count)
    } else if collisions >= set.count {
        return Outcome::passed(Reason::Collision);
    } else {
        let index = pick(hash, set.count) + collisions;
        u64::from(if index >= set.count {
            index - set.count
        } else {
            index
        })
    };
    if slot == LOOK_AGAIN {
        return Outcome::passed(Reason::Changed);
    }
    lead(tables, work, slot, hash)
}

/// Sets `work.value`: the flow to the endpoint of a slot of the set, if this layer leads there. `slot`: as
/// [`slot_of_client`] has it, without a number if any endpoint may be there.
// What it keeps on the stack need not stand there while a client's endpoint is looked up.
#[inline(never)]
fn lead<T>(tables: &T, work: &mut Work, slot: u64, hash: u32) -> Outcome
where
    T: Admitting + Connections,
{
    let (number, index) = ((slot >> 32) as u32, slot as u32);
    let chosen_from = work.frontend.set_of_outside();
    let Some(slot) = tables.slot(&SlotKey {
        set: chosen_from,
        index,
    }) else {
        return Outcome::passed(Reason::Changed);
    };
    if !slot.holds_for(chosen_from) || (number != 0 && slot.endpoint != number) {
        return Outcome::passed(Reason::Changed);
    }
    let flags = work.frontend.flags;
    // What stays in the network of this host passes no POSTROUTING, so that nothing masquerades it beneath
    // either.
    let is_masqueraded = if flags & frontend::MASQUERADED != 0 {
        let address = slot.address;
        !tables.is_own(&NodeAddressKey { address })
    } else {
        flags & MASQUERADED_ELSEWHERE != 0 && slot.flags & ON_NODE == 0
    };
    if !is_masqueraded && address::same(&slot.address, &work.key.source) {
        // It would answer itself, past this node.
        return Outcome::passed(Reason::LocalSource);
    }
    let now = tables.seconds();
    let value = &mut work.value;
    value.address = slot.address;
    value.port = slot.port;
    value.owner = if is_masqueraded {
        MASQUERADED
    } else {
        TRANSLATED
    };
    value.service = work.frontend.service;
    value.set = chosen_from;
    value.endpoint = slot.endpoint;
    // Another attempt with the same packet must be told apart.
    value.serial = hash ^ tables.random();
    value.last = now;
    value.state = value.state_of(0);
    value.sequence = 0;
    value.acknowledged = 0;
    value.refusal = 0;
    value.since = now;
    value.seal(&work.key);
    Outcome::TRANSLATED
}

/// Why the packet is passed on, if it is for something that this layer does not do.
#[inline(always)]
fn refuses<T: Admitting + Connections + Fragments>(tables: &T, work: &Work) -> Outcome {
    let flags = work.frontend.flags;
    Outcome::passed(if tables.setting(Setting::Flags) & LEAVING != 0 {
        Reason::Leaving
    } else if work.header.extended {
        Reason::Options
    } else if work.key.protocol == TCP && work.header.length > work.transport.header {
        Reason::FastOpen
    } else if work.header.part == Part::First && is_late(tables, work, End::Destination) {
        Reason::Fragment
    } else if flags & (OUTSIDE_TO_LOCAL | OUTSIDE_TO_CLUSTER) == 0 {
        Reason::Unsaid
    } else if flags & RANGED != 0 && !is_admitted(tables, work) {
        Reason::SourceRanges
    } else if is_own(work)
        || tables.is_pod(&work.header.source)
        || tables.is_node_address(&as_dialled(&work.key.source).0)
    {
        Reason::LocalSource
    } else if tables.flows() >= u64::from(tables.setting(Setting::MostFlows)) {
        Reason::TableFull
    } else {
        return Outcome::TRANSLATED;
    })
}

/// Whether the client is in a source range of the Service.
// A leaf, so that the key takes none of the stack of what is called otherwise.
#[inline(never)]
fn is_admitted<T: Admitting>(tables: &T, work: &Work) -> bool {
    let service = work.frontend.service;
    let key = RangeKey::of_client(service, work.header.source);
    match tables.range(&key) {
        Some(found) => found.holds_for(service),
        None => false,
    }
}

/// Whether the packet says that it comes from the very address that it goes to: this node alone may
/// say so, and whether ranges let it in is decided beneath.
#[inline(always)]
fn is_own(work: &Work) -> bool {
    is_same(&work.header.source, &work.header.destination)
}

/// A number that belongs to the packets of one client, port and frontend.
#[inline(always)]
fn hash(key: &ConnectionKey, seed: u32) -> u32 {
    let words: &[u32; 10] = bytemuck::cast_ref(key);
    let mut hash = check::check(*words) ^ seed;
    // Neighbouring ports must not go to neighbouring slots (the finalizer of MurmurHash3).
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x85eb_ca6b);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}
