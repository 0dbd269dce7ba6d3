//! What is told of devices and their packets, in the log.

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

/// Tells which packets were not translated since `before`: once for a device and reason, however many
/// there were.
pub fn packets(devices: &[Seen], before: &ByDevice, now: &ByDevice) {
    // An agent that starts does not know what the one before it told.
    let (Some(before), Some(now)) = (before, now) else {
        return;
    };
    for (index, counted) in now {
        for (reason, packets) in since(before.get(index), counted) {
            tracing::debug!(
                device = name(devices, *index),
                reason = reason.as_str(),
                packets,
                "packets not translated"
            );
        }
    }
}

/// How many more there are, by reason; those reasons of which there are.
fn since<'a>(
    before: Option<&'a Counted>,
    now: &'a Counted,
) -> impl Iterator<Item = (Reason, u64)> + 'a {
    Reason::ALL.into_iter().filter_map(move |reason| {
        let of = |counted: &Counted| counted.counts[reason as usize];
        let more = of(now).wrapping_sub(before.map_or(0, of));
        (more > 0).then_some((reason, more))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_told_once() {
        let counted = |collisions, options| {
            let mut counted = Counted::default();
            counted.counts[Reason::Collision as usize] = collisions;
            counted.counts[Reason::Options as usize] = options;
            counted
        };
        let more = |before: Option<Counted>, now: Counted| -> Vec<_> {
            since(before.as_ref(), &now).collect()
        };
        assert_eq!(more(Some(counted(2, 3)), counted(2, 3)), []);
        assert_eq!(
            more(Some(counted(2, 3)), counted(2, 7)),
            [(Reason::Options, 4)]
        );
        // A device that is new.
        assert_eq!(more(None, counted(1, 0)), [(Reason::Collision, 1)]);
    }
}
