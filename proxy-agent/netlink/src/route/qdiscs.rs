//! Where filters can be put on a device: `clsact`, or `ingress` alone. Knows no filter.

use std::{fmt, io};

use super::{
    RouteSocket,
    numbers::{
        RTM_DELQDISC, RTM_GETQDISC, RTM_NEWQDISC, TC_H_CLSACT, TC_H_MAJ_CLSACT, TC_H_MIN_EGRESS,
        TC_H_MIN_INGRESS, TCA_KIND,
    },
    word,
};
use crate::message::{NLM_F_CREATE, NLM_F_EXCL};

/// Length of `struct tcmsg`: family, (padding), index, handle, parent, info.
pub(super) const HEAD: usize = 20;

/// The kind that has filters in both directions.
pub(super) const CLSACT: &str = "clsact";

/// Which packets of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Those that it received.
    Ingress,
    /// Those that it is to send.
    Egress,
}

impl Direction {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Ingress, Self::Egress];

    /// The parent of its filters.
    pub(super) fn parent(self) -> u32 {
        match self {
            Self::Ingress => TC_H_MIN_INGRESS,
            Self::Egress => TC_H_MIN_EGRESS,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        })
    }
}

/// What filters of a device hang on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdisc {
    /// The number of the device.
    pub device: u32,
    /// `clsact` or `ingress`.
    pub kind: String,
    /// Its number, `ffff:` for each of these.
    pub handle: u32,
}

impl Qdisc {
    /// Whether it has filters in both directions.
    pub fn is_clsact(&self) -> bool {
        self.kind == CLSACT
    }
}

/// `struct tcmsg`.
pub(super) fn head(device: u32, handle: u32, parent: u32, info: u32) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    for (at, number) in [(4, device), (8, handle), (12, parent), (16, info)] {
        head[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }
    head
}

impl RouteSocket {
    /// The `clsact` or `ingress` of each device that has one.
    ///
    /// Of all devices: to a question about one the kernel answers, before Linux 6.7, to everybody who
    /// waits for changes.
    pub fn qdiscs(&mut self) -> io::Result<Vec<Qdisc>> {
        self.dump(
            RTM_GETQDISC,
            &[0; HEAD],
            |_| {},
            |head, attributes| {
                let parent = word(head, 12);
                (parent == TC_H_CLSACT).then_some(())?;
                Some(Qdisc {
                    device: word(head, 4),
                    kind: attributes.text(TCA_KIND)?.to_owned(),
                    handle: word(head, 8),
                })
            },
        )
    }

    /// Makes a `clsact`; an error (`EEXIST`) where that or an `ingress` is there.
    pub fn add_clsact(&mut self, device: u32) -> io::Result<()> {
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        self.clsact(RTM_NEWQDISC, flags, device)
    }

    /// Removes a `clsact` with all filters on it, whosever they are.
    pub fn delete_clsact(&mut self, device: u32) -> io::Result<()> {
        self.clsact(RTM_DELQDISC, 0, device)
    }

    fn clsact(&mut self, kind: u16, flags: u16, device: u32) -> io::Result<()> {
        let begins = head(device, TC_H_MAJ_CLSACT, TC_H_CLSACT, 0);
        self.change(kind, flags, &begins, |attributes| {
            attributes.text(TCA_KIND, CLSACT);
        })
    }
}
