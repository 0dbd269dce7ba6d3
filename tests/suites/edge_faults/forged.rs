//! Packets with the address and port of a client, or of an endpoint, that others send: connections,
//! active or idle, to an endpoint that stays or one that is drained, outlive them. The client's own end is
//! seen.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::AsRawFd as _,
    thread,
    time::{Duration, Instant},
};

use nix::sys::socket::{setsockopt, sockopt::Linger};
use proxy_model::Protocol;
use proxy_tests::{Agent, Prober, journey::Datagram, shop::http, world::Neighbour};
use serde_json::Value;

use crate::edge::{
    asked::listed,
    rig::{FILE, HTTP, Site, cluster, prober},
};

use super::hostile::{connected, say};

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ENDS: [u8; 3] = [RST, 0x14, 0x11];
/// Numbers that are tried, all over those that are not within this of the true one, see `track::ended`.
const GUESSES: u32 = 40;
const NEAR: u32 = 1 << 23;
/// Where the checksum of TCP is behind an IPv4 header.
const SUM: usize = 20 + 16;
const ACTIVE: u16 = 23_000;
const IDLE: u16 = 23_001;

/// A packet of TCP with these flags and this sequence number.
fn forged(source: SocketAddr, destination: SocketAddr, flags: u8, token: u32) -> Vec<u8> {
    const FLAGS: usize = 20 + 13;
    let first = Datagram::first(source, destination, Protocol::Tcp, token);
    let mut packet = first.encode();
    // One byte of what is summed up changes (RFC 1624, equation 3).
    let sum = u16::from_be_bytes([packet[SUM], packet[SUM + 1]]);
    let changed = u32::from(!sum) + u32::from(!u16::from(packet[FLAGS])) + u32::from(flags);
    let folded = (changed & 0xffff) + (changed >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    let sum = !u16::try_from(folded).unwrap();
    packet[SUM..SUM + 2].copy_from_slice(&sum.to_be_bytes());
    packet[FLAGS] = flags;
    packet
}

/// What a socket receives, for [`next`].
const RECEIVED: i32 = 1;
/// What it sends.
const SENT: i32 = 2;

/// Sets an option of TCP.
#[expect(unsafe_code, reason = "nix has no options for the repair of sockets")]
fn set(stream: &TcpStream, option: i32, value: i32) {
    // SAFETY: the value outlives the call, and its size goes with it.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const value).cast(),
            4,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Ends the connection of a socket, which says nothing to anybody. Closing it would not do at once: a
/// process that another test is just starting has a copy until it begins its program.
#[expect(unsafe_code, reason = "nix has no address of no family")]
fn vanishes(stream: &TcpStream) {
    set(stream, libc::TCP_REPAIR, 1);
    let nobody = libc::sockaddr {
        sa_family: libc::AF_UNSPEC.try_into().unwrap(),
        sa_data: [0; 14],
    };
    let size = size_of_val(&nobody).try_into().unwrap();
    // SAFETY: the address outlives the call, and its size goes with it.
    let result = unsafe { libc::connect(stream.as_raw_fd(), &raw const nobody, size) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// The sequence number of what comes next in a queue of a socket.
#[expect(unsafe_code, reason = "nix has no options for the repair of sockets")]
fn next(stream: &TcpStream, queue: i32) -> u32 {
    const OFF_WITHOUT_A_PACKET: i32 = -1;
    set(stream, libc::TCP_REPAIR, 1);
    set(stream, libc::TCP_REPAIR_QUEUE, queue);
    let (mut next, mut size) = (0_u32, 4);
    let to = (&raw mut next).cast();
    // SAFETY: as above; the kernel writes no more than the size.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_QUEUE_SEQ,
            to,
            &raw mut size,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    set(stream, libc::TCP_REPAIR, OFF_WITHOUT_A_PACKET);
    next
}

/// The `number`th guess, none near `next`.
fn guess(next: u32, number: u32) -> u32 {
    next.wrapping_add(NEAR + number * ((u32::MAX - NEAR) / GUESSES))
}

struct Attack {
    prober: Prober,
    client: IpAddr,
    to: SocketAddr,
    /// The packets have a wrong checksum.
    damages: bool,
}

impl Attack {
    /// The `number`th guess about the connection of `stream`.
    fn send(&mut self, stream: &TcpStream, flags: u8, number: u32) {
        let port = stream.local_addr().unwrap().port();
        let token = guess(next(stream, SENT), number);
        let mut packet = forged(SocketAddr::new(self.client, port), self.to, flags, token);
        packet[SUM] ^= u8::from(self.damages);
        self.prober.send_packet(packet).unwrap();
    }
}

/// What the node knows of the connections, by the port of the client.
fn known(site: &Site, agent: &Agent<'_>, port: u16) -> Vec<Value> {
    let mut flows = listed(&site.shop, agent, &[]);
    let is_it = |flow: &Value| {
        flow["client"]
            .as_str()
            .unwrap()
            .ends_with(&format!(":{port}"))
    };
    flows.retain(is_it);
    flows
}

fn state(site: &Site, agent: &Agent<'_>, port: u16) -> String {
    let flows = known(site, agent, port);
    assert_eq!(flows.len(), 1, "{flows:?}");
    flows[0]["state"].as_str().unwrap().to_owned()
}

/// Waits until the connections from these ports are known to be in these states.
fn wait_until<const N: usize>(site: &Site, agent: &Agent<'_>, ports: [u16; N], wanted: [&str; N]) {
    let began = Instant::now();
    while ports.map(|port| state(site, agent, port)) != wanted {
        assert!(began.elapsed() < Duration::from_mins(1));
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until no packet used the connection for a second.
fn wait_until_idle(site: &Site, agent: &Agent<'_>, port: u16) {
    let began = Instant::now();
    while known(site, agent, port)[0]["idleSeconds"].as_u64() < Some(1) {
        assert!(began.elapsed() < Duration::from_mins(1));
        thread::sleep(Duration::from_millis(100));
    }
}

fn says(stream: &TcpStream) {
    say(stream.try_clone().unwrap()).unwrap();
}

/// Connections of the neighbour, in use: from [`ACTIVE`] and [`IDLE`].
fn connections(neighbour: &Neighbour, to: SocketAddr) -> [TcpStream; 2] {
    let connects = || -> io::Result<_> {
        let both = [connected(ACTIVE, to)?, connected(IDLE, to)?];
        both.iter().for_each(says);
        Ok(both)
    };
    neighbour.host.netns().run(connects).unwrap().unwrap()
}

#[test]
fn forged_packets_end_no_connection() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[1]);
    let neighbour = &site.neighbour;
    let to = SocketAddr::new(neighbour.node[0], HTTP);
    let [active, idle] = connections(neighbour, to);
    let mut attack = Attack {
        prober: prober(neighbour),
        client: neighbour.addresses[0],
        to,
        damages: false,
    };
    for end in ENDS {
        for number in 0..GUESSES {
            for stream in [&active, &idle] {
                attack.send(stream, end, number);
                attack.send(stream, SYN, number);
            }
        }
        says(&active);
        for port in [ACTIVE, IDLE] {
            assert_eq!(state(&site, &agent, port), "established", "{port} {end:x}");
        }
    }
    says(&idle);

    // The endpoint may have no new connections, and keeps those that it has.
    agent
        .apply_and_sync(FILE, &cluster(neighbour, &[2]))
        .unwrap();
    for damages in [false, true] {
        // The later ones are damaged: they do not even reach the endpoint.
        wait_until_idle(&site, &agent, IDLE);
        for stream in [&active, &idle] {
            attack.damages = damages;
            attack.send(stream, SYN, 0);
        }
    }
    says(&active);
    says(&idle);

    // Its own end counts: the first is done, the other breaks its connection.
    drop(active);
    let reset = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&idle, Linger, &reset).unwrap();
    drop(idle);
    wait_until(&site, &agent, [ACTIVE, IDLE], ["closed", "broken"]);
}

#[test]
fn packets_in_the_name_of_an_endpoint_end_no_connection() {
    const ACK: u8 = 0x10;
    let Some(site) = Site::build() else {
        return;
    };
    let agent = site.serve(&[1]);
    let neighbour = &site.neighbour;
    let to = SocketAddr::new(neighbour.node[0], HTTP);
    let streams = connections(neighbour, to);
    // As a firewall of the node does that rejects what it takes for no part of a connection.
    let mut firewall = Prober::start(site.shop.world.node()).unwrap();
    let endpoint = known(&site, &agent, IDLE)[0]["endpoint"].clone();
    let endpoint: SocketAddr = endpoint.as_str().unwrap().parse().unwrap();
    for said in ENDS.into_iter().chain([ACK]) {
        for number in 0..GUESSES {
            for (stream, port) in streams.iter().zip([ACTIVE, IDLE]) {
                let client = SocketAddr::new(neighbour.addresses[0], port);
                let token = guess(next(stream, RECEIVED), number);
                let packet = forged(endpoint, client, said, token);
                firewall.send_packet(packet).unwrap();
            }
        }
        says(&streams[0]);
        for port in [ACTIVE, IDLE] {
            assert_eq!(state(&site, &agent, port), "established", "{port} {said:x}");
        }
    }
    says(&streams[1]);
}

#[test]
fn a_client_whose_endpoint_missed_the_end_before_has_a_new_connection() {
    let Some(site) = Site::build() else {
        return;
    };
    let agent = site.serve(&[1]);
    let neighbour = &site.neighbour;
    let host = neighbour.host.netns();
    let to = SocketAddr::new(neighbour.node[0], HTTP);
    let [active, _idle] = connections(neighbour, to);
    // Outside nobody knows the way to pods. What the endpoint says must come from whom was dialled.
    let blackhole = format!("route add blackhole {}", http(1).ip());
    host.ip(&blackhole).unwrap();
    // The client's reset is damaged behind the node.
    let client = SocketAddr::new(neighbour.addresses[0], ACTIVE);
    let mut packet = forged(client, to, RST, next(&active, SENT));
    packet[SUM] ^= 1;
    prober(neighbour).send_packet(packet).unwrap();
    wait_until(&site, &agent, [ACTIVE], ["broken"]);
    vanishes(&active);
    let again = host.run(|| connected(ACTIVE, to)).unwrap().unwrap();
    says(&again);
    // It was not left to the layer beneath.
    assert_eq!(state(&site, &agent, ACTIVE), "established");
}
