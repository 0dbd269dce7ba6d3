//! Bytes to steps. One byte says what happens, see [`read`]; those of a packet are as on the wire.

use proxy_common::{in_memory::Hook, packet::Version};

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A packet, which the device says to be of this version.
    Packet(Hook, Version, Vec<u8>),
    /// The last packet, with a byte changed.
    Again {
        /// Which one.
        at: u8,
        /// The bits of it that are changed.
        change: u8,
    },
    /// The receiver of the last packet that was translated answers, with these flags of TCP.
    Answer(u8),
    /// That packet leaves, by the device of a pod or by another one.
    On {
        /// Whether it is a pod's.
        to_pod: bool,
    },
    /// Seconds pass.
    Pass(u16),
    /// The agent has flows looked at.
    Sweep,
    /// The endpoints with these bits are there, and no other.
    Lead(u8),
    /// The agent is to end, or is not any more.
    Leaving,
}

/// In a byte that begins a packet: it is of IPv6.
const V6: u8 = 1 << 3;
/// There: the device is a pod's. In one that begins an answer: no answer, but the packet goes on.
const OTHER: u8 = 1 << 4;

/// The next step; none if what is left is too short for one. A packet may be cut off.
pub(super) fn read(data: &mut &[u8]) -> Option<Step> {
    let [kind, first, rest @ ..] = *data else {
        return None;
    };
    *data = rest;
    Some(match kind & 7 {
        hook @ (0 | 1) => {
            let hooks = if kind & OTHER == 0 {
                [Hook::Ingress, Hook::Egress]
            } else {
                [Hook::FromPod, Hook::ToPod]
            };
            let hook = hooks[usize::from(hook)];
            let version = if kind & V6 == 0 {
                Version::V4
            } else {
                Version::V6
            };
            let (packet, rest) = rest.split_at(rest.len().min(usize::from(*first)));
            *data = rest;
            Step::Packet(hook, version, packet.to_vec())
        }
        2 => {
            let (change, rest) = rest.split_first()?;
            *data = rest;
            Step::Again {
                at: *first,
                change: *change,
            }
        }
        3 if kind & OTHER != 0 => Step::On {
            to_pod: first & 1 != 0,
        },
        3 => Step::Answer(*first),
        4 => {
            let (low, rest) = rest.split_first()?;
            *data = rest;
            Step::Pass(u16::from_be_bytes([*first, *low]))
        }
        5 => Step::Lead(*first),
        6 => Step::Sweep,
        _ => Step::Leaving,
    })
}

#[cfg(test)]
impl Step {
    /// What is read as this step.
    pub(super) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Packet(hook, version, packet) => {
                let hook = match hook {
                    Hook::Ingress => 0,
                    Hook::Egress => 1,
                    Hook::FromPod => OTHER,
                    Hook::ToPod => OTHER | 1,
                };
                let version = if *version == Version::V4 { 0 } else { V6 };
                let length = u8::try_from(packet.len()).expect("packets here are short");
                [&[hook | version, length], &packet[..]].concat()
            }
            Self::Again { at, change } => vec![2, *at, *change],
            Self::Answer(said) => vec![3, *said],
            Self::On { to_pod } => vec![3 | OTHER, u8::from(*to_pod)],
            Self::Pass(seconds) => [&[4], &seconds.to_be_bytes()[..]].concat(),
            Self::Lead(mask) => vec![5, *mask],
            Self::Sweep => vec![6, 0],
            Self::Leaving => vec![7, 0],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    #[test]
    fn steps_are_read_as_they_are_written() {
        let packet = |hook, version| Step::Packet(hook, version, vec![1, 2, 3]);
        let steps = [
            packet(Hook::Ingress, Version::V4),
            packet(Hook::Egress, Version::V6),
            packet(Hook::FromPod, Version::V6),
            packet(Hook::ToPod, Version::V4),
            Step::Again { at: 7, change: 9 },
            Step::Answer(0x12),
            Step::On { to_pod: true },
            Step::On { to_pod: false },
            Step::Pass(300),
            Step::Lead(5),
            Step::Sweep,
            Step::Leaving,
        ];
        let bytes: Vec<u8> = steps.iter().flat_map(Step::bytes).collect();
        let mut rest = &bytes[..];
        let read: Vec<_> = iter::from_fn(|| read(&mut rest)).collect();
        assert_eq!(read, steps);
        assert!(rest.is_empty());
    }

    #[test]
    fn a_packet_may_be_cut_off_and_nothing_else() {
        let cut = Step::Packet(Hook::Ingress, Version::V4, vec![1]);
        assert_eq!(read(&mut &[0, 5, 1][..]), Some(cut));
        for short in [&[][..], &[6], &[2, 1], &[4, 1]] {
            assert_eq!(read(&mut &*short), None);
        }
    }
}
