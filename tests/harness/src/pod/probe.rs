//! Sends requests as it is told on stdin and says on stdout what came back.
//!
//! Uses plain blocking sockets of the standard library, so that what a test sees is what an
//! ordinary program would.

use std::{
    collections::HashMap,
    io::{self, BufRead as _, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use nix::errno::Errno;

use super::{
    load::Loads,
    raw,
    wire::{Attempt, Reply, Request, Transport},
};

/// Answers requests until stdin ends.
pub fn run() -> Result<()> {
    let mut sockets = HashMap::new();
    let mut loads = Loads::default();
    let mut stdout = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let request = serde_json::from_str(&line.context("cannot read stdin")?);
        let reply = match request {
            Ok(request) => answer(request, &mut sockets, &mut loads),
            Err(error) => Reply::Failed(format!("not a request: {error}")),
        };
        let mut line = serde_json::to_string(&reply).context("cannot encode a reply")?;
        line.push('\n');
        stdout
            .write_all(line.as_bytes())
            .and_then(|()| stdout.flush())
            .context("cannot reply")?;
    }
    Ok(())
}

fn answer(request: Request, sockets: &mut HashMap<String, Socket>, loads: &mut Loads) -> Reply {
    match request {
        Request::Send {
            transport,
            to,
            socket,
            count,
            timeout,
        } => {
            let mut attempt = || match &socket {
                None => once(transport, to, timeout),
                Some(name) => on_open(sockets, name, transport, to, timeout),
            };
            Reply::Attempts((0..count).map(|_| attempt()).collect())
        }
        Request::Close { socket } => match sockets.remove(&socket) {
            Some(_) => Reply::Done,
            None => Reply::Failed(format!("there is no open socket called {socket}")),
        },
        Request::Packet { packet } => {
            raw::send(&packet).map_or_else(Reply::Failed, |()| Reply::Done)
        }
        Request::LoadStart(load) => loads
            .start(load)
            .map_or_else(Reply::Failed, |()| Reply::Done),
        Request::LoadReport { name } => loads.report(&name).map_or_else(Reply::Failed, Reply::Load),
        Request::LoadWait { more } => loads.wait(&more).map_or_else(Reply::Failed, Reply::Loads),
        Request::LoadStop { name } => loads.stop(&name).map_or_else(Reply::Failed, Reply::Load),
    }
}

fn on_open(
    sockets: &mut HashMap<String, Socket>,
    name: &str,
    transport: Transport,
    to: SocketAddr,
    timeout: Duration,
) -> Attempt {
    if !sockets.contains_key(name) {
        match Socket::open(transport, to, timeout) {
            Ok(socket) => drop(sockets.insert(name.to_owned(), socket)),
            Err(failed) => return failed.into(),
        }
    }
    let socket = sockets
        .get_mut(name)
        .expect("it was there or has just been inserted");
    socket.attempt(to, timeout)
}

/// One request on a socket of its own.
pub(super) fn once(transport: Transport, to: SocketAddr, timeout: Duration) -> Attempt {
    match Socket::open(transport, to, timeout) {
        Ok(mut socket) => socket.attempt(to, timeout),
        Err(failed) => failed.into(),
    }
}

/// An open socket of one [`Transport`].
#[derive(Debug)]
pub(super) struct Socket {
    transport: Transport,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl Socket {
    /// Opens a socket; a connected one is connected to `to`.
    pub(super) fn open(
        transport: Transport,
        to: SocketAddr,
        timeout: Duration,
    ) -> Result<Self, Failed> {
        let to = as_dialled(transport, to);
        let kind = if transport.is_udp() {
            let any: IpAddr = match to {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            let socket = UdpSocket::bind((any, 0)).map_err(|error| failed("bind", &error))?;
            if transport.is_connected() {
                socket
                    .connect(to)
                    .map_err(|error| failed("connect", &error))?;
            }
            Kind::Udp(socket)
        } else {
            // TcpStream::connect_timeout makes a socket of the address's family: for a mapped
            // address an IPv6 one, as wanted.
            let stream = TcpStream::connect_timeout(&to, timeout)
                .map_err(|error| failed("connect", &error))?;
            stream
                .set_nodelay(true)
                .map_err(|error| failed("setsockopt", &error))?;
            Kind::Tcp(stream)
        };
        Ok(Self { transport, kind })
    }

    /// Sends one request and waits for its answer.
    pub(super) fn attempt(&mut self, to: SocketAddr, timeout: Duration) -> Attempt {
        static NONCE: AtomicU64 = AtomicU64::new(0);
        let nonce = NONCE.fetch_add(1, Ordering::Relaxed).to_string();
        let to = as_dialled(self.transport, to);
        let result = match &mut self.kind {
            Kind::Tcp(stream) if self.transport == Transport::Http => get(stream, timeout),
            Kind::Tcp(stream) => line(stream, &nonce, timeout),
            Kind::Udp(socket) => datagram(socket, self.transport, to, &nonce, timeout),
        };
        result.unwrap_or_else(Attempt::from)
    }
}

fn line(stream: &mut TcpStream, nonce: &str, timeout: Duration) -> Result<Attempt, Failed> {
    let peer = stream
        .peer_addr()
        .map_err(|error| failed("getpeername", &error))?;
    stream
        .set_read_timeout(Some(timeout))
        .and_then(|()| stream.write_all(format!("{nonce}\n").as_bytes()))
        .map_err(|error| failed("write", &error))?;
    let answer = read_until(stream, |text| text.ends_with(b"\n"))?;
    Ok(Attempt {
        peer: Some(plain(peer)),
        ..understood(answer.trim_end(), Some(nonce))
    })
}

fn get(stream: &mut TcpStream, timeout: Duration) -> Result<Attempt, Failed> {
    let peer = stream
        .peer_addr()
        .map_err(|error| failed("getpeername", &error))?;
    stream
        .set_read_timeout(Some(timeout))
        .and_then(|()| stream.write_all(b"GET / HTTP/1.1\r\nHost: service\r\n\r\n"))
        .map_err(|error| failed("write", &error))?;
    // The servers' bodies are one line.
    let answer = read_until(stream, |text| {
        text.windows(4)
            .position(|end| end == b"\r\n\r\n")
            .is_some_and(|headers| text.ends_with(b"\n") && text.len() > headers + 4)
    })?;
    let body = answer.trim_end().rsplit('\n').next().unwrap_or_default();
    Ok(Attempt {
        peer: Some(plain(peer)),
        ..understood(body, None)
    })
}

fn read_until(stream: &mut TcpStream, done: impl Fn(&[u8]) -> bool) -> Result<String, Failed> {
    let mut text = Vec::new();
    let mut chunk = [0; 512];
    while !done(&text) {
        match stream
            .read(&mut chunk)
            .map_err(|error| failed("read", &error))?
        {
            0 => return Err(Failed("the connection was closed".to_owned())),
            length => text.extend_from_slice(&chunk[..length]),
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn datagram(
    socket: &UdpSocket,
    transport: Transport,
    to: SocketAddr,
    nonce: &str,
    timeout: Duration,
) -> Result<Attempt, Failed> {
    let peer = if transport.is_connected() {
        socket
            .send(nonce.as_bytes())
            .map_err(|error| failed("send", &error))?;
        let peer = socket
            .peer_addr()
            .map_err(|error| failed("getpeername", &error))?;
        Some(plain(peer))
    } else {
        socket
            .send_to(nonce.as_bytes(), to)
            .map_err(|error| failed("sendto", &error))?;
        None
    };
    let deadline = Instant::now() + timeout;
    let mut buffer = [0; 512];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failed("recvfrom timeout".to_owned()));
        }
        socket
            .set_read_timeout(Some(left))
            .map_err(|error| failed("setsockopt", &error))?;
        let (length, from) = socket
            .recv_from(&mut buffer)
            .map_err(|error| failed("recvfrom", &error))?;
        let text = String::from_utf8_lossy(&buffer[..length]);
        // An answer to an earlier request that was given up is not ours.
        if text.split(' ').nth(1) == Some(nonce) {
            let answer = understood(&text, Some(nonce));
            return Ok(Attempt {
                peer,
                from: Some(plain(from)),
                ..answer
            });
        }
    }
}

/// Reads `IP:PORT` or `IP:PORT NONCE CLIENT`.
fn understood(text: &str, nonce: Option<&str>) -> Attempt {
    let mut words = text.split(' ');
    let address = words.next().unwrap_or_default();
    let echo = words.next();
    let client = words.next().map(str::parse::<SocketAddr>).transpose();
    match (address.parse(), client) {
        (Ok(address), Ok(client)) if echo == nonce && client.is_some() == nonce.is_some() => {
            Attempt {
                answer: Some(address),
                client: client.map(plain),
                ..Attempt::default()
            }
        }
        _ => Failed(format!("the answer was {text:?}")).into(),
    }
}

/// The address to give to the socket call.
fn as_dialled(transport: Transport, to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(v4) if transport.is_mapped() => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
        other => other,
    }
}

/// An IPv4-mapped address as IPv4.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The system call that failed and the name of its error.
#[derive(Debug)]
pub(super) struct Failed(String);

impl From<Failed> for Attempt {
    fn from(Failed(error): Failed) -> Self {
        Self {
            error: Some(error),
            ..Self::default()
        }
    }
}

fn failed(call: &str, error: &io::Error) -> Failed {
    let name = match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock, _) => "timeout".to_owned(),
        (_, Some(number)) => format!("{:?}", Errno::from_raw(number)),
        _ => error.to_string(),
    };
    Failed(format!("{call} {name}"))
}
