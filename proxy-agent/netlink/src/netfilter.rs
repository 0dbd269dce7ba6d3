//! Messages of netfilter's netlink: requests put together, answers taken apart
//! (`linux/netfilter/nfnetlink.h`). Knows no part of netfilter.

use std::io;

use netlink_packet_core::{
    DecodeError, DoneBuffer, Emitable as _, ErrorBuffer, NLA_ALIGNTO, NLA_F_NESTED,
    NLA_HEADER_SIZE, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer,
    NetlinkHeader, NlaBuffer, NlasIterator,
};
use netlink_sys::protocols::NETLINK_NETFILTER;

use super::socket::{Asked, Socket};

/// Messages begin at multiples of this (`NLMSG_ALIGNTO`).
const ALIGNED: usize = 4;
/// Bytes of a netlink header.
const HEADER: usize = 16;
/// Bytes of `struct nfgenmsg`, which comes before the attributes.
const NETFILTER_HEADER: usize = 4;

/// A socket that talks with the kernel's netfilter in the network namespace of this thread.
pub fn open() -> io::Result<Socket> {
    Socket::open(NETLINK_NETFILTER)
}

/// Sends requests of which one wants an answer, and waits for that: how it ended.
pub fn ask(requests: &[u8]) -> io::Result<()> {
    exchange(&mut open()?, requests, |_, _| {})
}

/// Sends requests, and shows each attribute of what they are answered, kind and value, until an
/// answer ends it. With an error that the kernel did not answer, the socket is of no more use.
pub fn exchange(
    socket: &mut Socket,
    requests: &[u8],
    mut answered: impl FnMut(u16, &[u8]),
) -> io::Result<()> {
    let asked = socket.send(requests)?;
    let mut datagram = Vec::new();
    loop {
        socket.receive(&mut datagram)?;
        for message in answers(&datagram, asked) {
            let message = message.map_err(io::Error::other)?;
            if let Some(ended) = end(&message).map_err(io::Error::other)? {
                return ended;
            }
            for attribute in each(attributes(&message)) {
                let (kind, value) = attribute.map_err(io::Error::other)?;
                answered(kind, value);
            }
        }
    }
}

/// A request: `message_type` with the part of netfilter in its upper byte, `family` as in
/// `AF_INET`, and `resource`, which most parts have no use for.
pub fn request(
    message_type: u16,
    flags: u16,
    family: u8,
    resource: u16,
    attributes: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes.extend([family, 0]);
    bytes.extend(resource.to_be_bytes());
    attributes(&mut bytes);
    let mut header = NetlinkHeader::default();
    header.length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    header.message_type = message_type;
    header.flags = NLM_F_REQUEST | flags;
    header.emit(&mut bytes[..HEADER]);
    bytes
}

/// Appends an attribute and what pads it.
pub fn put(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    // The longest is a name or a tuple of addresses: some hundred bytes.
    let length = u16::try_from(NLA_HEADER_SIZE + value.len()).unwrap_or(u16::MAX);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(NLA_ALIGNTO), 0);
}

/// Appends an attribute that consists of others.
pub fn nest(bytes: &mut Vec<u8>, kind: u16, inner: impl FnOnce(&mut Vec<u8>)) {
    let mut value = Vec::new();
    inner(&mut value);
    put(bytes, kind | NLA_F_NESTED, &value);
}

/// Appends an attribute that is a string, with the zero byte at its end.
pub fn put_string(bytes: &mut Vec<u8>, kind: u16, text: &str) {
    put(bytes, kind, &[text.as_bytes(), &[0]].concat());
}

/// The messages of a datagram.
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

/// The messages of a datagram that answer what was asked.
pub fn answers(
    datagram: &[u8],
    asked: Asked,
) -> impl Iterator<Item = Result<NetlinkBuffer<&[u8]>, DecodeError>> {
    messages(datagram).filter(move |message| {
        message.as_ref().map_or(true, |message| {
            let number = asked.which(message.sequence_number(), message.port_number());
            number.is_some()
        })
    })
}

/// The attributes of a message.
pub fn attributes<'a>(message: &NetlinkBuffer<&'a [u8]>) -> &'a [u8] {
    message
        .payload()
        .get(NETFILTER_HEADER..)
        .unwrap_or_default()
}

/// Kind and value of each attribute.
pub fn each(attributes: &[u8]) -> impl Iterator<Item = Result<(u16, &[u8]), DecodeError>> {
    let mut rest = attributes;
    NlasIterator::new(attributes).map(move |attribute| {
        let attribute: NlaBuffer<&[u8]> = attribute?;
        // What the iterator gives does not live as long as what it is a part of.
        let length = usize::from(attribute.length());
        let value = &rest[NLA_HEADER_SIZE..length];
        let next = length.next_multiple_of(NLA_ALIGNTO);
        rest = rest.get(next..).unwrap_or_default();
        Ok((attribute.kind(), value))
    })
}

/// A string, without the zero byte at its end.
pub fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&value[..end.unwrap_or(value.len())]).into_owned()
}

/// The bytes of a number or an address, which are as many as that has.
pub fn exactly<const N: usize>(value: &[u8]) -> Result<[u8; N], DecodeError> {
    value
        .try_into()
        .map_err(|_| DecodeError::invalid_number(N, value.len()))
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
