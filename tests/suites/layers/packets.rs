//! Packets as whoever receives them sees them: on raw sockets in a network namespace, or on the wire
//! of a virtual machine.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, socket},
};
use proxy_model::Protocol;
use proxy_tests::{
    journey::{
        datagram::{self, Meaning},
        tun::Tun,
    },
    world::Host,
};

/// Something that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet {
    /// A packet of a connection.
    Of {
        protocol: Protocol,
        source: SocketAddr,
        destination: SocketAddr,
        /// Of TCP: it opens the connection, and answers nothing.
        opens: bool,
        /// Its number, if a test wrote it.
        token: Option<u32>,
    },
    /// The packet of this number is refused.
    Refusal(u32),
}

/// Where packets come in.
pub enum Ears {
    /// At a network namespace.
    Sockets(Vec<OwnedFd>),
    /// At a virtual machine.
    Frames(Tun),
}

const PROTOCOLS: [SockProtocol; 4] = [
    SockProtocol::Tcp,
    SockProtocol::Udp,
    SockProtocol::Sctp,
    SockProtocol::Icmp,
];

impl Ears {
    /// Hears what is delivered to `host` over IPv4.
    pub fn at(host: &Host) -> Self {
        let open = || {
            PROTOCOLS.map(|protocol| {
                let (family, flags) = (AddressFamily::Inet, SockFlag::SOCK_CLOEXEC);
                socket(family, SockType::Raw, flags, protocol).unwrap()
            })
        };
        Self::Sockets(host.netns().run(open).unwrap().into())
    }

    /// All that came since the last time.
    pub fn heard(&self) -> Vec<Packet> {
        let mut buffer = [0; 2048];
        let mut heard = Vec::new();
        match self {
            Self::Sockets(sockets) => {
                for socket in sockets {
                    loop {
                        match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                            Ok(length) => heard.extend(read(&buffer[..length])),
                            Err(Errno::EAGAIN) => break,
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            }
            Self::Frames(wire) => {
                while let Some(length) = wire.next(&mut buffer).unwrap() {
                    // What is behind the header of Ethernet, if that is IPv4.
                    if buffer[12..14] == [0x08, 0x00] {
                        heard.extend(read(&buffer[14..length]));
                    }
                }
            }
        }
        heard
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Sockets(sockets) => sockets.iter().map(AsFd::as_fd).collect(),
            Self::Frames(wire) => vec![wire.as_fd()],
        }
    }
}

/// Waits until one of them hears something.
pub fn wait(ears: &[&Ears]) {
    let fds = ears.iter().flat_map(|ears| ears.fds());
    let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    let limit = PollTimeout::try_from(super::LIMIT).unwrap();
    match poll(&mut fds, limit) {
        Ok(0) => panic!("nothing came"),
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => panic!("{error}"),
    }
}

fn read(packet: &[u8]) -> Option<Packet> {
    let token = match datagram::decode(packet) {
        Some(Meaning::Refusal(token)) => return Some(Packet::Refusal(token)),
        Some(Meaning::First(first)) => Some(first.token),
        Some(Meaning::TooBig(_)) | None => None,
    };
    let segment = packet.get(usize::from(packet.first()? & 0xf) * 4..)?;
    let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp]
        .into_iter()
        .find(|one| datagram::number(*one) == packet[9])?;
    let address = |at: usize, port: usize| -> Option<SocketAddr> {
        let octets: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
        let port = segment.get(port..port + 2)?.try_into().ok()?;
        let ip = IpAddr::from(Ipv4Addr::from(octets));
        Some(SocketAddr::new(ip, u16::from_be_bytes(port)))
    };
    let opens = match protocol {
        // SYN, and no ACK.
        Protocol::Tcp => segment.get(13)? & 0x12 == 0x02,
        Protocol::Udp | Protocol::Sctp => true,
    };
    Some(Packet::Of {
        protocol,
        source: address(12, 0)?,
        destination: address(16, 2)?,
        opens,
        token,
    })
}
