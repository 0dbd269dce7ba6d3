//! One question and all that answers it, whatever the family. Knows no meaning.

use std::io;

use netlink_packet_core::DecodeError;

use crate::{
    message::{NetlinkBuffer, answers, end},
    socket::Socket,
};

/// Sends requests, and shows each message that answers them until one ends it: how it ended. With an
/// outer error, one that the kernel did not answer, the socket is of no more use.
pub(crate) fn exchange(
    socket: &mut Socket,
    requests: &[u8],
    mut answered: impl FnMut(&NetlinkBuffer<&[u8]>) -> Result<(), DecodeError>,
) -> io::Result<io::Result<()>> {
    let asked = socket.send(requests)?;
    let mut datagram = Vec::new();
    loop {
        socket.receive(&mut datagram)?;
        for message in answers(&datagram, asked) {
            let (_, message) = message.map_err(io::Error::other)?;
            if let Some(ended) = end(&message).map_err(io::Error::other)? {
                return Ok(ended);
            }
            answered(&message).map_err(io::Error::other)?;
        }
    }
}
