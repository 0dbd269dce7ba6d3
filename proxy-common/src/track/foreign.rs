//! Flows of this node's own, or of what is masqueraded beneath, from a port that endpoints see in
//! the place of a client. Sockets and the layer beneath draw from the same ports, and know nothing of the
//! entries here: the answers to both would be told apart by nothing. So the first packet of such a flow gets
//! another port ([`FOREIGN`]), by two entries like those of [`snat`], which live by themselves.
//!
//! The other way round, whoever opens a flow from such a port asks for a socket first ([`ports`]); and where a
//! connection there is none of a socket, its endpoint objects to another SYN from the same port
//! ([`returns`](super::egress)).
//!
//! Netfilter also masquerades from ports that clients dial ([`spares`]).

use super::{
    BENEATH, Connections, FOREIGN, LEAST_SOURCE_PORT, Network, Sources, Table, Work, owner, ports,
    reason::{Outcome, Reason},
    second::Second,
    seen,
    segment::opens,
    snat,
};
use crate::{
    address,
    frontend::FrontendKey,
    node::NodeAddressKey,
    packet::parse::flags,
    socket::{TCP, UDP},
    tables::ServiceTables,
};

/// Whether a packet that leaves begins something, and its answers would be taken for those to a client.
#[inline(never)]
fn collides<T: Connections>(tables: &T, work: &mut Work) -> bool {
    if work.key.protocol == TCP && !opens(work.transport.flags) {
        return false;
    }
    let second = &mut work.second;
    snat::turn_around(&work.key, &mut second.back);
    second.back.role = super::DIALLED;
    for table in [Table::Track, Table::Opening] {
        if tables
            .find(table, &second.back, &mut second.found)
            .is_some()
            && second.found.owner >= super::SNAT
        {
            return true;
        }
    }
    false
}

/// Gives a packet that [`collides`] another port; others are untouched.
#[inline(never)]
pub(super) fn moves<P, T>(packet: &P, tables: &T, work: &mut Work) -> Outcome
where
    P: Network,
    T: ServiceTables + Connections + Sources,
{
    if !collides(tables, work) {
        return Outcome::UNTOUCHED;
    }
    begin(tables, work);
    ports::draw(packet, tables, work, Table::Track);
    if work.second.outcome == Outcome::TRANSLATED {
        snat::add_forward(tables, work, Table::Track);
    }
    if work.second.outcome == Outcome::TRANSLATED {
        tables.count_flows(1);
    } else if !is_moved(tables, work) {
        // As it is, whoever has its port would hear the answer.
        return Outcome::dropped(Reason::NoPort);
    }
    work.to = work.second.forward_value.place();
    Outcome::TRANSLATED
}

/// Remembers that what answers a datagram dials no frontend, though it comes to one: it was sent from there, by a
/// socket of this node, or by what is masqueraded beneath, to which any port is as good as another. An answer of
/// TCP is no SYN, and begins nothing.
#[inline(never)]
pub(super) fn spares<T: ServiceTables + Connections>(tables: &T, work: &mut Work) {
    let address = work.key.source;
    if work.key.protocol != UDP || !tables.is_own(&NodeAddressKey { address }) {
        return;
    }
    let dialled = FrontendKey::new(address::to_words(&address), work.key.source_port, UDP);
    if tables.frontend(&dialled).is_none() && tables.frontend(&dialled.of_node_port()).is_none() {
        return;
    }
    let Work { key, second, .. } = work;
    snat::turn_around(key, &mut second.back);
    second.back.role = super::DIALLED;
    *key = second.back;
    match tables.find(Table::Opening, key, &mut second.found) {
        Some(at) => tables.set_last(at, tables.seconds()),
        None => owner::note(tables, work, BENEATH),
    }
}

/// Whether another packet of the flow was faster. Sets `work.second.forward_value` to what it got.
#[inline(never)]
fn is_moved<T: Connections>(tables: &T, work: &mut Work) -> bool {
    let Second {
        forward,
        forward_value,
        ..
    } = &mut work.second;
    tables.find(Table::Track, forward, forward_value).is_some() && forward_value.holds_for(forward)
}

/// Sets the entry of requests, but for its port.
#[inline(never)]
fn begin<T: ServiceTables + Connections>(tables: &T, work: &mut Work) {
    let now = tables.seconds();
    let serial = tables.random();
    let Work { key, second, .. } = work;
    second.forward = *key;
    let value = &mut second.forward_value;
    value.address = key.source;
    value.owner = FOREIGN;
    (value.service, value.set, value.endpoint) = (0, 0, 0);
    (value.serial, value.last, value.since) = (serial, now, now);
    (value.sequence, value.acknowledged, value.refusal) = (0, 0, 0);
    // Any that netfilter takes: what leaves no port of those for clients costs no other flow its own.
    second.first_port = LEAST_SOURCE_PORT.into();
    second.ports = 0x1_0000 - u32::from(LEAST_SOURCE_PORT);
    // Until one of the two goes on.
    value.state = value.state_of(seen::RST);
    second.outcome = Outcome::TRANSLATED;
}

/// Notes that a packet of such a flow used the entry of `work.key`.
#[inline(never)]
pub(super) fn used<T: Connections>(tables: &T, at: T::At, work: &mut Work) {
    let now = tables.seconds();
    if work.value.last != now {
        tables.set_last(at, now);
    }
    let said = work.transport.flags;
    if work.key.protocol != TCP || opens(said) {
        return;
    }
    let before = work.value.seen();
    let mut after = before & !seen::RST;
    if said & flags::RST != 0 {
        after |= seen::RST;
    }
    if said & flags::FIN != 0 {
        after |= seen::FIN;
    }
    if after != before {
        tables.set_state(at, work.value.state_of(after));
    }
}
