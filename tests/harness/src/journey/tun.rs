//! Devices whose other end the test holds: what is written arrives on the device, what leaves by
//! the device is read.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd},
        unix::fs::OpenOptionsExt as _,
    },
};

use anyhow::{Context as _, Result, ensure};
use nix::unistd::{read, write};

/// Where the kernel makes such devices.
pub const CLONE_DEVICE: &str = "/dev/net/tun";

/// A device of IP packets, without link layer unless it is one [of frames](Tun::of_frames). Gone when
/// dropped.
#[derive(Debug)]
pub struct Tun {
    name: String,
    file: File,
}

impl Tun {
    /// Makes one in the network namespace of the calling thread; it is down.
    pub fn new(name: &str) -> Result<Self> {
        Self::of_kind(name, libc::IFF_TUN)
    }

    /// One of Ethernet frames in place of packets, as the wire of a virtual machine is.
    pub fn of_frames(name: &str) -> Result<Self> {
        Self::of_kind(name, libc::IFF_TAP)
    }

    fn of_kind(name: &str, kind: libc::c_int) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(CLONE_DEVICE)
            .with_context(|| format!("cannot open {CLONE_DEVICE}, to make the device {name}"))?;
        ensure!(
            !name.is_empty() && name.len() < libc::IFNAMSIZ,
            "{name:?} is no name for a device"
        );
        attach(&file, name, kind).with_context(|| format!("cannot make the device {name}"))?;
        Ok(Self {
            name: name.to_owned(),
            file,
        })
    }

    /// Makes `packet`, from its IP header on, arrive on it. When this returns, the kernel has done
    /// what it does at once, which is all of its way through the node.
    pub fn inject(&self, packet: &[u8]) -> Result<()> {
        let written = write(&self.file, packet)
            .with_context(|| format!("cannot send a packet in by {}", self.name))?;
        ensure!(written == packet.len(), "half a packet went in");
        Ok(())
    }

    /// The next packet that left by it; `None` if there is none now.
    pub fn next(&self, buffer: &mut [u8]) -> Result<Option<usize>> {
        match read(&self.file, buffer) {
            Ok(length) => Ok(Some(length)),
            Err(nix::errno::Errno::EAGAIN) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read from {}", self.name)),
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Ties the open clone device to a new device called `name`, shorter than `IFNAMSIZ`.
fn attach(file: &File, name: &str, kind: libc::c_int) -> io::Result<()> {
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_flags: i16::try_from(kind | libc::IFF_NO_PI)
                .expect("both flags are in the low bits"),
        },
    };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    #[expect(unsafe_code, reason = "neither std nor nix knows TUN devices")]
    // SAFETY: TUNSETIFF reads and writes one ifreq, which lives until the call returns; its name
    // ends with a zero because it is shorter than the field.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
