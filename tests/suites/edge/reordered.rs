//! Fragments that overtake each other: what they are of is dropped with a reason, or left to the layer
//! beneath as a whole.

use std::{
    net::{SocketAddr, SocketAddrV4, UdpSocket},
    os::fd::AsRawFd as _,
    time::Duration,
};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
};
use proxy_common::socket::UDP;
use serde_json::Value;

use super::{
    asked::asked,
    rig::{DNS, Site},
};

/// For an answer where many tests run at once.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a datagram, with its header, in each of two fragments.
const HALF: usize = 16;

/// A datagram of UDP, without a sum, in two packets of IPv4.
fn fragments(from: SocketAddrV4, to: SocketAddrV4, number: u16) -> [Vec<u8>; 2] {
    let length = u16::try_from(2 * HALF).unwrap();
    let mut datagram = Vec::new();
    for word in [from.port(), to.port(), length, 0] {
        datagram.extend_from_slice(&word.to_be_bytes());
    }
    datagram.resize(2 * HALF, b'x');
    let (first, later) = datagram.split_at(HALF);
    let offset = u16::try_from(HALF / 8).unwrap();
    [(0x2000, first), (offset, later)].map(|(part, bytes)| {
        // The kernel writes the length and the sum (raw(7)).
        let mut packet = vec![0x45, 0, 0, 0];
        packet.extend_from_slice(&number.to_be_bytes());
        packet.extend_from_slice(&u16::to_be_bytes(part));
        packet.extend_from_slice(&[64, UDP, 0, 0]);
        packet.extend_from_slice(&from.ip().octets());
        packet.extend_from_slice(&to.ip().octets());
        packet.extend_from_slice(bytes);
        packet
    })
}

/// Sends them, the later one first.
fn send_reordered(from: SocketAddrV4, to: SocketAddrV4, number: u16) {
    let raw = socket(
        AddressFamily::Inet,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::Raw,
    );
    let raw = raw.unwrap();
    let [first, later] = fragments(from, to, number);
    for packet in [later, first] {
        let to = SockaddrIn::from(to);
        sendto(raw.as_raw_fd(), &packet, &to, MsgFlags::empty()).unwrap();
    }
}

/// Sends a datagram, and waits for its answer.
fn echoes(socket: &UdpSocket, to: SocketAddr, datagram: &str) {
    socket.send_to(datagram.as_bytes(), to).unwrap();
    hears(socket, to, datagram);
}

fn hears(socket: &UdpSocket, to: SocketAddr, datagram: &str) {
    let mut answer = [0; 1500];
    let (length, from) = socket.recv_from(&mut answer).unwrap();
    assert_eq!(from, to);
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.contains(datagram), "{answer}");
}

#[test]
fn fragments_out_of_order_are_left_to_the_layer_beneath_or_dropped_with_a_reason() {
    let Some(site) = Site::build() else {
        return;
    };
    let agent = site.serve(&[1]);
    let neighbour = &site.neighbour;
    let [SocketAddr::V4(client), SocketAddr::V4(to)] =
        [(neighbour.addresses[0], 0), (neighbour.node[0], DNS)].map(SocketAddr::from)
    else {
        panic!("the first addresses are of IPv4");
    };
    let exchange = || {
        let [new, known] = [(); 2].map(|()| {
            let socket = UdpSocket::bind(client).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        });
        let port = |socket: &UdpSocket| {
            SocketAddrV4::new(*client.ip(), socket.local_addr().unwrap().port())
        };
        // A flow begins so: netfilter puts the datagram together, and keeps the flow.
        send_reordered(port(&new), to, 1);
        hears(&new, to.into(), &"x".repeat(2 * HALF - 8));
        echoes(&new, to.into(), "goes on");
        // Of a flow that the programs have, nobody else may translate anything.
        echoes(&known, to.into(), "one");
        echoes(&known, to.into(), "two");
        send_reordered(port(&known), to, 2);
        echoes(&known, to.into(), "goes on");
    };
    neighbour.host.netns().run(exchange).unwrap();
    let counted = asked(&site.shop, &agent, &["stats", "--output", "json"]);
    let counted: Value = serde_json::from_str(&counted).unwrap();
    let packets = counted["packets"].as_array().unwrap();
    let late = packets.iter().filter(|one| one["reason"] == "fragment");
    let late: u64 = late.map(|one| one["packets"].as_u64().unwrap()).sum();
    assert_eq!(late, 2, "{counted}");
}
