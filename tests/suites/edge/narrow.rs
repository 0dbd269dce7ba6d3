//! Wires that carry less than what is sent: the sender is told so, by an error that quotes what it sent,
//! and sends less; datagrams come in fragments.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{IpAddr, SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use proxy_tests::{Agent, Shop, world::Neighbour};

use super::rig::{DNS, FILE, HTTP, Site, can_run, cluster, on_node, options, served};

/// What is lost on the way is sent again, which takes seconds where many tests run at once.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Far more than one packet holds.
const LONG: usize = 200_000;
/// More than two packets hold.
pub const LARGE: usize = 4_000;

/// Sends a long line from `host`, which is sent back.
pub fn echo_over_tcp(neighbour: &Neighbour, ip: IpAddr) {
    let echo = || -> std::io::Result<usize> {
        let mut stream = TcpStream::connect(SocketAddr::new(ip, HTTP))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut line = vec![b'x'; LONG];
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)
    };
    let answered = neighbour.host.netns().run(echo).unwrap();
    let length = answered.unwrap_or_else(|error| panic!("{ip}: {error}"));
    assert!(length > LONG, "{ip}: {length}");
}

/// Sends a large datagram, which is sent back.
fn echo_over_udp(neighbour: &Neighbour, ip: IpAddr) {
    let echo = || -> std::io::Result<usize> {
        let any: IpAddr = if ip.is_ipv4() {
            [0; 4].into()
        } else {
            [0; 16].into()
        };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.send_to(&[b'x'; LARGE], SocketAddr::new(ip, DNS))?;
        let mut answer = vec![0; 65_536];
        let (length, from) = socket.recv_from(&mut answer)?;
        assert_eq!(from, SocketAddr::new(ip, DNS));
        Ok(length)
    };
    let answered = neighbour.host.netns().run(echo).unwrap();
    let length = answered.unwrap_or_else(|error| panic!("{ip}: {error}"));
    assert!(length > LARGE, "{ip}: {length}");
}

#[test]
fn an_endpoint_learns_of_a_narrow_wire_on_the_way_to_the_client() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let neighbour = shop.world.neighbour_behind(1, 1300).unwrap();
    let objects = cluster(&neighbour, &[1]);
    let mut agent = Agent::start(&shop.world, options(&[]), &[(FILE, &*objects)]).unwrap();
    served(&mut agent, "ext1");
    for ip in neighbour.node {
        echo_over_tcp(&neighbour, ip);
    }
}

#[test]
fn a_client_learns_of_a_narrow_wire_on_the_way_to_the_endpoint() {
    let Some(site) = Site::build() else {
        return;
    };
    let _agent = site.serve(&[1]);
    let (shop, neighbour) = (&site.shop, &site.neighbour);
    on_node(shop, "ip", &["link", "set", "br0", "mtu", "1300"]);
    for ip in neighbour.node {
        echo_over_tcp(neighbour, ip);
    }
}

#[test]
fn datagrams_in_fragments_reach_their_endpoint_and_so_do_the_answers() {
    let Some(site) = Site::build() else {
        return;
    };
    let _agent = site.serve(&[1]);
    let neighbour = &site.neighbour;
    for ip in neighbour.node {
        for _ in 0..3 {
            echo_over_udp(neighbour, ip);
        }
    }
}
