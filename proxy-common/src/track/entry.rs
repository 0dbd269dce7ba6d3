//! The entries of TRACK and OPENING: a packet as it is met, and what becomes of it.

use bytemuck::{Pod, Zeroable};

use crate::{
    address::{self, Address},
    check,
    packet::{
        self,
        parse::{Header, Transport},
        rewrite::Place,
    },
};

/// Key of TRACK and OPENING: the packet that looks the entry up, as it is there.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
pub struct ConnectionKey {
    /// Who sends it.
    pub source: Address,
    /// Whom it is for.
    pub destination: Address,
    /// Port of the sender, host order.
    pub source_port: u16,
    /// Port of the receiver, host order.
    pub destination_port: u16,
    /// IP protocol number: 6 TCP, 17 UDP.
    pub protocol: u8,
    /// [`DIALLED`] or [`INSIDE`].
    pub role: u8,
    /// Zero.
    pub padding: u16,
}

/// [`ConnectionKey::role`]: at ingress; from a client to a frontend, or from an endpoint that sees this node to
/// it.
pub const DIALLED: u8 = 1;
/// [`ConnectionKey::role`]: at egress; from an endpoint to a client, or from a client to an endpoint that
/// sees this node.
pub const INSIDE: u8 = 2;

impl ConnectionKey {
    /// The key of packets from `source` to `destination`.
    #[inline(always)]
    pub const fn new(source: &Place, destination: &Place, protocol: u8, role: u8) -> Self {
        Self {
            source: address::from_words(source.address),
            destination: address::from_words(destination.address),
            source_port: source.port,
            destination_port: destination.port,
            protocol,
            role,
            padding: 0,
        }
    }

    /// Makes it the key of a packet. By words as large as there are: the kernel reads the key at once, and a
    /// processor that must put together what it reads from what was just written waits for that.
    #[inline(always)]
    pub fn set(&mut self, header: &Header, transport: &Transport, role: u8) {
        let kind = u16::from_ne_bytes([header.protocol, role]);
        let (from, to) = (transport.source_port, transport.destination_port);
        let [a, b, c, d, last]: &mut [u64; 5] = bytemuck::cast_mut(self);
        [*a, *b] = packet::pairs(&header.source);
        [*c, *d] = packet::pairs(&header.destination);
        *last = bytemuck::cast([from, to, kind, 0]);
    }

    /// Sets who sends the packet, and whom it is for.
    #[inline(always)]
    pub(super) const fn set_ends(&mut self, source: (&Address, u16), destination: (&Address, u16)) {
        (self.source, self.source_port) = (*source.0, source.1);
        (self.destination, self.destination_port) = (*destination.0, destination.1);
    }

    /// The sender.
    #[inline(always)]
    pub fn source(&self) -> Place {
        place(&self.source, self.source_port)
    }

    /// The receiver.
    #[inline(always)]
    pub fn destination(&self) -> Place {
        place(&self.destination, self.destination_port)
    }
}

#[inline(always)]
fn place(address: &Address, port: u16) -> Place {
    Place::new(address::to_words(address), port)
}

/// Value of TRACK and OPENING.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct ConnectionValue {
    /// What is put in the place of the address: that of the endpoint (`DIALLED`) or of the frontend
    /// (`INSIDE`).
    pub address: Address,
    /// The port that goes with it, host order.
    pub port: u16,
    /// [`TRANSLATED`], [`BENEATH`], [`DIRECT`], [`MASQUERADED`], [`SNAT`] or [`FOREIGN`].
    pub owner: u16,
    /// Number of the Service port.
    pub service: u32,
    /// Number of the set that the endpoint was chosen from.
    pub set: u32,
    /// Number of the endpoint.
    pub endpoint: u32,
    /// The same in all entries of a flow, and in no other flow for long.
    pub serial: u32,
    /// Proves that what is above is whole and of its key, see the crate docs.
    pub check: u32,
    /// When a packet last used this entry, in seconds since boot. This and what follows is written
    /// in place, while others read.
    pub last: u32,
    /// The serial's lower half, then what was seen: [`seen`].
    pub state: u32,
    /// A sequence number. In TRACK the one that follows what this side sent without a gap, or up to its
    /// FIN; 0 if that is not known. In OPENING one with which the endpoint began: the first one (`INSIDE`),
    /// or the other, if it began twice (`DIALLED`).
    pub sequence: u32,
    /// In TRACK the sequence number that this side acknowledged last; 0 if that is not known. `INSIDE`, in
    /// OPENING: what an endpoint acknowledges that answers the first SYN.
    pub acknowledged: u32,
    /// When the entry was made, in seconds since boot. `INSIDE`, in TRACK: or when the endpoint last
    /// acknowledged something new.
    pub since: u32,
    /// In TRACK, `DIALLED`: what whoever answers the last SYN in place of this connection acknowledges, if
    /// there was one; `INSIDE`: what the client acknowledges then, if the endpoint took that. In OPENING,
    /// `INSIDE`: what it acknowledges that answers the last SYN.
    pub refusal: u32,
}

/// [`ConnectionValue::owner`]: the programs translate the flow.
pub const TRANSLATED: u16 = 1;
/// [`ConnectionValue::owner`]: the flow was left to the layer beneath, and stays there.
pub const BENEATH: u16 = 2;
/// [`ConnectionValue::owner`]: a client sends datagrams to the endpoint itself. No frontend's flow may
/// look the same behind the translation.
pub const DIRECT: u16 = 3;
/// [`ConnectionValue::owner`]: the programs translate the flow, and its endpoint sees this node in the place
/// of the client. Two more entries do that.
pub const MASQUERADED: u16 = 4;
/// [`ConnectionValue::owner`]: one of those. A `DIALLED` entry is of replies, an `INSIDE` entry of
/// requests.
pub const SNAT: u16 = 5;
/// [`ConnectionValue::owner`]: the same, of a flow that is none of a client: see the module `foreign`.
pub const FOREIGN: u16 = 6;

/// What was seen of a flow, in the lower half of [`ConnectionValue::state`].
pub mod seen {
    /// This direction is done.
    pub const FIN: u32 = 1 << 0;
    /// This direction seems to have broken the connection, and sent nothing else since.
    pub const RST: u32 = 1 << 1;
    /// The endpoint answered.
    pub const ANSWERED: u32 = 1 << 2;
    /// It answered the same opening in different ways: which one the client follows is not known.
    pub const AMBIGUOUS: u32 = 1 << 3;
    /// With [`RST`]: it did, beyond doubt. Whoever opens a connection in its place gets a new one.
    pub const BROKEN: u32 = 1 << 4;
    /// With [`FIN`]: its number may be anybody's.
    pub const GUESSED: u32 = 1 << 5;
    /// `INSIDE`, in OPENING: a connection through the same frontend to the same endpoint was over just
    /// before in its place.
    pub const FOLLOWS: u32 = 1 << 6;
    /// `INSIDE`, in TRACK: a SYN in place of the connection was refused, by the endpoint or by a firewall
    /// before it.
    pub const REFUSED: u32 = 1 << 7;
}

impl ConnectionValue {
    /// Sets the check, so that the value is valid for `key`, and only for that.
    #[inline(always)]
    pub fn seal(&mut self, key: &ConnectionKey) {
        self.check = self.proof(key);
    }

    /// Whether the value is whole, and `key`'s.
    #[inline(always)]
    pub fn holds_for(&self, key: &ConnectionKey) -> bool {
        self.check == self.proof(key)
    }

    #[inline(always)]
    fn proof(&self, key: &ConnectionKey) -> u32 {
        let (key, value): (&[u32; 10], &[u32; 16]) =
            (bytemuck::cast_ref(key), bytemuck::cast_ref(self));
        // All that is not written in place, without the check itself.
        let sum = check::add::<10, 10>(0, 0, key);
        check::finish(check::add::<16, 9>(sum, 10, value))
    }

    /// Whether the programs translate the flow of which this entry is, and the entry is one of its own two.
    #[inline(always)]
    pub const fn is_translated(&self) -> bool {
        self.owner == TRANSLATED || self.owner == MASQUERADED
    }

    /// What is the same in both entries of a flow in TRACK, this one in that `role`, if the endpoint has got
    /// all that the client sent.
    #[inline(always)]
    pub const fn reached(&self, role: u8) -> u32 {
        if role == DIALLED {
            self.sequence
        } else {
            self.acknowledged
        }
    }

    /// What is put in the packet.
    #[inline(always)]
    pub fn place(&self) -> Place {
        place(&self.address, self.port)
    }

    /// What was seen; nothing if what is there was written for an earlier flow in this place.
    #[inline(always)]
    pub const fn seen(&self) -> u32 {
        if self.state >> 16 == self.serial & 0xffff {
            self.state & 0xffff
        } else {
            0
        }
    }

    /// The word that says that `seen` was seen.
    #[inline(always)]
    pub const fn state_of(&self, seen: u32) -> u32 {
        self.serial << 16 | seen
    }
}
