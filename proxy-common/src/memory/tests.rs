//! What a socket remembers, wherever it is kept.

use super::*;
use crate::address;

/// One socket's places; the place in PEERS may belong to another socket.
#[derive(Default)]
struct Memory {
    peer: Peer,
    flows: Flows,
    flows_made: bool,
    exhausted: bool,
}

const COOKIE: u64 = 7 + (1 << 33);

impl Places for Memory {
    fn cookie(&self) -> u64 {
        COOKIE
    }
    fn peer(&mut self) -> Option<Shared<'_, Peer>> {
        Some(Shared::of(&mut self.peer))
    }
    fn flows(&mut self, create: bool) -> Option<Shared<'_, Flows>> {
        self.flows_made |= create && !self.exhausted;
        self.flows_made.then_some(Shared::of(&mut self.flows))
    }
}

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

fn frontend_of(memory: &mut Memory, endpoint: u8) -> Option<Address> {
    let endpoint = flow(0, endpoint).endpoint;
    super::frontend_of(memory, &endpoint, 5353).map(|dialled| dialled.address)
}

fn endpoint_of(memory: &mut Memory, frontend: u8) -> Option<u32> {
    let frontend = flow(frontend, 0).frontend;
    super::endpoint_of(memory, &frontend, 53).map(|endpoint| endpoint.number)
}

#[test]
fn one_frontend_needs_no_storage() {
    let mut memory = Memory::default();
    assert_eq!(
        remember(&mut memory, &flow(1, 101), By::UdpSend),
        Remembered::Kept
    );
    assert_eq!(
        remember(&mut memory, &flow(1, 102), By::UdpSend),
        Remembered::Kept
    );
    assert_eq!(frontend_of(&mut memory, 102), Some(flow(1, 0).frontend));
    assert_eq!(frontend_of(&mut memory, 101), None);
    assert_eq!(endpoint_of(&mut memory, 1), Some(102));
    assert!(!memory.flows_made);
}

#[test]
fn nine_frontends_at_once_are_kept_exactly() {
    let mut memory = Memory::default();
    for n in 1..=9 {
        assert_eq!(
            remember(&mut memory, &flow(n, n + 100), By::UdpSend),
            Remembered::Kept,
            "frontend {n}"
        );
    }
    for n in 1..=9 {
        assert_eq!(
            frontend_of(&mut memory, n + 100),
            Some(flow(n, 0).frontend),
            "frontend {n}"
        );
        assert_eq!(endpoint_of(&mut memory, n), Some(u32::from(n) + 100));
    }
    assert_eq!(
        remember(&mut memory, &flow(10, 110), By::UdpSend),
        Remembered::Replaced
    );
}

#[test]
fn a_place_that_another_socket_holds_is_left_to_it() {
    let mut memory = Memory::default();
    let theirs = Peer {
        cookie: COOKIE + 65536,
        ..Peer::default()
    };
    memory.peer = theirs;
    assert_eq!(
        remember(&mut memory, &flow(1, 101), By::UdpConnect),
        Remembered::Kept
    );
    assert_eq!(frontend_of(&mut memory, 101), Some(flow(1, 0).frontend));
    assert_eq!(memory.peer, theirs);
    forget(&mut memory, &flow(1, 101).endpoint, 5353);
    assert_eq!(frontend_of(&mut memory, 101), None);
    closed(Shared::of(&mut memory.peer), COOKIE);
    assert_eq!(memory.peer, theirs);
}

#[test]
fn a_closed_socket_frees_its_place() {
    let mut memory = Memory::default();
    remember(&mut memory, &flow(1, 101), By::UdpConnect);
    closed(Shared::of(&mut memory.peer), COOKIE);
    assert_eq!(memory.peer.cookie, 0);
    assert_eq!(frontend_of(&mut memory, 101), None);
}

#[test]
fn a_socket_that_connects_elsewhere_remembers_the_new_peer() {
    let mut memory = Memory::default();
    remember(&mut memory, &flow(1, 101), By::UdpConnect);
    remember(&mut memory, &flow(2, 102), By::UdpConnect);
    assert_eq!(frontend_of(&mut memory, 101), None);
    assert_eq!(frontend_of(&mut memory, 102), Some(flow(2, 0).frontend));
}

#[test]
fn the_frontend_used_last_decides_wherever_it_is_kept() {
    let mut memory = Memory::default();
    remember(&mut memory, &flow(1, 101), By::UdpSend);
    remember(&mut memory, &flow(2, 101), By::UdpSend);
    assert_eq!(frontend_of(&mut memory, 101), Some(flow(2, 0).frontend));
    used(&mut memory, &flow(1, 0).frontend, 53);
    assert_eq!(frontend_of(&mut memory, 101), Some(flow(1, 0).frontend));
    used(&mut memory, &flow(2, 0).frontend, 53);
    assert_eq!(frontend_of(&mut memory, 101), Some(flow(2, 0).frontend));
}

#[test]
fn talking_to_the_endpoint_itself_forgets_the_frontend() {
    let mut memory = Memory::default();
    remember(&mut memory, &flow(1, 101), By::UdpSend);
    remember(&mut memory, &flow(2, 102), By::UdpSend);
    for endpoint in [101, 102] {
        forget(&mut memory, &flow(0, endpoint).endpoint, 5353);
        assert_eq!(frontend_of(&mut memory, endpoint), None);
    }
    assert_eq!(endpoint_of(&mut memory, 1), None);
    assert_eq!(
        remember(&mut memory, &flow(3, 103), By::UdpSend),
        Remembered::Kept
    );
}

#[test]
fn without_memory_the_loss_is_told() {
    let mut memory = Memory {
        exhausted: true,
        ..Memory::default()
    };
    remember(&mut memory, &flow(1, 101), By::UdpSend);
    assert_eq!(
        remember(&mut memory, &flow(2, 102), By::UdpSend),
        Remembered::Lost
    );
    assert_eq!(frontend_of(&mut memory, 101), Some(flow(1, 0).frontend));
}

#[test]
fn a_tcp_socket_gives_way_after_four_billion_others_and_a_udp_socket_never() {
    let held_by = |cookie, state| Memory {
        peer: Peer {
            cookie,
            state,
            ..Peer::default()
        },
        ..Memory::default()
    };
    let taken = |mut memory: Memory| {
        remember(&mut memory, &flow(1, 101), By::TcpConnect);
        assert_eq!(frontend_of(&mut memory, 101), Some(flow(1, 0).frontend));
        memory.peer.cookie == COOKIE
    };
    assert!(taken(held_by(7, MAY_GIVE_WAY)));
    assert!(!taken(held_by(7, 0)));
    assert!(!taken(held_by(COOKIE - GIVES_WAY_AFTER, MAY_GIVE_WAY)));
    assert!(taken(held_by(
        COOKIE - GIVES_WAY_AFTER - 65536,
        MAY_GIVE_WAY
    )));
    assert!(!taken(held_by(COOKIE + 65536, MAY_GIVE_WAY)));

    let mut memory = Memory::default();
    remember(&mut memory, &flow(1, 101), By::TcpConnect);
    assert_eq!(memory.peer.state, MAY_GIVE_WAY);
    remember(&mut memory, &flow(1, 101), By::UdpConnect);
    assert_eq!(memory.peer.state, 0);
}
