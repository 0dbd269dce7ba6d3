//! TRACK fills up while connections are between the SYN and the client's answer: they come about all the
//! same.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    process::Command,
};

use proxy_tests::{Agent, netns::NetNs};

use crate::edge::{
    asked::listed,
    rig::{FILE, HTTP, Site, cluster, options, served},
};

use super::hostile::{connected, say};

/// Connections that TRACK is asked to hold, and those that begin while it holds none.
const ROOM: u16 = 40;
const BEGUN: u16 = 45;

/// Runs `nft` in the network of the clients.
fn filter(clients: &NetNs, arguments: &[&str]) {
    let run = || Command::new("nft").args(arguments).status();
    assert!(
        clients.run(run).unwrap().unwrap().success(),
        "{arguments:?}"
    );
}

#[test]
fn connections_that_began_while_there_was_room_come_about() {
    let Some(site) = Site::build() else {
        return;
    };
    let (world, neighbour) = (&site.shop.world, &site.neighbour);
    let objects = cluster(neighbour, &[1, 2, 3]);
    let room = format!("--map-size=TRACK={ROOM}");
    let mut agent = Agent::start(world, options(&[&room]), &[(FILE, &*objects)]).unwrap();
    served(&mut agent, "ext1");

    // Clients hear that they are connected, and the node does not hear from them.
    let clients = neighbour.host.netns();
    filter(clients, &["add table ip slow"]);
    filter(
        clients,
        &["add chain ip slow output { type filter hook output priority 0; }"],
    );
    filter(
        clients,
        &["add rule ip slow output tcp flags & (syn | ack) == ack drop"],
    );
    let to = SocketAddr::new(neighbour.node[0], HTTP);
    let connects = || -> io::Result<Vec<TcpStream>> {
        let ports = 24_000..24_000 + BEGUN;
        ports.map(|port| connected(port, to)).collect()
    };
    let streams = clients.run(connects).unwrap().unwrap();
    assert_eq!(listed(&site.shop, &agent, &[]).len(), usize::from(BEGUN));
    filter(clients, &["delete table ip slow"]);
    for (number, stream) in (0..).zip(&streams) {
        let said = say(stream.try_clone().unwrap());
        said.unwrap_or_else(|error| panic!("{number}: {error}"));
    }

    // One more is the layer beneath's.
    let more = || connected(24_000 + BEGUN, to);
    say(clients.run(more).unwrap().unwrap()).unwrap();
    assert_eq!(listed(&site.shop, &agent, &[]).len(), usize::from(BEGUN));
}
