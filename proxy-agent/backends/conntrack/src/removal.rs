//! Removes entries of the kernel's table of connections, by the handful: a system call for each
//! would be most of the work.

use proxy_model::IpFamily;

use super::{ConntrackError, attempted, flow::Identity, message::delete};
use proxy_netlink::{
    message::{Messages, answers, end},
    netfilter::open,
    socket::Socket,
};

/// Entries of a handful. Each is answered, and all answers must fit into the socket.
const HANDFUL: usize = 64;

/// Removes entries of one family.
pub(super) struct Removal {
    socket: Socket,
    family: IpFamily,
    /// What is to be removed next, and how many that are.
    requests: Messages,
    waiting: usize,
    removed: usize,
}

impl Removal {
    /// On a socket of its own: another one is being read from meanwhile.
    pub(super) fn open(family: IpFamily) -> Result<Self, ConntrackError> {
        let opened = attempted("opening a netlink socket to remove connections");
        Ok(Self {
            socket: open().map_err(opened)?,
            family,
            requests: Messages::default(),
            waiting: 0,
            removed: 0,
        })
    }

    /// Removes this entry, now or with later ones.
    pub(super) fn remove(&mut self, identity: Identity<'_>) -> Result<(), ConntrackError> {
        delete(&mut self.requests, self.family, identity);
        self.waiting += 1;
        match self.waiting {
            HANDFUL => self.finish(),
            _ => Ok(()),
        }
    }

    /// Removes what is still to be removed. An entry that cannot be removed keeps no other from
    /// it; one that is gone already, or is another one by now, is no error.
    pub(super) fn finish(&mut self) -> Result<(), ConntrackError> {
        if self.waiting == 0 {
            return Ok(());
        }
        let attempt = attempted("removing a connection over netlink");
        let requests = std::mem::take(&mut self.requests);
        let asked = self.socket.send(requests.as_bytes()).map_err(&attempt)?;
        let mut refused = Ok(());
        let mut answer = Vec::new();
        while self.waiting > 0 {
            self.socket.receive(&mut answer).map_err(&attempt)?;
            for message in answers(&answer, asked) {
                let (_, message) = message?;
                let Some(ended) = end(&message)? else {
                    continue;
                };
                self.waiting = self.waiting.saturating_sub(1);
                match ended {
                    Ok(()) => self.removed += 1,
                    Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                    Err(error) => refused = Err(attempt(error)),
                }
            }
        }
        refused
    }

    /// How many were removed.
    pub(super) fn removed(&self) -> usize {
        self.removed
    }
}
