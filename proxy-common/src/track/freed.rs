//! Second translations whose flow is over, or gone: their ports are free.

use super::{
    ConnectionKey, ConnectionValue, Connections, INSIDE, SNAT, Setting, Table, Work, ended, idle,
    pair::other,
    second::{Entry, Second},
    snat::{remove, set_back, set_forward_of, turn_around},
};
use crate::socket::UDP;

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

/// Whether there is no answered flow with an entry of this key and serial, since a while; longer, if there is one that
/// is not answered: it may still find room in TRACK.
#[inline(always)]
fn is_orphan<T: Connections>(tables: &T, inside: &ConnectionKey, serial: u32, last: u32) -> bool {
    let is_opening = tables.has_serial(Table::Opening, inside, serial);
    let stays = tables.setting(if is_opening {
        Setting::UdpUnanswered
    } else {
        Setting::TcpReset
    });
    !tables.has_serial(Table::Track, inside, serial) && idle(tables.seconds(), last) > stays
}
