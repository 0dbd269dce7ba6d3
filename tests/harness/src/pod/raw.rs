//! Packets that a process writes itself, IP header and all: no hook on sockets sees where they go.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::AsRawFd as _,
};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
};

/// Sends `packet`, from its IPv4 header on.
pub(super) fn send(packet: &[u8]) -> Result<(), String> {
    let destination = packet.get(16..20).and_then(|bytes| bytes.first_chunk());
    let destination: [u8; 4] = *destination.ok_or("a packet without a whole IPv4 header")?;
    let to = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::from(destination), 0));
    let (family, flags) = (AddressFamily::Inet, SockFlag::SOCK_CLOEXEC);
    let socket = socket(family, SockType::Raw, flags, SockProtocol::Raw)
        .map_err(|error| format!("cannot open a raw socket: {error}"))?;
    sendto(socket.as_raw_fd(), packet, &to, MsgFlags::empty())
        .map(drop)
        .map_err(|error| format!("cannot send a packet: {error}"))
}
