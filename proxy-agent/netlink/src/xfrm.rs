//! Policies of IPsec (`linux/xfrm.h`): only whether there are any.

use std::io;

use netlink_sys::protocols::NETLINK_XFRM;

use crate::{
    exchange::exchange,
    message::{Messages, NLM_F_DUMP, NLM_F_REQUEST},
    socket::Socket,
};

const XFRM_MSG_NEWPOLICY: u16 = 0x13;
const XFRM_MSG_GETPOLICY: u16 = 0x15;
/// Length of `struct xfrm_userpolicy_id`, which a question begins with.
const QUESTION: usize = 64;
/// Where `struct xfrm_userpolicy_info` has the direction.
const DIRECTION: usize = 160;
/// In, out and forwarded; higher ones are of a single socket.
const DIRECTIONS: u8 = 3;

/// Whether this network namespace has policies that are not of a single socket. None on a kernel
/// without IPsec.
pub fn has_policies() -> io::Result<bool> {
    let mut socket = match Socket::open(NETLINK_XFRM) {
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(false),
        socket => socket?,
    };
    let mut messages = Messages::default();
    let flags = NLM_F_REQUEST | NLM_F_DUMP;
    messages.add_beginning(XFRM_MSG_GETPOLICY, flags, &[0; QUESTION], |_| {});
    let mut found = false;
    exchange(&mut socket, messages.as_bytes(), |message| {
        let direction = message.payload().get(DIRECTION);
        found |= message.message_type() == XFRM_MSG_NEWPOLICY
            && direction.is_some_and(|direction| *direction < DIRECTIONS);
        Ok(())
    })??;
    Ok(found)
}
