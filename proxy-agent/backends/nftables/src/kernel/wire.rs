//! Where requests go and answers come from: the kernel's netlink socket. A trait, so that tests can put a
//! kernel in memory in its place, which fails and dies when it is told to.

use std::{fmt::Debug, io, ops::ControlFlow};

use proxy_netlink::{
    message::{Messages, NetlinkBuffer, answers},
    netfilter,
    socket::Socket,
};

/// Takes one answer, with the number of the message that it answers, counted from 1. Breaks when no
/// more is to come.
pub type Take<'a> = dyn FnMut(u32, &NetlinkBuffer<&[u8]>) -> ControlFlow<()> + 'a;

/// A connection to `nf_tables`.
pub trait Wire: Debug + Send {
    /// Opens it, unless it is open.
    fn open(&mut self) -> io::Result<()>;

    /// Sends `request`, and hands each answer to `take` until that breaks. Closes it with an error.
    fn exchange(&mut self, request: &Messages, take: &mut Take<'_>) -> io::Result<()>;

    /// Closes it, and with it all that is still to be read.
    fn close(&mut self);
}

/// A socket in the network namespace of the thread that opens it.
#[derive(Debug)]
pub struct NetfilterSocket {
    /// `None` after an error: it may hold answers that nobody waits for any more, or be in the
    /// middle of one.
    socket: Option<Socket>,
    room: usize,
}

impl NetfilterSocket {
    /// One with room for so many bytes of answers, not open yet.
    pub const fn with_room(room: usize) -> Self {
        Self { socket: None, room }
    }
}

impl Wire for NetfilterSocket {
    fn open(&mut self) -> io::Result<()> {
        if self.socket.is_some() {
            return Ok(());
        }
        let socket = netfilter::open()?;
        // Without the right to it, what the administrator allows is what there is.
        if let Err(error) = socket.make_room(self.room) {
            tracing::debug!(%error, "room for answers not raised");
        }
        self.socket = Some(socket);
        Ok(())
    }

    fn exchange(&mut self, request: &Messages, take: &mut Take<'_>) -> io::Result<()> {
        self.open()?;
        let Some(mut socket) = self.socket.take() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let asked = socket.send(request.as_bytes())?;
        let mut answer = Vec::new();
        'reading: loop {
            socket.receive(&mut answer)?;
            for message in answers(&answer, asked) {
                let (number, message) = message.map_err(io::Error::other)?;
                if take(number, &message).is_break() {
                    break 'reading;
                }
            }
        }
        self.socket = Some(socket);
        Ok(())
    }

    fn close(&mut self) {
        self.socket = None;
    }
}
