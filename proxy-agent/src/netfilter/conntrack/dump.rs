//! One reading of the kernel's table of connections, entry by entry: no list of them is ever held.

use std::io;

use netlink_packet_core::{
    DecodeError, DoneBuffer, ErrorBuffer, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use proxy_model::IpFamily;

use super::{
    ConntrackError, attempted,
    flow::{self, Flow, Identity},
    message::{self, ENTRY, NETFILTER_HEADER},
};

/// The kernel's answers have 32 KiB at most.
pub(super) const LONGEST_ANSWER: usize = 64 * 1024;

/// Messages begin at multiples of this (`NLMSG_ALIGNTO`).
const ALIGNED: usize = 4;

/// Which entries are of interest. Old kernels tell more.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    /// Those of a protocol in a family.
    Protocol(IpFamily, u8),
    /// Those with a translated destination.
    Translated,
}

/// What is done with an entry.
type Visit<'a> = dyn FnMut(&Flow, Identity<'_>) -> Result<(), ConntrackError> + 'a;

/// Visits each entry. Whether that were all: false if the table changed so much that some may be
/// missing or told twice.
pub(super) fn each(
    wanted: Wanted,
    mut visit: impl FnMut(&Flow, Identity<'_>) -> Result<(), ConntrackError>,
) -> Result<bool, ConntrackError> {
    let asked = attempted("asking the kernel for its connections over netlink");
    let socket = open().map_err(&asked)?;
    let request = match wanted {
        Wanted::Protocol(family, protocol) => message::dump_protocol(family, protocol),
        Wanted::Translated => message::dump_translated(),
    };
    socket.send(&request, 0).map_err(&asked)?;
    let mut whole = true;
    let mut datagram = Vec::with_capacity(LONGEST_ANSWER);
    loop {
        datagram.clear();
        if let Err(error) = receive(&socket, &mut datagram) {
            return Err(asked(error));
        }
        match read(&datagram, &mut whole, &mut visit)? {
            None => {}
            Some(Ok(())) => return Ok(whole),
            Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => return Ok(false),
            Some(Err(error)) => return Err(asked(error)),
        }
    }
}

/// A socket that talks with the kernel's netfilter in the network namespace of this thread.
pub(super) fn open() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// The next datagram, whatever signals arrive meanwhile.
pub(super) fn receive(socket: &Socket, datagram: &mut Vec<u8>) -> io::Result<()> {
    loop {
        match socket.recv(datagram, 0) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            received => return received.map(drop),
        }
    }
}

/// Reads one datagram of a dump. `None`: more is to come.
fn read(
    datagram: &[u8],
    whole: &mut bool,
    visit: &mut Visit<'_>,
) -> Result<Option<io::Result<()>>, ConntrackError> {
    for message in messages(datagram) {
        let message = message?;
        *whole &= message.flags() & NLM_F_DUMP_INTR == 0;
        match message.message_type() {
            ENTRY => {
                let attributes = message.payload().get(NETFILTER_HEADER..);
                if let Some((flow, identity)) = flow::read(attributes.unwrap_or_default())? {
                    visit(&flow, identity)?;
                }
            }
            NLMSG_DONE => {
                let code = DoneBuffer::new_checked(message.payload())?.code();
                return Ok(Some(outcome(code)));
            }
            NLMSG_ERROR => {
                let code = ErrorBuffer::new_checked(message.payload())?.code();
                return Ok(Some(outcome(code.map_or(0, i32::from))));
            }
            _ => {}
        }
    }
    Ok(None)
}

/// What the kernel says with zero, or the negative number of an error.
pub(super) fn outcome(code: i32) -> io::Result<()> {
    match code {
        0.. => Ok(()),
        error => Err(io::Error::from_raw_os_error(error.saturating_neg())),
    }
}

/// The messages of a datagram.
pub(super) fn messages(
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
