//! Which answered flows are over, and their removal.
//!
//! It runs in the kernel, for keys that the agent chose: between the look at a flow and its removal
//! the agent could be kept waiting for any time, and the flow could come to life.

use super::{
    Connections, SNAT, Setting, Table, Work, ended::are_done, freed, idle, pair, seen, snat,
};
use crate::socket::UDP;

/// How long a flow may be idle of which this was seen in either direction, with what
/// [`ConnectionValue::reached`](super::ConnectionValue::reached) has of its entries.
#[inline(always)]
pub const fn timeout(protocol: u8, [here, there]: [u32; 2], reached: [u32; 2]) -> Setting {
    if protocol == UDP {
        Setting::UdpAnswered
    } else if (here | there) & seen::RST != 0 {
        Setting::TcpReset
    } else if are_done(here, there, reached) {
        Setting::TcpClosed
    } else if (here | there) & (seen::FIN | seen::REFUSED) != 0 {
        Setting::TcpHalfClosed
    } else {
        Setting::TcpEstablished
    }
}

/// Removes the flow that `work.key` belongs to, if it is over. Whether it did.
#[inline(always)]
pub fn sweep<T: Connections>(tables: &T, work: &mut Work) -> bool {
    let found = tables.find(Table::Track, &work.key, &mut work.value);
    if found.is_none() || !work.value.holds_for(&work.key) {
        return false;
    }
    if work.value.owner == SNAT {
        let is_left = freed::is_left(tables, work);
        if is_left {
            snat::clear(tables, work);
        }
        return is_left;
    }
    pair::turn(work);
    let now = tables.seconds();
    let mut silent = idle(now, work.value.last);
    let (here, mut there) = (work.value.seen(), 0);
    let role = work.key.role;
    let (mut reached, mut superseded) = ([work.value.reached(role); 2], false);
    if tables
        .find(Table::Track, &work.other_key, &mut work.found)
        .is_some()
    {
        // Its other end is a later flow's.
        superseded = work.found.serial != work.value.serial;
        if !superseded {
            silent = silent.min(idle(now, work.found.last));
            there = work.found.seen();
            reached[1] = work.found.reached(work.other_key.role);
        }
    }
    let stays = tables.setting(timeout(work.key.protocol, [here, there], reached));
    if silent <= stays && !superseded {
        return false;
    }
    pair::forget(tables, Table::Track, work);
    true
}
