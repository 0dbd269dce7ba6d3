//! That devices, addresses, routes, rules or filters changed, not what: whoever wants that lists all
//! of it. So nothing is lost when notifications are, and no history can lead astray.

use std::{
    fmt,
    io::{self, ErrorKind, Read as _, Write as _},
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::Arc,
    time::Duration,
};

use netlink_sys::{SocketAddr, protocols::NETLINK_ROUTE};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use super::numbers::{
    RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_IFADDR,
    RTNLGRP_IPV6_ROUTE, RTNLGRP_IPV6_RULE, RTNLGRP_LINK, RTNLGRP_NEXTHOP, RTNLGRP_TC,
};

const GROUPS: [u32; 9] = [
    RTNLGRP_LINK,
    RTNLGRP_TC,
    RTNLGRP_IPV4_IFADDR,
    RTNLGRP_IPV4_ROUTE,
    RTNLGRP_IPV4_RULE,
    RTNLGRP_IPV6_IFADDR,
    RTNLGRP_IPV6_ROUTE,
    RTNLGRP_IPV6_RULE,
    RTNLGRP_NEXTHOP,
];

/// A subscription to changes in the network namespace of the thread that made it. What was listed
/// after it was made misses nothing.
pub struct Changes {
    socket: netlink_sys::Socket,
    woken: UnixStream,
    waker: Waker,
    /// For notifications, which nobody reads.
    buffer: Vec<u8>,
}

/// Ends a wait from another thread.
#[derive(Debug, Clone)]
pub struct Waker(Arc<UnixStream>);

impl Waker {
    /// Ends the wait of now, or the next one.
    pub fn wake(&self) {
        // Where there is no room it was woken already, and where nobody reads nobody waits.
        (&*self.0).write_all(&[0]).ok();
    }
}

impl Changes {
    /// Subscribes.
    pub fn subscribe() -> io::Result<Self> {
        let mut socket = netlink_sys::Socket::new(NETLINK_ROUTE)?;
        socket.set_non_blocking(true)?;
        let bits = GROUPS.iter().map(|group| 1 << (group - 1));
        socket.bind(&SocketAddr::new(0, bits.sum()))?;
        let (woken, waker) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        Ok(Self {
            socket,
            woken,
            waker: Waker(Arc::new(waker)),
            // The rest of a longer one is cut off.
            buffer: Vec::with_capacity(64),
        })
    }

    /// What ends a wait.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Waits until something changes, but no longer than `timeout`, and not after [`Waker::wake`].
    /// Whether something did. All notifications that are there by then are one change.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        let mut both = [
            PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.woken.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut both, timeout) {
            Ok(_) => {}
            // Whoever waits knows for how long it wanted to.
            Err(Errno::EINTR) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
        while matches!(self.woken.read(&mut [0; 64]), Ok(1..)) {}
        let mut changed = false;
        while self.next()? {
            changed = true;
        }
        Ok(changed)
    }

    /// Takes one notification. Those for which there was no room are a change like any other.
    fn next(&mut self) -> io::Result<bool> {
        self.buffer.clear();
        match self.socket.recv(&mut self.buffer, 0) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").finish_non_exhaustive()
    }
}
