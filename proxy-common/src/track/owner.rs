//! Packets that the programs do not translate, and whose they are: the layer beneath's, or the endpoint's
//! own.

use bytemuck::Zeroable as _;

use super::{
    ALONE, BENEATH, ConnectionValue, Connections, DIRECT, Setting, Table, Work, idle,
    reason::{Outcome, Reason},
};
use crate::{frontend::OUTSIDE_TO_LOCAL, node::NodeAddressKey, socket::TCP, tables::ServiceTables};

/// Remembers whose the packets of `work.key` are, if they are not translated: [`BENEATH`] or [`DIRECT`].
#[inline(never)]
pub(super) fn note<T: Connections>(tables: &T, work: &mut Work, owner: u16) {
    let now = tables.seconds();
    work.value = ConnectionValue {
        owner,
        serial: now,
        last: now,
        since: now,
        ..ConnectionValue::zeroed()
    };
    work.value.seal(&work.key);
    // Where another packet was first, that one decides.
    tables.add(Table::Opening, &work.key, &work.value);
}

/// What is left of `work.outcome` where the packet of `work.key` is not translated. That it is left to the layer
/// beneath is remembered, unless it would be so again whatever else happens.
#[inline(never)]
pub(super) fn keep<T: ServiceTables + Connections>(tables: &T, work: &mut Work) -> Outcome {
    let reason = work.outcome.reason();
    if reason == 0 {
        return work.outcome;
    }
    if tables.setting(Setting::Flags) & ALONE != 0 {
        // Nobody has it: what is sent again is decided anew.
        return if goes_nowhere(tables, work, reason) {
            work.outcome.and_dropped()
        } else {
            work.outcome
        };
    }
    if work.key.protocol != TCP || !Reason::is_lasting(reason) {
        note(tables, work, BENEATH);
    }
    work.outcome
}

/// Whether the packet of `work.key` must go no further where no layer beneath decides about it. Without endpoints,
/// the stack of this host refuses it, if the address is its own. To others a route might lead anywhere, also
/// back to where it came from. What may be served when it is sent again must not be refused.
#[inline(always)]
fn goes_nowhere<T: ServiceTables + Connections>(tables: &T, work: &Work, reason: u32) -> bool {
    // Of these clients programs on devices do not decide at all.
    if reason == Reason::LocalSource as u32 || reason == Reason::Leaving as u32 {
        return false;
    }
    let address = work.key.destination;
    reason != Reason::NoEndpoint as u32
        || is_served_elsewhere(tables, work)
        || !tables.is_own(&NodeAddressKey { address })
}

/// Whether the frontend's policy is Local, and there are endpoints on other nodes alone: as with kube-proxy, those
/// who dial it hear nothing.
#[inline(never)]
fn is_served_elsewhere<T: ServiceTables>(tables: &T, work: &Work) -> bool {
    let all = work.frontend.cluster_set;
    work.frontend.flags & OUTSIDE_TO_LOCAL != 0
        && tables
            .set(all)
            .is_some_and(|set| set.holds_for(all) && set.count > 0)
}

/// What becomes of a flow whose place behind the translation is taken by `work.found`. One that is kept
/// for datagrams which do not come any more is free again.
#[inline(never)]
pub(super) fn makes_room<T: Connections>(tables: &T, work: &Work) -> Outcome {
    let idle = idle(tables.seconds(), work.found.last);
    if work.found.owner != DIRECT || idle <= tables.setting(Setting::UdpAnswered) {
        return Outcome::passed(Reason::Collision);
    }
    tables.remove(Table::Opening, &work.other_key);
    Outcome::passed(Reason::Changed)
}
