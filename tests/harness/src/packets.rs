//! What programs on devices make of packets, without a device: the kernel has them look at bytes.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
};

use anyhow::{Context as _, Result, bail};
use proxy_common::{
    address,
    packet::rewrite::Place,
    socket::{TCP, UDP},
    track::{ConnectionKey, ConnectionValue, DIALLED, INSIDE, TRANSLATED},
};

use crate::bpf::{Pinned, program::Program};

/// Programs on a device with Ethernet headers.
#[derive(Debug)]
pub struct Programs {
    /// At ingress.
    pub incoming: Program,
    /// At egress.
    pub outgoing: Program,
}

impl Programs {
    /// Those that an agent pinned here; none where they are not pinned (before Linux 6.6).
    pub fn behind(pins: &Path) -> Result<Option<Self>> {
        let (mut incoming, mut outgoing) = (None, None);
        let links = pins.join("devices");
        let Ok(links) = links.read_dir() else {
            return Ok(None);
        };
        for link in links {
            let path = link.context("cannot list pinned links")?.path();
            // Before Linux 6.6 there are notes about qdiscs.
            if path.is_dir() {
                continue;
            }
            let program = Program::of(Pinned::open(&path)?.program_id()?)?;
            match program.name()?.as_str() {
                "culvert_eth_in" => incoming = Some(program),
                "culvert_eth_out" => outgoing = Some(program),
                _ => {}
            }
        }
        let both = incoming.zip(outgoing);
        Ok(both.map(|(incoming, outgoing)| Self { incoming, outgoing }))
    }
}

/// Who sends, or for whom it is: address and port.
pub type Side = (IpAddr, u16);

/// The ends of the flows of one IP version.
#[derive(Debug)]
pub struct Ends {
    /// Who dials.
    pub client: Side,
    /// What is dialled.
    pub frontend: Side,
    /// Where that leads.
    pub endpoint: Side,
    /// Whom no flow is about.
    pub stranger: Side,
}

const fn v4(last: u8, port: u16) -> Side {
    (IpAddr::V4(Ipv4Addr::new(198, 18, 0, last)), port)
}

const fn v6(last: u16, port: u16) -> Side {
    let address = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
    (IpAddr::V6(address), port)
}

/// Of IPv4, and of IPv6. No address or port becomes another one when a byte is changed a little.
pub const ENDS: [Ends; 2] = [
    Ends {
        client: v4(1, 40_000),
        frontend: v4(2, 30_080),
        endpoint: v4(90, 8080),
        stranger: v4(4, 9),
    },
    Ends {
        client: v6(1, 40_000),
        frontend: v6(2, 30_080),
        endpoint: v6(90, 8080),
        stranger: v6(4, 9),
    },
];

/// The flows of [`ENDS`], over TCP and UDP: each client's flow to the frontend leads to the endpoint, and
/// one to the endpoint leads to the frontend. So what a program makes of a packet is a packet of a flow
/// again, and that one is made what the first was.
#[derive(Debug)]
pub struct Flows {
    track: Pinned,
    /// An entry of a flow that is there.
    like: ConnectionValue,
}

impl Flows {
    /// Flows with the endpoint of one that is open under the agent that pinned its maps here.
    pub fn of(pins: &Path) -> Result<Self> {
        let track = Pinned::open(&pins.join("connections-v1/TRACK"))?;
        for key in track.keys(size_of::<ConnectionKey>())? {
            let value = track.read(&key, size_of::<ConnectionValue>())?;
            let like: ConnectionValue = bytemuck::pod_read_unaligned(&value);
            if like.owner == TRANSLATED {
                return Ok(Self { track, like });
            }
        }
        bail!("no flow is open")
    }

    /// Enters them; what was noted of them meanwhile is forgotten.
    pub fn enter(&self) -> Result<()> {
        for protocol in [TCP, UDP] {
            for ends in &ENDS {
                self.one(ends.client, (ends.frontend, ends.endpoint), protocol, 1)?;
                self.one(ends.client, (ends.endpoint, ends.frontend), protocol, 2)?;
            }
        }
        Ok(())
    }

    fn one(&self, client: Side, way: (Side, Side), protocol: u8, number: u32) -> Result<()> {
        let [client, dialled, to] = [client, way.0, way.1].map(place);
        let request = ConnectionKey::new(&client, &dialled, protocol, DIALLED);
        let reply = ConnectionKey::new(&to, &client, protocol, INSIDE);
        for (key, put) in [(request, to), (reply, dialled)] {
            let mut value = ConnectionValue {
                address: address::from_words(put.address),
                port: put.port,
                serial: self.like.serial.wrapping_add(number),
                ..self.like
            };
            value.state = value.state_of(0);
            value.seal(&key);
            let (key, value) = (bytemuck::bytes_of(&key), bytemuck::bytes_of(&value));
            self.track.write(key, value)?;
        }
        Ok(())
    }
}

fn place((address, port): Side) -> Place {
    Place::new(address::to_words(&address::from_ip(address)), port)
}

/// A packet without data on Ethernet. Its sums are wrong, which no program looks at.
pub fn packet((source, from): Side, (destination, to): Side, protocol: u8) -> Vec<u8> {
    let mut packet = vec![0; 12];
    let length: u16 = if protocol == TCP { 20 } else { 8 };
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            packet.extend([8, 0, 0x45, 0]);
            packet.extend((20 + length).to_be_bytes());
            packet.extend([0, 0, 0, 0, 64, protocol, 0x12, 0x34]);
            packet.extend(source.octets());
            packet.extend(destination.octets());
        }
        (source, destination) => {
            packet.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            packet.extend(length.to_be_bytes());
            packet.extend([protocol, 64]);
            for address in [source, destination] {
                if let IpAddr::V6(address) = address {
                    packet.extend(address.octets());
                }
            }
        }
    }
    packet.extend(from.to_be_bytes());
    packet.extend(to.to_be_bytes());
    if protocol == TCP {
        // Sequence, acknowledgement; five words, ACK; window, sum, urgent.
        packet.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0x56, 0x78, 0, 0]);
    } else {
        packet.extend([0, 8, 0x56, 0x78]);
    }
    packet
}
