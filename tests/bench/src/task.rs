//! What is measured: one kind of request, sent again and again for a moment.

use std::{
    fmt,
    net::SocketAddr,
    os::fd::{AsRawFd as _, OwnedFd},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::{
        socket::{
            AddressFamily, MsgFlags, SockFlag, SockType, SockaddrStorage, connect, getpeername,
            recv, recvfrom, send, sendto, setsockopt, socket, sockopt,
        },
        time::TimeVal,
    },
    time::{ClockId, clock_gettime},
};
use serde::{Deserialize, Serialize};

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Task {
    /// TCP: connect and close, by RST, so that nothing is left in `TIME_WAIT`.
    Connect,
    /// The same with a `getpeername` in between.
    ConnectAndAsk,
    /// UDP: a request and its response on one connected socket.
    Connected,
    /// On one unconnected socket.
    Unconnected,
    /// On a new connected socket for each request, as a resolver does it.
    NewConnected,
    /// On a new unconnected socket for each request.
    NewUnconnected,
    /// TCP: blocks of [`BLOCK`] bytes on one connection, to who reads and says nothing.
    Stream,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Connect => "connect",
            Self::ConnectAndAsk => "connect, getpeername",
            Self::Connected => "connected socket",
            Self::Unconnected => "unconnected socket",
            Self::NewConnected => "new connected socket each",
            Self::NewUnconnected => "new unconnected socket each",
            Self::Stream => "stream",
        })
    }
}

/// What a slice came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Slice {
    /// Requests that were sent, those before time was taken included.
    pub(super) sent: u64,
    /// Requests that were answered in the time taken; one that is not ends the bench.
    pub(super) requests: u64,
    /// Time it took.
    pub(super) elapsed: Duration,
    /// Time that this process had a CPU, the kernel's work for it included.
    pub(super) cpu: Duration,
}

/// How many requests between two looks at the clock.
const BATCH: u32 = 8;
/// Requests before time is taken: what the slice before left in caches and queues is not counted.
const WARM_UP: u32 = 24;
/// How long a response may take before it counts as lost.
const LOST: i64 = 2;

/// Sends requests to `targets`, one after the other, for about `length`. `next` is the position
/// in `targets`, carried from slice to slice.
pub(super) fn run(
    task: Task,
    targets: &[SocketAddr],
    next: &mut usize,
    length: Duration,
) -> Result<Slice> {
    ensure!(!targets.is_empty(), "there is nothing to send to");
    // Not parsed or converted while time is taken.
    let addresses: Vec<SockaddrStorage> = targets.iter().map(|to| (*to).into()).collect();
    let kept = match task {
        Task::Connected => Some(connected_udp(&addresses[0])?),
        Task::Unconnected => Some(udp_socket(&addresses[0])?),
        Task::Stream => Some(connected_tcp(&addresses[0])?),
        _ => None,
    };
    let mut once = || -> Result<()> {
        let to = &addresses[*next % addresses.len()];
        *next += 1;
        match (task, &kept) {
            (Task::Connect, _) => drop(connected_tcp(to)?),
            (Task::ConnectAndAsk, _) => {
                let socket = connected_tcp(to)?;
                getpeername::<SockaddrStorage>(socket.as_raw_fd())
                    .context("cannot ask for the peer")?;
            }
            (Task::Connected, Some(socket)) => ask_connected(socket)?,
            (Task::Unconnected, Some(socket)) => ask(socket, &addresses[0])?,
            (Task::Stream, Some(socket)) => write_block(socket)?,
            (Task::NewUnconnected, _) => ask(&udp_socket(to)?, to)?,
            (Task::Stream, None) => write_block(&connected_tcp(to)?)?,
            (Task::NewConnected | Task::Connected | Task::Unconnected, _) => {
                ask_connected(&connected_udp(to)?)?;
            }
        }
        Ok(())
    };
    for _ in 0..WARM_UP {
        once()?;
    }
    let mut requests = 0;
    let cpu_before = cpu_time()?;
    let began = Instant::now();
    while began.elapsed() < length {
        for _ in 0..BATCH {
            once()?;
        }
        requests += u64::from(BATCH);
    }
    Ok(Slice {
        sent: requests + u64::from(WARM_UP),
        requests,
        elapsed: began.elapsed(),
        cpu: cpu_time()?.saturating_sub(cpu_before),
    })
}

/// A connection that is reset when it is closed.
pub(super) fn connected_tcp(to: &SockaddrStorage) -> Result<OwnedFd> {
    let socket = new_socket(to, SockType::Stream)?;
    let reset = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&socket, sockopt::Linger, &reset).context("cannot make close reset")?;
    connect(socket.as_raw_fd(), to).with_context(|| format!("cannot connect to {to}"))?;
    Ok(socket)
}

fn connected_udp(to: &SockaddrStorage) -> Result<OwnedFd> {
    let socket = udp_socket(to)?;
    connect(socket.as_raw_fd(), to).with_context(|| format!("cannot connect to {to}"))?;
    Ok(socket)
}

fn udp_socket(to: &SockaddrStorage) -> Result<OwnedFd> {
    let socket = new_socket(to, SockType::Datagram)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(LOST, 0))
        .context("cannot set a timeout")?;
    Ok(socket)
}

fn new_socket(to: &SockaddrStorage, kind: SockType) -> Result<OwnedFd> {
    let family = if to.as_sockaddr_in6().is_some() {
        AddressFamily::Inet6
    } else {
        AddressFamily::Inet
    };
    socket(family, kind, SockFlag::SOCK_CLOEXEC, None).context("cannot open a socket")
}

/// What [`Task::Stream`] writes at a time.
pub(super) const BLOCK: usize = 1 << 16;

fn write_block(socket: &OwnedFd) -> Result<()> {
    static ZEROS: [u8; BLOCK] = [0; BLOCK];
    let mut left = &ZEROS[..];
    while !left.is_empty() {
        let written = send(socket.as_raw_fd(), left, MsgFlags::empty()).context("cannot write")?;
        left = &left[written..];
    }
    Ok(())
}

/// Of the size of a small DNS query.
const REQUEST: [u8; 40] = [0; 40];

fn ask_connected(socket: &OwnedFd) -> Result<()> {
    let mut response = [0; 64];
    send(socket.as_raw_fd(), &REQUEST, MsgFlags::empty()).context("cannot send")?;
    recv(socket.as_raw_fd(), &mut response, MsgFlags::empty()).context("no response")?;
    Ok(())
}

fn ask(socket: &OwnedFd, to: &SockaddrStorage) -> Result<()> {
    let mut response = [0; 64];
    sendto(socket.as_raw_fd(), &REQUEST, to, MsgFlags::empty())
        .with_context(|| format!("cannot send to {to}"))?;
    let (_, from) = recvfrom::<SockaddrStorage>(socket.as_raw_fd(), &mut response)
        .with_context(|| format!("no response from {to}"))?;
    ensure!(
        from.as_ref() == Some(to),
        "{to} was asked, and {from:?} responded"
    );
    Ok(())
}

fn cpu_time() -> Result<Duration> {
    let time =
        clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).context("cannot read the CPU clock")?;
    Ok(time.into())
}
