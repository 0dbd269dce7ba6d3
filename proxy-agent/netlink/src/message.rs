//! Messages of netlink, one behind the other: put together, and taken apart. What they begin with is
//! netfilter's (`struct nfgenmsg`, linux/netfilter/nfnetlink.h); a request to generic netlink begins
//! the same, with the command for a family. Others, as route netlink, begin with bytes that are given.
//! Knows no meaning.

use std::io;

use netlink_packet_core::{DecodeError, DoneBuffer, ErrorBuffer, NLM_F_DUMP_INTR, NLMSG_DONE};
pub use netlink_packet_core::{
    NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NLMSG_ERROR,
    NetlinkBuffer,
};

use crate::{
    attributes::Attributes,
    socket::{ALIGNED, Asked},
};

/// Family, version, resource: what comes before the attributes.
const NETFILTER_HEADER: usize = 4;

/// Where the flags stand in a header.
const FLAGS: std::ops::Range<usize> = 6..8;

/// What a message is, before its attributes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Head {
    /// Type, with the part of netfilter in its upper byte.
    pub kind: u16,
    /// Flags: `NLM_F_REQUEST`, and others.
    pub flags: u16,
    /// As in `NFPROTO_IPV4`; for generic netlink the command.
    pub family: u8,
    /// What most parts have no use for.
    pub resource: u16,
}

/// Requests, one behind the other.
#[derive(Debug, Default)]
pub struct Messages {
    bytes: Vec<u8>,
    count: u32,
    /// Where the last one begins.
    last: usize,
}

impl Messages {
    /// One request.
    pub fn one(head: Head, fill: impl FnOnce(&mut Attributes<'_>)) -> Self {
        let mut messages = Self::default();
        messages.add(head, fill);
        messages
    }

    /// Adds a request with the attributes that `fill` writes. Returns its number among these,
    /// counted from 1, as [`Asked::which`] tells it.
    pub fn add(&mut self, head: Head, fill: impl FnOnce(&mut Attributes<'_>)) -> u32 {
        let [high, low] = head.resource.to_be_bytes();
        let begins = [head.family, 0, high, low];
        self.add_beginning(head.kind, head.flags, &begins, fill)
    }

    /// Adds a request whose attributes come after `begins`, which is as long as the kernel's
    /// structure for this type.
    pub fn add_beginning(
        &mut self,
        kind: u16,
        flags: u16,
        begins: &[u8],
        fill: impl FnOnce(&mut Attributes<'_>),
    ) -> u32 {
        let start = self.bytes.len();
        self.count += 1;
        self.last = start;
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(self.count.to_ne_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend(begins);
        fill(&mut Attributes::new(&mut self.bytes));
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
        self.count
    }

    /// All of it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Gives the last message these flags too. Returns its number.
    pub fn flag_last(&mut self, flags: u16) -> u32 {
        if let Some([low, high]) = self
            .bytes
            .get_mut(self.last..)
            .and_then(|last| last.get_mut(FLAGS))
        {
            let flags = u16::from_ne_bytes([*low, *high]) | flags;
            [*low, *high] = flags.to_ne_bytes();
        }
        self.count
    }

    /// The message with this number: type and attributes.
    pub fn find(&self, number: u32) -> Option<(u16, &[u8])> {
        let mut all = messages(&self.bytes).map_while(Result::ok);
        let found = all.find(|message| message.sequence_number() == number)?;
        Some((found.message_type(), attributes(&found)))
    }
}

/// The messages of a datagram; an error where one is damaged, which ends them.
pub fn messages(
    datagram: &[u8],
) -> impl Iterator<Item = Result<NetlinkBuffer<&[u8]>, DecodeError>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let message = NetlinkBuffer::new_checked(rest);
        let length = message.as_ref().map_or(usize::MAX, |message| {
            usize::try_from(message.length()).unwrap_or(usize::MAX)
        });
        let next = length.checked_next_multiple_of(ALIGNED);
        rest = next.and_then(|next| rest.get(next..)).unwrap_or_default();
        Some(message)
    })
}

/// The messages of a datagram that answer what was asked, each with the number of the request.
pub fn answers(
    datagram: &[u8],
    asked: Asked,
) -> impl Iterator<Item = Result<(u32, NetlinkBuffer<&[u8]>), DecodeError>> {
    messages(datagram).filter_map(move |message| match message {
        Ok(message) => {
            let number = asked.which(message.sequence_number(), message.port_number());
            number.map(|number| Ok((number, message)))
        }
        Err(error) => Some(Err(error)),
    })
}

/// The attributes of a message.
pub fn attributes<'a>(message: &NetlinkBuffer<&'a [u8]>) -> &'a [u8] {
    message
        .payload()
        .get(NETFILTER_HEADER..)
        .unwrap_or_default()
}

/// How a request ended: the kernel's answer to a message that wants one, or the end of a dump.
/// `None` for any other message.
pub fn end(message: &NetlinkBuffer<&[u8]>) -> Result<Option<io::Result<()>>, DecodeError> {
    let code = match message.message_type() {
        NLMSG_DONE => DoneBuffer::new_checked(message.payload())?.code(),
        NLMSG_ERROR => {
            let code = ErrorBuffer::new_checked(message.payload())?.code();
            code.map_or(0, i32::from)
        }
        _ => return Ok(None),
    };
    // Zero, or the negative number of an error.
    Ok(Some(match code {
        0.. => Ok(()),
        error => Err(io::Error::from_raw_os_error(error.saturating_neg())),
    }))
}

/// Whether what is dumped changed meanwhile, so that some of it may be missing.
pub fn is_interrupted(message: &NetlinkBuffer<&[u8]>) -> bool {
    message.flags() & NLM_F_DUMP_INTR != 0
}
