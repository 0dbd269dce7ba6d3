//! What is told of devices and their packets, in the log.

use std::time::{Duration, Instant};

use proxy_common::track::reason::{Counted, Reason};

use super::{counted::ByDevice, devices::Seen};

/// What is said of devices that are gone, or that there is no room to count for.
const OTHER: &str = "other";

/// The name of the device with this number.
pub fn name(devices: &[Seen], index: u32) -> &str {
    let mut named = devices.iter().filter(|device| device.index == index);
    named.next().map_or(OTHER, |device| &device.name)
}

/// Tells what changed about devices.
pub fn devices(before: &[Seen], seen: &[Seen]) {
    let was = |device: &Seen| before.iter().find(|other| other.index == device.index);
    for device in seen {
        let earlier = was(device);
        if earlier == Some(device) {
            continue;
        }
        let (name, index) = (&device.name, device.index);
        match &device.problem {
            Some(reason) => {
                tracing::warn!(
                    device = name,
                    index,
                    reason,
                    "device not served; trying again"
                );
            }
            None if device.is_served() => {
                tracing::info!(device = name, index, choice = %device.choice, "device served");
            }
            None if earlier.is_some_and(Seen::is_served) => {
                tracing::info!(device = name, index, choice = %device.choice, "device served no more");
            }
            None => tracing::debug!(device = name, index, choice = %device.choice, "device"),
        }
    }
    for gone in before.iter().filter(|device| device.is_served()) {
        if !seen.iter().any(|device| device.index == gone.index) {
            tracing::info!(device = gone.name, index = gone.index, "device gone");
        }
    }
}

/// How often packets are told, at most: whatever happens to devices, they are looked at for that too.
const PACKETS: Duration = Duration::from_secs(1);

/// What was told of packets that were not translated.
#[derive(Debug, Default)]
pub struct Packets {
    /// Counts by the number of the device; none of an agent that starts, which does not know what the one
    /// before it told.
    told: ByDevice,
    at: Option<Instant>,
}

impl Packets {
    /// Tells which packets there are in `counted` that were not told: once for a device and reason, however
    /// many there were.
    pub fn tell(&mut self, now: Instant, devices: &[Seen], counted: &ByDevice) {
        for (index, reason, packets) in self.due(now, counted) {
            tracing::debug!(
                device = name(devices, index),
                reason = reason.as_str(),
                packets,
                "packets not translated"
            );
        }
    }

    fn due(&mut self, now: Instant, counted: &ByDevice) -> Vec<(u32, Reason, u64)> {
        let waits = self.at.is_some_and(|at| now.duration_since(at) < PACKETS);
        // What cannot be read now is told with what comes.
        let Some(counted) = counted.as_ref().filter(|_| !waits) else {
            return Vec::new();
        };
        self.at = Some(now);
        let Some(before) = self.told.replace(counted.clone()) else {
            return Vec::new();
        };
        let more = counted.iter().flat_map(|(index, counted)| {
            let more = since(before.get(index), counted);
            more.map(|(reason, packets)| (*index, reason, packets))
        });
        more.collect()
    }
}

/// How many more there are, by reason; those reasons of which there are.
fn since<'a>(
    before: Option<&'a Counted>,
    now: &'a Counted,
) -> impl Iterator<Item = (Reason, u64)> + 'a {
    Reason::ALL.into_iter().filter_map(move |reason| {
        let of = |counted: &Counted| counted.counts[reason as usize];
        let (before, now) = (before.map_or(0, of), of(now));
        // A number of a device that is gone is counted for from zero.
        let more = now.checked_sub(before).unwrap_or(now);
        (more > 0).then_some((reason, more))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn counted(collisions: u64, options: u64) -> Counted {
        let mut counted = Counted::default();
        counted.counts[Reason::Collision as usize] = collisions;
        counted.counts[Reason::Options as usize] = options;
        counted
    }

    #[test]
    fn packets_are_told_once() {
        let more = |before: Option<Counted>, now: Counted| -> Vec<_> {
            since(before.as_ref(), &now).collect()
        };
        assert_eq!(more(Some(counted(2, 3)), counted(2, 3)), []);
        assert_eq!(
            more(Some(counted(2, 3)), counted(2, 7)),
            [(Reason::Options, 4)]
        );
        // A device that is new, and one that has the number of another.
        assert_eq!(more(None, counted(1, 0)), [(Reason::Collision, 1)]);
        assert_eq!(
            more(Some(counted(2, 3)), counted(1, 3)),
            [(Reason::Collision, 1)]
        );
    }

    #[test]
    fn packets_are_told_once_a_second_however_often_devices_change() {
        let begin = Instant::now();
        let mut packets = Packets::default();
        let mut due = |milliseconds, counts: Option<(u64, u64)>| {
            let now = begin + Duration::from_millis(milliseconds);
            let one = |(collisions, options)| BTreeMap::from([(7, counted(collisions, options))]);
            packets.due(now, &counts.map(one))
        };
        // Those of an earlier agent.
        assert_eq!(due(0, Some((5, 0))), []);
        assert_eq!(due(10, Some((6, 0))), []);
        assert_eq!(due(999, Some((7, 1))), []);
        let more = [(7, Reason::Options, 2), (7, Reason::Collision, 4)];
        assert_eq!(due(1000, Some((9, 2))), more);
        assert_eq!(due(1999, Some((10, 2))), []);
        assert_eq!(due(2000, None), []);
        assert_eq!(due(2001, Some((11, 2))), [(7, Reason::Collision, 2)]);
        assert_eq!(due(3001, Some((11, 2))), []);
    }
}
