//! Clients that talk to an endpoint itself, from the port from which they dial a NodePort: behind the
//! translation both would be one connection.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
};

use proxy_model::Protocol;
use proxy_tests::{
    journey::Datagram,
    pod::ATTEMPT_LIMIT,
    shop::{dns, http},
};

use crate::edge::rig::{DNS, HTTP, Site, prober};

use super::hostile::{connected, echo_from, say};

#[test]
fn a_connection_that_the_endpoint_takes_for_another_one_comes_about_all_the_same() {
    let Some(site) = Site::build() else {
        return;
    };
    let _agent = site.serve(&[1]);
    let node_port = SocketAddr::new(site.neighbour.node[0], HTTP);
    let connects = || -> io::Result<()> {
        let itself = connected(22_000, http(1))?;
        say(itself.try_clone()?)?;
        // The client's kernel sends the SYN again and again until then.
        let behind = connected(22_000, node_port)?;
        for stream in [&behind, &itself, &behind, &itself] {
            say(stream.try_clone()?)?;
        }
        Ok(())
    };
    site.neighbour.host.netns().run(connects).unwrap().unwrap();
}

#[test]
fn the_endpoint_itself_takes_a_connection_whatever_the_node_port_was_sent_from_that_port() {
    let Some(site) = Site::build() else {
        return;
    };
    let _agent = site.serve(&[1]);
    let neighbour = &site.neighbour;
    let node_port = SocketAddr::new(neighbour.node[0], HTTP);
    // Closed, broken, and never more than a SYN, which somebody else sent.
    let [closed, broken, forged] = [22_002, 22_003, 22_004];
    let victim = SocketAddr::new(neighbour.addresses[0], forged);
    let syn = Datagram::first(victim, node_port, Protocol::Tcp, 7).encode();
    prober(neighbour).send_packet(syn).unwrap();
    let connects = || -> io::Result<()> {
        for port in [closed, broken] {
            echo_from(port, node_port)?;
        }
        for port in [closed, broken, forged] {
            say(connected(port, http(1))?)?;
        }
        Ok(())
    };
    neighbour.host.netns().run(connects).unwrap().unwrap();
}

#[test]
fn datagrams_from_one_port_are_answered_by_whom_they_were_for() {
    let Some(site) = Site::build() else {
        return;
    };
    let _agent = site.serve(&[1]);
    let node_port = SocketAddr::new(site.neighbour.node[0], DNS);
    let asks = || -> io::Result<()> {
        let any: IpAddr = Ipv4Addr::UNSPECIFIED.into();
        let socket = UdpSocket::bind((any, 22_001))?;
        socket.set_read_timeout(Some(ATTEMPT_LIMIT))?;
        let both = [node_port, dns(1)];
        for to in both.into_iter().cycle().take(10) {
            socket.send_to(b"whose are you?\n", to)?;
            let (_, from) = socket.recv_from(&mut [0; 64])?;
            assert_eq!(from, to);
        }
        Ok(())
    };
    site.neighbour.host.netns().run(asks).unwrap().unwrap();
}
