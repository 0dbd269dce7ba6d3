//! What sockets remember: which frontend stands behind the endpoint a socket talks to, so that
//! `getpeername` and `recvfrom` answer with the address that was dialled.
//!
//! Programs of several CPUs may write the same record at once (threads that share a UDP socket,
//! or TCP sockets that share a cache slot), and kernel 5.10 has no lock or compare-and-swap for
//! this. A record therefore proves itself: it carries a check over its contents, and one that was
//! half overwritten is taken for no record.

use bytemuck::{Pod, Zeroable};

use crate::address::{self, Address};

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
    /// Number of the endpoint in ENDPOINTS.
    pub endpoint_id: u32,
    /// Check over the other fields and the owner, see [`Translation::sealed`].
    pub check: u32,
}

const WORDS: usize = size_of::<Translation>() / size_of::<u32>();

/// Odd, so that multiplication loses nothing; see [`crate::frontend::FrontendKey::check`].
const CHECK_MULTIPLIER: u32 = 0x85eb_ca6b;

impl Translation {
    /// The record with its check set, valid for `owner` only: the socket cookie where several
    /// sockets share a place, otherwise 0.
    #[inline(always)]
    pub const fn sealed(mut self, owner: u64) -> Self {
        self.check = self.seal(owner);
        self
    }

    /// Whether the record was written whole, and for `owner`. An empty record never is.
    #[inline(always)]
    pub const fn holds_for(&self, owner: u64) -> bool {
        self.endpoint_id != 0 && self.check == self.seal(owner)
    }

    #[inline(always)]
    const fn seal(&self, owner: u64) -> u32 {
        let (frontend, endpoint) = (
            address::to_words(&self.frontend),
            address::to_words(&self.endpoint),
        );
        let ports = (self.frontend_port as u32) << 16 | self.endpoint_port as u32;
        let words = [
            frontend[0],
            frontend[1],
            frontend[2],
            frontend[3],
            endpoint[0],
            endpoint[1],
            endpoint[2],
            endpoint[3],
            ports,
            self.endpoint_id,
            owner as u32,
            (owner >> 32) as u32,
        ];
        let mut check = 0;
        let mut index = 0;
        while index < words.len() {
            check = (check ^ words[index])
                .wrapping_mul(CHECK_MULTIPLIER)
                .rotate_left(15);
            index += 1;
        }
        check
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

    /// A copy that no later write can change, so that what is used is what was checked.
    #[inline(always)]
    pub fn snapshot(&self) -> Self {
        let from = core::ptr::from_ref(self).cast::<u32>();
        let mut words = [0u32; WORDS];
        let mut index = 0;
        while index < WORDS {
            // SAFETY: `Translation` is `WORDS` aligned words without padding, any bit pattern of
            // which is a value; volatile, because another CPU may write it meanwhile.
            #[expect(unsafe_code, reason = "one volatile read per word")]
            unsafe {
                words[index] = from.add(index).read_volatile();
            }
            index += 1;
        }
        bytemuck::cast(words)
    }
}

/// How many frontends one unconnected UDP socket can talk to at the same time with every reply
/// attributed exactly. A resolver talks to one or two; the ninth takes the place of the oldest,
/// and that is counted.
pub const FLOWS_PER_SOCKET: usize = 8;

const SLOT_MASK: u32 = FLOWS_PER_SOCKET as u32 - 1;

/// Value of `UDP_FLOWS`: what one UDP socket remembers. Freed by the kernel with the socket.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
pub struct UdpFlows {
    /// Index of the record that was sent through last: it decides when two frontends lead to the
    /// same endpoint.
    pub last: u32,
    /// Index that the next new frontend takes.
    pub next: u32,
    /// Records.
    pub flows: [Translation; FLOWS_PER_SOCKET],
}

/// Where [`UdpFlows::remember`] put a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remembered {
    /// In its own or a free place.
    Kept,
    /// In the place of another frontend's record.
    Replaced,
}

impl UdpFlows {
    /// The endpoint remembered for `frontend`.
    #[inline(always)]
    pub fn endpoint_of(&self, frontend: &Address, port: u16) -> Option<Translation> {
        let mut index = 0;
        while index < FLOWS_PER_SOCKET {
            let flow = &self.flows[index];
            if flow.is_of(frontend, port) {
                let flow = flow.snapshot();
                if flow.is_of(frontend, port) && flow.holds_for(0) {
                    return Some(flow);
                }
            }
            index += 1;
        }
        None
    }

    /// The frontend behind a datagram or peer address `endpoint`.
    #[inline(always)]
    pub fn frontend_of(&self, endpoint: &Address, port: u16) -> Option<Translation> {
        let last = self.flows[(self.last & SLOT_MASK) as usize].snapshot();
        if last.leads_to(endpoint, port) && last.holds_for(0) {
            return Some(last);
        }
        let mut index = 0;
        while index < FLOWS_PER_SOCKET {
            let flow = &self.flows[index];
            if flow.leads_to(endpoint, port) {
                let flow = flow.snapshot();
                if flow.leads_to(endpoint, port) && flow.holds_for(0) {
                    return Some(flow);
                }
            }
            index += 1;
        }
        None
    }

    /// Remembers that the socket now reaches `flow.frontend` through `flow.endpoint`.
    #[inline(always)]
    pub fn remember(&mut self, flow: Translation) -> Remembered {
        let flow = flow.sealed(0);
        let mut index = 0;
        while index < FLOWS_PER_SOCKET {
            if self.flows[index].is_of(&flow.frontend, flow.frontend_port) {
                self.flows[index] = flow;
                self.last = index as u32;
                return Remembered::Kept;
            }
            index += 1;
        }
        let place = self.next & SLOT_MASK;
        let old = self.flows[place as usize].endpoint_id;
        self.flows[place as usize] = flow;
        self.last = place;
        self.next = place + 1;
        if old == 0 {
            Remembered::Kept
        } else {
            Remembered::Replaced
        }
    }

    /// Marks the record of `frontend` as the one sent through last.
    #[inline(always)]
    pub fn touch(&mut self, frontend: &Address, port: u16) {
        let mut index = 0;
        while index < FLOWS_PER_SOCKET {
            if self.flows[index].is_of(frontend, port) {
                self.last = index as u32;
                return;
            }
            index += 1;
        }
    }

    /// Forgets every frontend behind `endpoint`: the socket now talks to that address itself.
    #[inline(always)]
    pub fn forget(&mut self, endpoint: &Address, port: u16) {
        let mut index = 0;
        while index < FLOWS_PER_SOCKET {
            if self.flows[index].leads_to(endpoint, port) {
                // Both: a record without an endpoint is free, and without a check it is void.
                self.flows[index].endpoint_id = 0;
                self.flows[index].check = 0;
            }
            index += 1;
        }
    }
}

/// Value of `TCP_PEERS`: what `getpeername` answers for one TCP socket.
///
/// `TCP_PEERS` is a small direct-mapped cache (see `docs/ARCHITECTURE.md` for the measurement that
/// chose it). Cookies are given out in sequence, so an entry stays until as many later sockets
/// were translated as the cache has entries; after that `getpeername` answers with the endpoint,
/// as it does behind any proxy that rewrites packets on the way.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
pub struct TcpPeer {
    /// Socket cookie.
    pub cookie: u64,
    /// The translation, sealed for the cookie.
    pub peer: Translation,
    /// Zero.
    pub padding: u32,
}

/// Entries of `TCP_PEERS`, a power of two.
pub const TCP_PEERS: u32 = 1 << 16;

/// Index in `TCP_PEERS` of the socket with `cookie`.
#[inline(always)]
pub const fn tcp_peer_index(cookie: u64) -> u32 {
    cookie as u32 & (TCP_PEERS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Address {
        address::from_ip(text.parse().unwrap())
    }

    fn flow(frontend: u8, endpoint: u8) -> Translation {
        Translation {
            frontend: ip(&std::format!("10.96.0.{frontend}")),
            endpoint: ip(&std::format!("10.244.0.{endpoint}")),
            frontend_port: 53,
            endpoint_port: 5353,
            endpoint_id: u32::from(endpoint),
            check: 0,
        }
    }

    #[test]
    fn an_empty_record_is_no_record() {
        let flows = UdpFlows::default();
        assert_eq!(flows.endpoint_of(&[0; 16], 0), None);
        assert_eq!(flows.frontend_of(&[0; 16], 0), None);
        assert!(!Translation::default().sealed(0).holds_for(0));
    }

    #[test]
    fn a_reply_is_attributed_to_the_frontend_that_was_dialled() {
        let mut flows = UdpFlows::default();
        for n in 1..=8 {
            assert_eq!(flows.remember(flow(n, n + 100)), Remembered::Kept);
        }
        for n in 1..=8 {
            let found = flows.frontend_of(&flow(n, n + 100).endpoint, 5353).unwrap();
            assert_eq!(found.frontend, flow(n, 0).frontend, "frontend {n}");
            assert_eq!(flows.frontend_of(&flow(n, n + 100).endpoint, 5354), None);
        }
    }

    #[test]
    fn the_ninth_frontend_takes_the_place_of_the_oldest() {
        let mut flows = UdpFlows::default();
        for n in 1..=8 {
            flows.remember(flow(n, n + 100));
        }
        assert_eq!(flows.remember(flow(9, 109)), Remembered::Replaced);
        assert_eq!(flows.endpoint_of(&flow(1, 0).frontend, 53), None);
        for n in 2..=9 {
            assert!(
                flows.endpoint_of(&flow(n, 0).frontend, 53).is_some(),
                "frontend {n}"
            );
        }
    }

    #[test]
    fn a_frontend_that_moves_to_another_endpoint_keeps_one_record() {
        let mut flows = UdpFlows::default();
        flows.remember(flow(1, 101));
        flows.remember(flow(1, 102));
        assert_eq!(
            flows
                .endpoint_of(&flow(1, 0).frontend, 53)
                .unwrap()
                .endpoint_id,
            102
        );
        assert_eq!(flows.frontend_of(&flow(1, 101).endpoint, 5353), None);
    }

    #[test]
    fn the_frontend_sent_to_last_decides_between_two_with_one_endpoint() {
        let mut flows = UdpFlows::default();
        flows.remember(flow(1, 101));
        flows.remember(flow(2, 101));
        let peer = flow(0, 101).endpoint;
        assert_eq!(
            flows.frontend_of(&peer, 5353).unwrap().frontend,
            flow(2, 0).frontend
        );
        flows.touch(&flow(1, 0).frontend, 53);
        assert_eq!(
            flows.frontend_of(&peer, 5353).unwrap().frontend,
            flow(1, 0).frontend
        );
    }

    #[test]
    fn talking_to_the_endpoint_itself_forgets_the_frontend() {
        let mut flows = UdpFlows::default();
        flows.remember(flow(1, 101));
        flows.forget(&flow(1, 101).endpoint, 5353);
        assert_eq!(flows.frontend_of(&flow(1, 101).endpoint, 5353), None);
        assert_eq!(flows.endpoint_of(&flow(1, 0).frontend, 53), None);
        assert_eq!(flows.remember(flow(1, 101)), Remembered::Kept);
    }

    #[test]
    fn a_record_torn_at_any_word_is_void() {
        let old: [u32; WORDS] = bytemuck::cast(flow(1, 101).sealed(7));
        let new: [u32; WORDS] = bytemuck::cast(flow(2, 102).sealed(7));
        for split in 1..WORDS {
            let mut torn = old;
            torn[..split].copy_from_slice(&new[..split]);
            let whole = torn == new || torn == old;
            assert_eq!(
                bytemuck::cast::<_, Translation>(torn).holds_for(7),
                whole,
                "{split}"
            );
        }
    }

    #[test]
    fn a_record_is_void_for_another_socket() {
        assert!(flow(1, 101).sealed(7).holds_for(7));
        assert!(!flow(1, 101).sealed(7).holds_for(7 + u64::from(TCP_PEERS)));
    }
}
