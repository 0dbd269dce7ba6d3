//! Addresses of devices, as the kernel lists them.

use std::{io, net::IpAddr};

use super::{
    RouteSocket,
    numbers::{IFA_ADDRESS, IFA_FLAGS, IFA_LOCAL, RTM_GETADDR},
    word,
};
use crate::attributes::{Read, exactly};

/// Length of `struct ifaddrmsg`: family, prefix length, flags, scope, index.
const HEAD: usize = 8;

/// `AF_INET`.
pub(super) const IPV4: u8 = 2;
/// `AF_INET6`.
const IPV6: u8 = 10;

/// Families of addresses, as the kernel numbers them.
pub(super) const FAMILIES: [u8; 2] = [IPV4, IPV6];

/// An address of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The number of the device.
    pub device: u32,
    /// This host's; on a point-to-point link not the other end's.
    pub address: IpAddr,
    /// How many of its bits the network has.
    pub prefix: u8,
    /// `RT_SCOPE_UNIVERSE` and others.
    pub scope: u8,
    /// `IFA_F_TENTATIVE` and others.
    pub flags: u32,
}

impl RouteSocket {
    /// All addresses of both families.
    pub fn addresses(&mut self) -> io::Result<Vec<Address>> {
        let mut all = Vec::new();
        for family in FAMILIES {
            let mut begins = [0; HEAD];
            begins[0] = family;
            let read = |head: &[u8], attributes: Read<'_>| address(family, head, attributes);
            all.extend(self.dump(RTM_GETADDR, &begins, |_| {}, read)?);
        }
        Ok(all)
    }
}

/// `None` for what is of another family: a kernel without IPv6 lists all that it has when asked for
/// that.
fn address(family: u8, head: &[u8], attributes: Read<'_>) -> Option<Address> {
    if head[0] != family {
        return None;
    }
    let value = attributes
        .get(IFA_LOCAL)
        .or_else(|| attributes.get(IFA_ADDRESS))?;
    Some(Address {
        device: word(head, 4),
        address: ip(value)?,
        prefix: head[1],
        scope: head[3],
        flags: attributes.native(IFA_FLAGS).unwrap_or(head[2].into()),
    })
}

/// An address of either family.
pub(super) fn ip(value: &[u8]) -> Option<IpAddr> {
    let four = exactly::<4>(value).map(IpAddr::from);
    four.or_else(|_| exactly::<16>(value).map(IpAddr::from))
        .ok()
}
