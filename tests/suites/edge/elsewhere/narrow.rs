//! Wires that carry less than what is sent, on either side of a node that translates both ends: the sender
//! hears of it in terms of what it sent, and datagrams come in fragments.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    time::Duration,
};

use proxy_tests::{Agent, World, world::Neighbour};

use super::{
    super::{
        narrow::{LARGE, PATIENCE, echo_over_tcp},
        rig::{DNS, on_node},
    },
    Site,
};

/// What the wire carries.
const NARROW: u32 = 1300;
/// A datagram that fits in one packet elsewhere.
const TOO_LONG: usize = 1400;
/// One that is too long with what the endpoint adds.
const LONG_ENOUGH: usize = 1250;
/// After so long, a datagram is sent again.
const LOST: Duration = Duration::from_millis(500);

/// Makes the wire of a neighbour narrow, which tells others that it takes longer packets.
fn narrows(site: &Site, neighbour: &Neighbour) {
    let mtu = NARROW.to_string();
    let device = ["link", "set", &neighbour.device, "mtu", &mtu];
    on_node(&site.shop, "ip", &device);
    let [v4, v6] = neighbour.node;
    let script = format!(
        "link set eth0 mtu {mtu}\n\
         route change default via {v4} dev eth0 advmss 1460\n\
         route change default via {v6} dev eth0 advmss 1440\n"
    );
    neighbour.host.netns().ip(&script).unwrap();
}

/// A socket that is connected to `to`.
fn connected(to: SocketAddr) -> UdpSocket {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => [0; 4].into(),
        SocketAddr::V6(_) => [0; 16].into(),
    };
    let socket = UdpSocket::bind((any, 0)).unwrap();
    socket.connect(to).unwrap();
    socket
}

/// The client is told that its datagram is too long, which it is if the error is about what it
/// dialled, and sends it in fragments.
fn client_learns(site: &Site, ip: IpAddr) {
    let learns = || {
        let socket = connected((ip, DNS).into());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = [0; 2 * TOO_LONG];
        socket.send(&[b'x'; TOO_LONG]).unwrap();
        let told = socket.recv(&mut answer).unwrap_err();
        assert_eq!(told.raw_os_error(), Some(libc::EMSGSIZE), "{ip}: {told}");
        socket.send(&[b'x'; TOO_LONG]).unwrap();
        let length = socket.recv(&mut answer);
        let length = length.unwrap_or_else(|error| panic!("{ip}: {error}"));
        assert!(length > TOO_LONG, "{ip}: {length}");
    };
    site.client.host.netns().run(learns).unwrap();
}

/// The endpoint is told that its answer is too long, and sends the next one in fragments.
fn endpoint_learns(site: &Site, ip: IpAddr) {
    let hears = || {
        let socket = connected((ip, DNS).into());
        socket.set_read_timeout(Some(LOST)).unwrap();
        let mut answer = [0; 2 * LONG_ENOUGH];
        let tries = (PATIENCE.as_millis() / LOST.as_millis()) as usize;
        let answered = (0..tries).position(|_| {
            socket.send(&[b'x'; LONG_ENOUGH]).unwrap();
            let heard = socket.recv(&mut answer);
            heard.is_ok_and(|length| length > LONG_ENOUGH)
        });
        assert!(answered.unwrap_or_else(|| panic!("{ip}: no answer")) > 0);
    };
    site.client.host.netns().run(hears).unwrap();
}

/// All of it was this layer's.
fn is_translated(site: &Site, agent: &Agent<'_>, flows: usize) {
    let listed = site.sources(agent);
    assert_eq!(listed.len(), flows, "{listed:?}");
    for (_, source) in listed {
        assert!(site.other.node.contains(&source.ip()), "{source}");
    }
}

/// A client remembers what it was told by the address that it dialled.
fn client_learns_by_both(site: &Site) {
    let agent = site.serve(&[]);
    for ip in site.client.node {
        client_learns(site, ip);
    }
    for ip in site.other.node {
        echo_over_tcp(&site.client, ip);
    }
    is_translated(site, &agent, 4);
}

#[test]
fn a_client_learns_of_the_narrow_wire_by_which_the_node_reaches_the_endpoint() {
    let Some(site) = Site::build() else {
        return;
    };
    narrows(&site, &site.other);
    client_learns_by_both(&site);
}

#[test]
fn a_client_learns_of_a_narrow_wire_behind_a_router_in_front_of_the_endpoint() {
    let behind = |world: &World| {
        let other = world.neighbour_behind(2, NARROW).unwrap();
        [world.neighbour(1).unwrap(), other]
    };
    if let Some(site) = Site::between(behind) {
        client_learns_by_both(&site);
    }
}

/// An endpoint remembers what it was told by the address that it answers, which is one: so once by datagrams
/// alone, and once by TCP.
fn endpoint_learns_by_both(build: impl Fn() -> Option<Site>) {
    for datagrams in [true, false] {
        let Some(site) = build() else {
            return;
        };
        let agent = site.serve(&[]);
        for ip in site.client.node {
            if datagrams {
                endpoint_learns(&site, ip);
            } else {
                echo_over_tcp(&site.client, ip);
            }
        }
        is_translated(&site, &agent, 2);
    }
}

#[test]
fn an_endpoint_learns_of_the_narrow_wire_by_which_the_node_reaches_the_client() {
    endpoint_learns_by_both(|| Site::build().inspect(|site| narrows(site, &site.client)));
}

#[test]
fn an_endpoint_learns_of_a_narrow_wire_behind_a_router_in_front_of_the_client() {
    endpoint_learns_by_both(|| {
        Site::between(|world| {
            let client = world.neighbour_behind(1, NARROW).unwrap();
            [client, world.neighbour(2).unwrap()]
        })
    });
}

/// A flow over IPv6 begins with a whole datagram; one that is in fragments from the beginning is the layer
/// beneath's.
fn sizes(ip: IpAddr) -> [usize; 4] {
    let first = if ip.is_ipv4() { LARGE } else { 1 };
    [first, LARGE, 1, LARGE]
}

#[test]
fn datagrams_in_fragments_reach_an_endpoint_elsewhere_and_so_do_the_answers() {
    let Some(site) = Site::build() else {
        return;
    };
    let agent = site.serve(&[]);
    let echo = |ip: IpAddr| {
        let socket = connected((ip, DNS).into());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = [0; 2 * LARGE];
        for size in sizes(ip) {
            socket.send(&vec![b'x'; size]).unwrap();
            let length = socket.recv(&mut answer);
            let length = length.unwrap_or_else(|error| panic!("{ip}: {size}: {error}"));
            assert!((size + 1..size + 100).contains(&length), "{ip}: {length}");
        }
    };
    for ip in [site.client.node, site.other.node].concat() {
        site.client.host.netns().run(|| echo(ip)).unwrap();
    }
    is_translated(&site, &agent, 4);
}
