//! The addresses of this host's interfaces: the whole list, and the whole list again whenever it
//! is another one.
//!
//! The kernel's notifications say only that something changed; what is told comes from a dump.
//! So nothing is lost when notifications are (ENOBUFS), and no history can lead astray. The
//! subscription is older than the first dump: what changes in between leads to a second one.

mod answer;
mod dump;

use std::{
    io::{self, ErrorKind},
    net::IpAddr,
    time::Duration,
};

use netlink_packet_core::DecodeError;
use netlink_sys::{
    AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket, protocols::NETLINK_ROUTE,
};
use proxy_model::Backoff;
use thiserror::Error;
use tokio::time::sleep;

use self::dump::dump;

/// Notifications that come within this time are one change: an interface that comes up brings
/// several, and a node that starts pods brings many. A NodePort is to answer on a new address within
/// 100 ms, of which this is a part; reading the list takes less than one.
const JOINED: Duration = Duration::from_millis(20);
/// Until the first further attempt; doubled from attempt to attempt.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Between attempts at most.
const LONGEST_RETRY: Duration = Duration::from_mins(1);

/// `RTMGRP_IPV4_IFADDR` and `RTMGRP_IPV6_IFADDR`, as bits: the numbers of the groups are one more
/// than the places of their bits (rtnetlink(7)).
const GROUPS: u32 = (libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;

/// Why addresses are not known at the moment.
#[derive(Debug, Error)]
enum AddressesError {
    #[error("{attempted} over route netlink: {source}")]
    Kernel {
        attempted: &'static str,
        source: io::Error,
    },
    #[error("decoding the kernel's list of addresses: {0}")]
    Answer(#[from] DecodeError),
}

/// Makes an error of the kernel one that says what was attempted.
fn attempted(attempted: &'static str) -> impl Fn(io::Error) -> AddressesError {
    move |source| AddressesError::Kernel { attempted, source }
}

/// Follows the addresses of the network namespace in which [`Addresses::next`] is first called.
#[derive(Debug)]
pub struct Addresses {
    changes: Option<Changes>,
    /// A dump is wanted.
    due: bool,
    told: Option<Vec<IpAddr>>,
    backoff: Backoff,
}

impl Default for Addresses {
    /// Nothing is asked before [`Addresses::next`].
    fn default() -> Self {
        Self {
            changes: None,
            due: false,
            told: None,
            backoff: Backoff::new(FIRST_RETRY, LONGEST_RETRY),
        }
    }
}

impl Addresses {
    /// All addresses that traffic can be sent to, in order, each once: at once when called first,
    /// then whenever the list is another one than it was. What fails is logged and tried again.
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Vec<IpAddr> {
        loop {
            match self.attempt().await {
                Ok(None) => {}
                Ok(Some(addresses)) => {
                    if self.backoff.failures() > 0 {
                        self.backoff.reset();
                        tracing::info!("interface addresses known again");
                    }
                    if self.told.as_ref() != Some(&addresses) {
                        self.told = Some(addresses.clone());
                        return addresses;
                    }
                }
                Err(error) => self.failed(&error).await,
            }
        }
    }

    /// The list after the next change; `None` if it changed while it was read.
    async fn attempt(&mut self) -> Result<Option<Vec<IpAddr>>, AddressesError> {
        let changes = match &mut self.changes {
            Some(changes) => {
                if !self.due {
                    changes.wait().await?;
                    self.due = true;
                }
                sleep(JOINED).await;
                changes
            }
            none => {
                self.due = true;
                none.insert(Changes::subscribe()?)
            }
        };
        // What was said until now, the dump that follows knows.
        changes.forget()?;
        let addresses = dump().await?;
        self.due = addresses.is_none();
        Ok(addresses)
    }

    async fn failed(&mut self, error: &AddressesError) {
        self.changes = None;
        if self.backoff.failures() == 0 {
            // Once: what is forbidden stays so, and would fill the log.
            tracing::warn!(
                %error,
                text = "NodePorts keep the addresses known so far; retried in the background. \
                        Check whether AF_NETLINK is forbidden (seccomp, RestrictAddressFamilies=)",
                "interface addresses not known"
            );
        }
        sleep(self.backoff.failed()).await;
    }
}

/// A subscription to changes of addresses.
struct Changes {
    socket: TokioSocket,
    /// For notifications, which nobody reads.
    buffer: Vec<u8>,
}

impl Changes {
    fn subscribe() -> Result<Self, AddressesError> {
        let subscribed = attempted("subscribing to changes of addresses");
        let mut socket = TokioSocket::new(NETLINK_ROUTE).map_err(&subscribed)?;
        let groups = SocketAddr::new(0, GROUPS);
        socket.socket_mut().bind(&groups).map_err(&subscribed)?;
        Ok(Self {
            socket,
            // The rest of a longer one is cut off.
            buffer: Vec::with_capacity(64),
        })
    }

    /// Until something changed.
    async fn wait(&mut self) -> Result<(), AddressesError> {
        self.buffer.clear();
        let received = self.socket.recv(&mut self.buffer).await;
        lost_is_changed(received)
    }

    /// Takes all notifications that are there.
    fn forget(&mut self) -> Result<(), AddressesError> {
        loop {
            self.buffer.clear();
            match self.socket.socket_ref().recv(&mut self.buffer, 0) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                received => lost_is_changed(received.map(drop))?,
            }
        }
    }
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes").finish_non_exhaustive()
    }
}

/// Notifications for which there was no room are a change like any other.
fn lost_is_changed(received: io::Result<()>) -> Result<(), AddressesError> {
    match received {
        Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
        received => received.map_err(attempted("waiting for changes of addresses")),
    }
}
