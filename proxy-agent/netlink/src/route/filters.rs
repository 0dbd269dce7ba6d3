//! Filters of a device's packets (tc(8)): listed; those that are BPF programs put there, replaced and
//! removed one by one. Knows no program.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _},
};

use super::{
    Direction, RouteSocket,
    numbers::{
        RTM_DELTFILTER, RTM_GETTFILTER, RTM_NEWTFILTER, TCA_BPF_FD, TCA_BPF_FLAG_ACT_DIRECT,
        TCA_BPF_FLAGS, TCA_BPF_ID, TCA_BPF_NAME, TCA_CHAIN, TCA_KIND, TCA_OPTIONS,
    },
    qdiscs::head,
    word,
};
use crate::{
    attributes::Read,
    message::{NLM_F_CREATE, NLM_F_EXCL},
};

/// The kind of filter that is a BPF program.
const BPF: &str = "bpf";

/// `ETH_P_ALL`: packets of every protocol.
const EVERY_PROTOCOL: u16 = 3;

/// Where a filter is among those of a device and a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterPlace {
    /// The number of the device.
    pub device: u32,
    /// Of which packets.
    pub direction: Direction,
    /// Those with lower ones run first.
    pub priority: u16,
    /// Tells it from others of this priority.
    pub handle: u32,
}

/// A filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Where it is.
    pub place: FilterPlace,
    /// `bpf`, `flower`, and so on.
    pub kind: String,
    /// Which packets it sees, as in `ETH_P_IP`.
    pub protocol: u16,
    /// Packets begin with those of chain 0.
    pub chain: u32,
    /// The program, where it is one.
    pub bpf: Option<BpfFilter>,
}

/// A filter that is a BPF program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BpfFilter {
    /// As whoever put it there called it.
    pub name: Option<String>,
    /// The id of the program.
    pub program: u32,
    /// Whether what the program returns decides about the packet.
    pub is_direct: bool,
}

impl Filter {
    /// Whether it sees packets of every protocol.
    pub fn sees_all(&self) -> bool {
        self.protocol == EVERY_PROTOCOL
    }
}

impl RouteSocket {
    /// The filters of a device, in the order in which they run. What hangs on an `ingress` is listed
    /// for either direction.
    pub fn filters(&mut self, device: u32, direction: Direction) -> io::Result<Vec<Filter>> {
        let begins = head(device, 0, direction.parent(), 0);
        self.dump(
            RTM_GETTFILTER,
            &begins,
            |_| {},
            |head, attributes| filter(device, direction, head, attributes),
        )
    }

    /// Puts a program at a place where no filter is; an error (`EEXIST`) where one is.
    pub fn add_filter(
        &mut self,
        place: FilterPlace,
        program: impl AsFd,
        name: &str,
    ) -> io::Result<()> {
        self.put_filter(NLM_F_CREATE | NLM_F_EXCL, place, program, name)
    }

    /// Puts a program in the place of the one that is there: each packet meets one of the two. An
    /// error (`ENOENT`) where none is.
    pub fn replace_filter(
        &mut self,
        place: FilterPlace,
        program: impl AsFd,
        name: &str,
    ) -> io::Result<()> {
        self.put_filter(0, place, program, name)
    }

    /// Removes the program at a place.
    pub fn delete_filter(&mut self, place: FilterPlace) -> io::Result<()> {
        self.change(RTM_DELTFILTER, 0, &place.head(), |attributes| {
            attributes.text(TCA_KIND, BPF);
        })
    }

    fn put_filter(
        &mut self,
        flags: u16,
        place: FilterPlace,
        program: impl AsFd,
        name: &str,
    ) -> io::Result<()> {
        let fd = u32::try_from(program.as_fd().as_raw_fd()).map_err(io::Error::other)?;
        self.change(RTM_NEWTFILTER, flags, &place.head(), |attributes| {
            attributes.text(TCA_KIND, BPF);
            attributes.nested(TCA_OPTIONS, |options| {
                options.native(TCA_BPF_FD, fd);
                options.text(TCA_BPF_NAME, name);
                options.native(TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT);
            });
        })
    }
}

impl FilterPlace {
    fn head(self) -> [u8; super::qdiscs::HEAD] {
        // The protocol is in network byte order.
        let info = u32::from(self.priority) << 16 | u32::from(EVERY_PROTOCOL.to_be());
        head(self.device, self.handle, self.direction.parent(), info)
    }
}

/// `None` for what has no handle: the priority as a whole, of which the kernel tells too.
pub(super) fn filter(
    device: u32,
    direction: Direction,
    head: &[u8],
    attributes: Read<'_>,
) -> Option<Filter> {
    let (handle, info) = (word(head, 8), word(head, 16));
    let kind = attributes.text(TCA_KIND)?;
    let options = attributes.nested(TCA_OPTIONS);
    if handle == 0 {
        return None;
    }
    let [high_first, low_first, ..] = info.to_ne_bytes();
    Some(Filter {
        place: FilterPlace {
            device,
            direction,
            priority: u16::try_from(info >> 16).unwrap_or(u16::MAX),
            handle,
        },
        kind: kind.to_owned(),
        protocol: u16::from_be_bytes([high_first, low_first]),
        chain: attributes.native(TCA_CHAIN).unwrap_or(0),
        bpf: (kind == BPF).then(|| BpfFilter {
            name: options.text(TCA_BPF_NAME).map(str::to_owned),
            program: options.native(TCA_BPF_ID).unwrap_or(0),
            is_direct: options
                .native(TCA_BPF_FLAGS)
                .is_some_and(|flags| flags & TCA_BPF_FLAG_ACT_DIRECT != 0),
        }),
    })
}
