//! Devices, as the kernel lists them. Knows no reason to choose one.

use std::io;

use super::{
    RouteSocket, half,
    numbers::{
        IFF_LOOPBACK, IFF_LOWER_UP, IFF_UP, IFLA_BR_NF_CALL_IP6TABLES, IFLA_BR_NF_CALL_IPTABLES,
        IFLA_EXT_MASK, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINK, IFLA_LINK_NETNSID,
        IFLA_LINKINFO, IFLA_MASTER, IFLA_MTU, RTEXT_FILTER_SKIP_STATS, RTM_GETLINK,
    },
    word,
};
use crate::attributes::{Read, text};

/// Length of `struct ifinfomsg`: family, (padding), type, index, flags, change.
const HEAD: usize = 16;

/// A device of this network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// `IFF_UP` and others.
    pub flags: u32,
    /// `ARPHRD_ETHER` or another: what its packets begin with.
    pub hardware: u16,
    /// The device that this one is a port of, or the VRF that it is in.
    pub master: Option<u32>,
    /// The device that this one stands on, or the other end of a pair; where that is in another
    /// network namespace the number means nothing here.
    pub lower: Option<u32>,
    /// Whether [`Self::lower`] is in another network namespace.
    pub lower_is_elsewhere: bool,
    /// What it is, where it is not hardware: `bridge`, `vxlan`, and so on.
    pub kind: Option<String>,
    /// Of a bridge, whether netfilter is told of the packets of IPv4 and of IPv6 that it carries, whatever
    /// `net.bridge.bridge-nf-call-iptables` and its like say of all bridges.
    pub calls_netfilter: [bool; 2],
    /// Bytes of the longest packet.
    pub mtu: u32,
}

impl Link {
    /// Whether the administrator wants it to work.
    pub fn is_up(&self) -> bool {
        self.flags & IFF_UP != 0
    }

    /// Whether its carrier is there.
    pub fn has_carrier(&self) -> bool {
        self.flags & IFF_LOWER_UP != 0
    }

    /// Whether what it sends comes back to this host.
    pub fn is_loopback(&self) -> bool {
        self.flags & IFF_LOOPBACK != 0
    }
}

impl RouteSocket {
    /// All devices.
    pub fn links(&mut self) -> io::Result<Vec<Link>> {
        // Counters are most of what would be told.
        let brief = RTEXT_FILTER_SKIP_STATS;
        self.dump(
            RTM_GETLINK,
            &[0; HEAD],
            |attributes| attributes.native(IFLA_EXT_MASK, brief),
            link,
        )
    }
}

/// In one pass: a device has some fifty attributes, and a node hundreds of devices.
pub(super) fn link(head: &[u8], attributes: Read<'_>) -> Option<Link> {
    let mut link = Link {
        index: word(head, 4),
        flags: word(head, 8),
        hardware: half(head, 2),
        ..Link::default()
    };
    for (kind, value) in attributes.each() {
        match kind {
            // The kernel lets a name be any bytes but a few.
            IFLA_IFNAME => link.name = text(value),
            IFLA_MASTER => link.master = Some(word(value, 0)),
            IFLA_LINK => link.lower = Some(word(value, 0)).filter(|index| *index != 0),
            IFLA_LINK_NETNSID => link.lower_is_elsewhere = true,
            IFLA_LINKINFO => kind_of(&mut link, Read(value)),
            IFLA_MTU => link.mtu = word(value, 0),
            _ => {}
        }
    }
    (!link.name.is_empty()).then_some(link)
}

fn kind_of(link: &mut Link, info: Read<'_>) {
    link.kind = info.get(IFLA_INFO_KIND).map(text);
    if link.kind.as_deref() != Some("bridge") {
        return;
    }
    let data = info.get(IFLA_INFO_DATA).unwrap_or_default();
    link.calls_netfilter = [IFLA_BR_NF_CALL_IPTABLES, IFLA_BR_NF_CALL_IP6TABLES].map(|call| {
        Read(data)
            .get(call)
            .is_some_and(|value| value.first() == Some(&1))
    });
}
