//! The node itself as sender and receiver: raw sockets in its network namespace, which send any
//! source and see whatever is delivered to the node, whether or not somebody listens.

use std::{
    io::IoSliceMut,
    net::{IpAddr, Ipv6Addr, SocketAddrV4, SocketAddrV6},
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn,
        SockaddrIn6, recv, recvmsg, sendto, setsockopt, socket, sockopt,
    },
};

use super::datagram::{self, Meaning};

/// What is received of either family; ICMP for refusals.
const V4: [SockProtocol; 4] = [
    SockProtocol::Tcp,
    SockProtocol::Udp,
    SockProtocol::Sctp,
    SockProtocol::Icmp,
];
const V6: [SockProtocol; 4] = [
    SockProtocol::Tcp,
    SockProtocol::Udp,
    SockProtocol::Sctp,
    SockProtocol::IcmpV6,
];

/// The sockets.
#[derive(Debug)]
pub struct Local {
    sender4: OwnedFd,
    sender6: OwnedFd,
    ears: Vec<Ear>,
}

/// One that receives.
#[derive(Debug)]
pub struct Ear {
    fd: OwnedFd,
    is_v4: bool,
    number: u8,
}

impl Local {
    /// Opens them in the network namespace of the calling thread.
    pub fn open() -> Result<Self> {
        let of = |family, protocol| {
            socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)
                .with_context(|| format!("cannot open a raw socket ({family:?}, {protocol:?})"))
        };
        let mut ears = Vec::new();
        for (family, protocols) in [(AddressFamily::Inet, V4), (AddressFamily::Inet6, V6)] {
            for protocol in protocols {
                let fd = of(family, protocol)?;
                if family == AddressFamily::Inet6 {
                    setsockopt(&fd, sockopt::Ipv6RecvPacketInfo, &true)
                        .context("cannot ask for the destinations of IPv6 packets")?;
                }
                ears.push(Ear {
                    fd,
                    is_v4: family == AddressFamily::Inet,
                    number: u8::try_from(protocol as i32).expect("a protocol has eight bits"),
                });
            }
        }
        Ok(Self {
            // These take packets with their IP headers.
            sender4: of(AddressFamily::Inet, SockProtocol::Raw)?,
            sender6: of(AddressFamily::Inet6, SockProtocol::Raw)?,
            ears,
        })
    }

    /// Sends `packet`, from its IP header on, as the node, to where that says.
    pub fn send(&self, packet: &[u8], destination: IpAddr) -> Result<()> {
        let sent = match destination {
            IpAddr::V4(address) => {
                let to = SockaddrIn::from(SocketAddrV4::new(address, 0));
                sendto(self.sender4.as_raw_fd(), packet, &to, MsgFlags::empty())
            }
            IpAddr::V6(address) => {
                // The kernel takes the port for a protocol.
                let to = SockaddrIn6::from(SocketAddrV6::new(address, 0, 0, 0));
                sendto(self.sender6.as_raw_fd(), packet, &to, MsgFlags::empty())
            }
        };
        match sent {
            Ok(length) => ensure!(length == packet.len(), "half a packet was sent"),
            // A hook took it: what it did besides is for the ears.
            Err(Errno::EPERM) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot send to {destination}"));
            }
        }
        Ok(())
    }

    /// Those that receive.
    pub fn ears(&self) -> &[Ear] {
        &self.ears
    }
}

impl Ear {
    /// What the next packet means that was delivered to the node, noise left out; `None` if there is
    /// none now.
    pub fn next(&self, buffer: &mut [u8]) -> Result<Option<Meaning>> {
        loop {
            let heard = if self.is_v4 {
                self.hear4(buffer)
            } else {
                self.hear6(buffer)
            };
            match heard {
                Ok(Some(meaning)) => return Ok(Some(meaning)),
                Ok(None) => {}
                Err(Errno::EAGAIN) => return Ok(None),
                Err(error) => return Err(error).context("cannot receive from a raw socket"),
            }
        }
    }

    /// With its header.
    fn hear4(&self, buffer: &mut [u8]) -> nix::Result<Option<Meaning>> {
        let length = recv(self.fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT)?;
        Ok(datagram::decode(&buffer[..length]))
    }

    /// Without, so that addresses come beside it.
    fn hear6(&self, buffer: &mut [u8]) -> nix::Result<Option<Meaning>> {
        let mut space = nix::cmsg_space!(libc::in6_pktinfo);
        let mut slices = [IoSliceMut::new(buffer)];
        let received = recvmsg::<SockaddrIn6>(
            self.fd.as_raw_fd(),
            &mut slices,
            Some(&mut space),
            MsgFlags::MSG_DONTWAIT,
        )?;
        let source = received.address.map(|address| address.ip());
        let destination = received.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::Ipv6PacketInfo(info) => {
                Some(Ipv6Addr::from(info.ipi6_addr.s6_addr))
            }
            _ => None,
        });
        let length = received.bytes;
        let (Some(source), Some(destination)) = (source, destination) else {
            return Ok(None);
        };
        let payload = &buffer[..length];
        let heard =
            datagram::behind_header(source.into(), destination.into(), self.number, payload);
        Ok(heard)
    }
}

impl AsFd for Ear {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
