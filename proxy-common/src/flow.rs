//! What sockets remember: which frontend stands behind the endpoint a socket talks to, so that
//! `getpeername` and `recvfrom` answer with the address that was dialled.
//!
//! A socket has one place in PEERS, an array indexed by its cookie: cheap, and enough for nearly
//! every socket. What does not fit there is in FLOWS, storage that the kernel keeps with the
//! socket: exact, but four times as expensive to make. [`crate::memory`] chooses between them.
//!
//! Programs of several CPUs may write the same record at once (threads that share a UDP socket,
//! or sockets that share a place), and kernel 5.10 has no lock or compare-and-swap for this. A
//! record therefore proves itself: it carries a check over its contents, and one that was half
//! overwritten is taken for no record.

use bytemuck::{Pod, Zeroable};

use crate::{
    address::{self, Address},
    check,
    endpoint::Endpoint,
};

mod kept;

/// What a socket dialled. Aligned, so that it is copied by words.
#[repr(C, align(4))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialled {
    /// Address.
    pub address: Address,
    /// Port, host order.
    pub port: u16,
}

/// One socket's translation of a frontend to an endpoint.
#[repr(C, align(4))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
pub struct Translation {
    /// Address that was dialled.
    pub frontend: Address,
    /// Address it was translated to.
    pub endpoint: Address,
    /// Port that was dialled, host order.
    pub frontend_port: u16,
    /// Port it was translated to, host order.
    pub endpoint_port: u16,
    /// Number of the endpoint.
    pub endpoint_id: u32,
    /// Check over the other fields and the owner, see [`Translation::sealed`].
    pub check: u32,
}

const WORDS: usize = size_of::<Translation>() / size_of::<u32>();

/// Index of `check` among the words.
const CHECK: usize = WORDS - 1;

impl Translation {
    /// The record with its check set, valid only for the socket with cookie `owner`.
    #[inline(always)]
    pub fn sealed(self, owner: u64) -> Self {
        let mut words: [u32; WORDS] = bytemuck::cast(self);
        words[CHECK] = seal(&words, owner);
        bytemuck::cast(words)
    }

    /// Whether the record, a [snapshot](crate::shared::Shared::snapshot), was written whole, and for `owner`. An
    /// empty record never is.
    // What is here decides what the verifier goes through, and the room on the stack: see the
    // suite `load`. Checked as it is read, a million instructions do not do.
    #[inline(always)]
    pub fn holds_for(&self, owner: u64) -> bool {
        self.endpoint_id != 0 && self.check == seal(&bytemuck::cast(*self), owner)
    }

    /// What was dialled.
    #[inline(always)]
    pub const fn dialled(&self) -> Dialled {
        Dialled {
            address: self.frontend,
            port: self.frontend_port,
        }
    }

    /// The endpoint it leads to.
    #[inline(always)]
    pub const fn endpoint(&self) -> Endpoint {
        Endpoint {
            number: self.endpoint_id,
            port: self.endpoint_port,
            flags: 0,
            address: self.endpoint,
        }
    }

    /// Whether the record leads to `endpoint`.
    #[inline(always)]
    pub const fn leads_to(&self, endpoint: &Address, port: u16) -> bool {
        self.endpoint_port == port && address::same(&self.endpoint, endpoint)
    }

    /// Whether the record is of `frontend`.
    #[inline(always)]
    pub const fn is_of(&self, frontend: &Address, port: u16) -> bool {
        self.frontend_port == port && address::same(&self.frontend, frontend)
    }
}

/// The check over a record's other words and its owner.
#[inline(always)]
const fn seal(words: &[u32; WORDS], owner: u64) -> u32 {
    let [w0, w1, w2, w3, w4, w5, w6, w7, ports, endpoint, _] = *words;
    let (low, high) = (owner as u32, (owner >> 32) as u32);
    check::check([w0, w1, w2, w3, w4, w5, w6, w7, ports, endpoint, low, high])
}

/// Value of PEERS: what one socket remembers first.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
pub struct Peer {
    /// Cookie of the socket that holds the place; 0 when it is free. A place is freed when its
    /// socket is closed.
    pub cookie: u64,
    /// The translation.
    pub translation: Translation,
    /// [`LAST_IN_FLOWS`], [`MAY_GIVE_WAY`].
    pub state: u32,
}

/// The socket sent last through a record in FLOWS: that record decides when two frontends lead to
/// the same endpoint.
pub const LAST_IN_FLOWS: u32 = 1 << 0;

/// Another socket may take the place once [`GIVES_WAY_AFTER`] others were made. TCP needs it for
/// `getpeername` only, and some TCP sockets are never seen to close: those of the kernel's own
/// clients, and the subflows of MPTCP.
pub const MAY_GIVE_WAY: u32 = 1 << 1;

/// How many cookies later a TCP socket gives way. Cookies are counted over the whole node, those of
/// accepting sockets too: a million pass in two minutes where much is connected, four billion hardly
/// while a connection lasts. Places of sockets that never close come back as late; meanwhile those
/// that meet them use FLOWS.
pub const GIVES_WAY_AFTER: u64 = 1 << 32;

/// Default entries of PEERS, always a power of two. Each CPU gives out cookies in sequence from
/// blocks of its own, so that two open sockets seldom want one place. 3.5 MiB, whatever is open; why
/// as many is in docs/PERFORMANCE.md.
pub const PEERS: u32 = 1 << 16;

/// Index in PEERS of the place for the socket with `cookie`; `mask` is the number of its entries
/// less one.
#[inline(always)]
pub const fn peer_index(cookie: u64, mask: u32) -> u32 {
    cookie as u32 & mask
}

/// How many frontends FLOWS holds for one socket. A resolver talks to one or two at a time; the
/// next one takes the place of the oldest, and that is counted.
pub const FLOWS_PER_SOCKET: usize = 8;

/// Value of FLOWS: what one socket remembers beyond its place in PEERS. Freed by the kernel with
/// the socket.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
pub struct Flows {
    /// Index of the record that was sent through last: it decides when two frontends lead to the
    /// same endpoint.
    pub last: u32,
    /// Index that the next new frontend takes.
    pub next: u32,
    /// Records.
    pub flows: [Translation; FLOWS_PER_SOCKET],
}

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remembered {
    /// It is kept, in its own or a free place.
    Kept,
    /// It is kept in the place of another frontend's record.
    Replaced,
    /// There was no memory for it.
    Lost,
}

#[cfg(test)]
mod tests;
