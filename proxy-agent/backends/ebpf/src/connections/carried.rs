//! An entry of other maps, brought to where it is beside what is known here. Pure.

use proxy_common::track::{ConnectionValue, seen};

/// What the entry here must be for nothing to be lost of what `earlier` says; `None` if it says
/// nothing new. Another flow in its place here began later, and stays.
pub fn carried(
    here: Option<&ConnectionValue>,
    earlier: &ConnectionValue,
) -> Option<ConnectionValue> {
    let Some(here) = here else {
        return Some(*earlier);
    };
    if here.serial != earlier.serial {
        return None;
    }
    let mut carried = *here;
    carried.state = here.state_of(here.seen() | earlier.seen());
    let answered = here.seen() & seen::ANSWERED != 0;
    if !answered
        && (earlier.seen() & seen::ANSWERED != 0 || is_after(earlier.sequence, here.sequence))
    {
        carried.sequence = earlier.sequence;
    }
    if is_after(earlier.acknowledged, here.acknowledged) {
        carried.acknowledged = earlier.acknowledged;
        carried.since = earlier.since;
    }
    if is_after(earlier.last, here.last) {
        carried.last = earlier.last;
    }
    (carried != *here).then_some(carried)
}

/// Whether one second, or sequence number, is after another.
const fn is_after(one: u32, other: u32) -> bool {
    let by = one.wrapping_sub(other);
    by != 0 && by < u32::MAX / 2
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable as _;

    use super::*;

    fn value(serial: u32, seen: u32, last: u32, sequence: u32) -> ConnectionValue {
        let value = ConnectionValue {
            serial,
            last,
            sequence,
            ..ConnectionValue::zeroed()
        };
        ConnectionValue {
            state: value.state_of(seen),
            ..value
        }
    }

    #[test]
    fn nothing_that_was_seen_is_lost_and_a_later_flow_stays() {
        use seen::{ANSWERED, FIN};
        for (here, earlier, expected) in [
            // What is not known here comes as it is.
            (None, value(7, FIN, 9, 1), Some(value(7, FIN, 9, 1))),
            // The endpoint answered while both maps were in use.
            (
                Some(value(7, 0, 9, 0)),
                value(7, ANSWERED, 9, 5),
                Some(value(7, ANSWERED, 9, 5)),
            ),
            // Each saw something.
            (
                Some(value(7, ANSWERED, 12, 5)),
                value(7, FIN, 9, 0),
                Some(value(7, ANSWERED | FIN, 12, 5)),
            ),
            (
                Some(value(7, FIN, 9, 0)),
                value(7, 0, 12, 0),
                Some(value(7, FIN, 12, 0)),
            ),
            // The endpoint acknowledged more, in one or the other; numbers begin anew.
            (
                Some(value(7, 0, 9, 5)),
                value(7, 0, 9, 8),
                Some(value(7, 0, 9, 8)),
            ),
            (Some(value(7, 0, 9, 8)), value(7, 0, 9, 5), None),
            (
                Some(value(7, 0, 9, u32::MAX)),
                value(7, 0, 9, 3),
                Some(value(7, 0, 9, 3)),
            ),
            // Nothing new.
            (Some(value(7, FIN, 12, 0)), value(7, FIN, 12, 0), None),
            (Some(value(7, FIN, 12, 0)), value(7, 0, 3, 0), None),
            // Another flow of the same client and port.
            (Some(value(8, 0, 3, 0)), value(7, FIN, 12, 0), None),
        ] {
            let carried = carried(here.as_ref(), &earlier);
            assert_eq!(carried, expected, "{here:?} {earlier:?}");
        }
    }

    #[test]
    fn what_was_acknowledged_last_goes_with_its_time() {
        let at = |acknowledged, since| ConnectionValue {
            acknowledged,
            since,
            ..value(7, 0, 9, 5)
        };
        for (here, earlier, expected) in [
            (at(8, 30), at(9, 20), Some(at(9, 20))),
            (at(9, 20), at(8, 30), None),
            (at(u32::MAX, 20), at(3, 30), Some(at(3, 30))),
        ] {
            assert_eq!(carried(Some(&here), &earlier), expected);
        }
    }

    #[test]
    fn seconds_may_begin_anew() {
        assert!(is_after(1, u32::MAX) && !is_after(u32::MAX, 1) && !is_after(4, 4));
    }
}
