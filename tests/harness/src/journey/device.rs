//! Devices of a node whose other end the test holds, by what their packets begin with and how they come
//! in. Whatever the kind, IP packets are given in and taken out.

use std::{
    fmt,
    io::{self, IoSlice},
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, sendmsg, socket,
    },
};

use super::tun::Tun;
use crate::netns::NetNs;

/// What a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Kind {
    /// Of IP packets: a tunnel has no link layer.
    #[default]
    Tun,
    /// Of frames that a process writes, as a virtual machine does.
    Tap,
    /// One end of a wire between two network namespaces.
    Veth,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tun, Self::Tap, Self::Veth];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tun => "tun",
            Self::Tap => "tap",
            Self::Veth => "veth",
        })
    }
}

/// The hardware addresses of every such device, and of whoever sends to it. No device asks for any: they
/// are set up without ARP.
const OWN: [u8; 6] = [2, 0x63, 0x76, 0, 0, 1];
const FAR: [u8; 6] = [2, 0x63, 0x76, 0, 0, 2];

/// Bytes of the header of Ethernet, and where it says who sent the frame.
const HEADER: usize = 14;
const SENDER: std::ops::Range<usize> = 6..12;

const V4: [u8; 2] = [0x08, 0x00];
const V6: [u8; 2] = [0x86, 0xdd];

/// A device of the node. Gone when dropped.
#[derive(Debug)]
pub struct Device {
    name: String,
    end: End,
}

#[derive(Debug)]
enum End {
    Packets(Tun),
    Frames(Tun),
    /// A packet socket on the other end of the wire; it keeps the network namespace alive.
    Wire(OwnedFd),
}

impl Device {
    /// Makes one in the network namespace `node`; it is up.
    pub fn new(node: &NetNs, name: &str, kind: Kind) -> Result<Self> {
        let end = match kind {
            Kind::Tun => End::Packets(node.run(|| Tun::new(name))??),
            Kind::Tap => End::Frames(node.run(|| Tun::of_frames(name))??),
            Kind::Veth => {
                let far = NetNs::new()?;
                let path = far.path();
                node.ip(&format!(
                    "link add {name} type veth peer name far netns {path}\n"
                ))?;
                far.ip("link set far arp off up\n")?;
                End::Wire(far.run(|| listen("far"))??)
            }
        };
        let link = match kind {
            Kind::Tun => String::new(),
            Kind::Tap | Kind::Veth => {
                let address = OWN.map(|byte| format!("{byte:02x}")).join(":");
                format!("address {address} arp off")
            }
        };
        node.ip(&format!("link set {name} {link} up\n"))
            .with_context(|| format!("cannot set up the device {name}"))?;
        Ok(Self {
            name: name.to_owned(),
            end,
        })
    }

    /// Makes `packet`, from its IP header on, arrive on it.
    pub fn inject(&self, packet: &[u8]) -> Result<()> {
        let kind = match packet.first().map(|first| first >> 4) {
            Some(4) => V4,
            _ => V6,
        };
        let frame = || [&OWN[..], &FAR, &kind, packet].concat();
        match &self.end {
            End::Packets(tun) => tun.inject(packet),
            End::Frames(tap) => tap.inject(&frame()),
            End::Wire(socket) => {
                let frame = frame();
                let sent = sendmsg::<()>(
                    socket.as_raw_fd(),
                    &[IoSlice::new(&frame)],
                    &[],
                    MsgFlags::empty(),
                    None,
                );
                let sent =
                    sent.with_context(|| format!("cannot send a frame in by {}", self.name))?;
                ensure!(sent == frame.len(), "half a frame went in");
                Ok(())
            }
        }
    }

    /// The next packet that left by it, from its IP header on; `None` if there is none now.
    pub fn next<'b>(&self, buffer: &'b mut [u8]) -> Result<Option<&'b [u8]>> {
        loop {
            let length = match &self.end {
                End::Packets(tun) => {
                    let length = tun.next(buffer)?;
                    return Ok(length.map(|length| &buffer[..length]));
                }
                End::Frames(tap) => tap.next(buffer)?,
                End::Wire(socket) => {
                    match recv(socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                        Ok(length) => Some(length),
                        Err(Errno::EAGAIN) => None,
                        Err(error) => {
                            return Err(error)
                                .with_context(|| format!("cannot read from {}", self.name));
                        }
                    }
                }
            };
            let Some(length) = length else {
                return Ok(None);
            };
            // The socket hears what is sent by it, too.
            if length >= HEADER && buffer[SENDER] != FAR {
                return Ok(Some(&buffer[HEADER..length]));
            }
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.end {
            End::Packets(tun) | End::Frames(tun) => tun.as_fd(),
            End::Wire(socket) => socket.as_fd(),
        }
    }
}

/// A socket for all frames on this device of the calling thread's network namespace.
fn listen(device: &str) -> Result<OwnedFd> {
    let index = nix::net::if_::if_nametoindex(device)
        .with_context(|| format!("cannot find the device {device}"))?;
    let flags = SockFlag::SOCK_CLOEXEC;
    let all = SockProtocol::EthAll;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, all)
        .context("cannot open a packet socket")?;
    let address = libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).expect("families have small numbers"),
        sll_protocol: u16::try_from(libc::ETH_P_ALL)
            .expect("a type of frames has 16 bits")
            .to_be(),
        sll_ifindex: index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = libc::socklen_t::try_from(size_of_val(&address)).expect("an address is short");
    #[expect(unsafe_code, reason = "nix makes no address of a packet socket")]
    // SAFETY: bind reads one sockaddr_ll, of that length, which lives until the call returns.
    let done = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if done < 0 {
        return Err(io::Error::last_os_error())
            .with_context(|| format!("cannot listen on the device {device}"));
    }
    Ok(socket)
}
