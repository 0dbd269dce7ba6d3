//! One entry of the kernel's table of connections, read from the attributes that it is told in
//! (`linux/netfilter/nfnetlink_conntrack.h`). Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use netlink_packet_core::DecodeError;

use proxy_netlink::attributes::{each, exactly};

/// The protocol number of UDP.
pub(super) const UDP: u8 = 17;

pub(super) const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
pub(super) const CTA_STATUS: u16 = 3;
pub(super) const CTA_ID: u16 = 12;
pub(super) const CTA_ZONE: u16 = 18;
const CTA_TUPLE_IP: u16 = 1;
pub(super) const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;
pub(super) const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;
/// A bit of the status: the destination is replaced (`nf_conntrack_common.h`).
pub(super) const IPS_DST_NAT: u32 = 1 << 5;

/// A flow. Protocols without ports have port 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Number of the protocol.
    pub protocol: u8,
    /// Where the first packet came from.
    pub source: SocketAddr,
    /// Where it was sent: what the client dialled.
    pub destination: SocketAddr,
    /// Where answers come from: the endpoint, or `destination` if nobody translated it.
    pub answerer: SocketAddr,
    /// Whether the kernel replaces the destination.
    pub translated: bool,
}

/// What names an entry to the kernel, as the kernel told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Identity<'a> {
    /// The attributes of the first packet's tuple, a zone of one direction among them.
    pub(super) tuple: &'a [u8],
    /// The zone of both directions, if it is not the usual one.
    pub(super) zone: Option<&'a [u8]>,
    /// The number of this very entry: a later one with the same tuple has another.
    pub(super) id: &'a [u8],
}

/// Reads an entry. `None` if it lacks what every entry of an IP protocol has.
pub(super) fn read(attributes: &[u8]) -> Result<Option<(Flow, Identity<'_>)>, DecodeError> {
    let mut identity = Identity::default();
    let (mut original, mut reply) = (Tuple::default(), Tuple::default());
    let mut status = 0;
    for attribute in each(attributes) {
        let (kind, value) = attribute?;
        match kind {
            CTA_TUPLE_ORIG => {
                identity.tuple = value;
                original = Tuple::read(value)?;
            }
            CTA_TUPLE_REPLY => reply = Tuple::read(value)?,
            CTA_STATUS => status = u32::from_be_bytes(exactly(value)?),
            CTA_ID => identity.id = value,
            CTA_ZONE => identity.zone = Some(value),
            _ => {}
        }
    }
    let (Some(source), Some(destination)) = (original.source(), original.destination()) else {
        return Ok(None);
    };
    let Some(answerer) = reply.source() else {
        return Ok(None);
    };
    let flow = Flow {
        protocol: original.protocol,
        source,
        destination,
        answerer,
        translated: status & IPS_DST_NAT != 0,
    };
    Ok(Some((flow, identity)))
}

/// The addresses of one direction.
#[derive(Debug, Clone, Copy, Default)]
struct Tuple {
    addresses: [Option<IpAddr>; 2],
    ports: [u16; 2],
    protocol: u8,
}

impl Tuple {
    fn read(attributes: &[u8]) -> Result<Self, DecodeError> {
        let mut tuple = Self::default();
        for attribute in each(attributes) {
            match attribute? {
                (CTA_TUPLE_IP, value) => tuple.read_addresses(value)?,
                (CTA_TUPLE_PROTO, value) => tuple.read_protocol(value)?,
                _ => {}
            }
        }
        Ok(tuple)
    }

    fn read_addresses(&mut self, attributes: &[u8]) -> Result<(), DecodeError> {
        for attribute in each(attributes) {
            let (kind, value) = attribute?;
            let address = match kind {
                CTA_IP_V4_SRC | CTA_IP_V4_DST => Ipv4Addr::from(exactly::<4>(value)?).into(),
                CTA_IP_V6_SRC | CTA_IP_V6_DST => Ipv6Addr::from(exactly::<16>(value)?).into(),
                _ => continue,
            };
            let is_destination = matches!(kind, CTA_IP_V4_DST | CTA_IP_V6_DST);
            self.addresses[usize::from(is_destination)] = Some(address);
        }
        Ok(())
    }

    fn read_protocol(&mut self, attributes: &[u8]) -> Result<(), DecodeError> {
        for attribute in each(attributes) {
            let (kind, value) = attribute?;
            match kind {
                CTA_PROTO_NUM => [self.protocol] = exactly(value)?,
                CTA_PROTO_SRC_PORT => self.ports[0] = u16::from_be_bytes(exactly(value)?),
                CTA_PROTO_DST_PORT => self.ports[1] = u16::from_be_bytes(exactly(value)?),
                _ => {}
            }
        }
        Ok(())
    }

    fn source(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.addresses[0]?, self.ports[0]))
    }

    fn destination(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.addresses[1]?, self.ports[1]))
    }
}
