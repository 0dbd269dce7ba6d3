//! A socket of the node itself, from the very port that an endpoint elsewhere sees in the place of a client:
//! each hears its own answers.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpStream, UdpSocket},
    os::fd::AsRawFd as _,
};

use nix::sys::{
    socket::{
        AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket,
        sockopt,
    },
    time::{TimeVal, TimeValLike as _},
};
use proxy_tests::pod::Transport;

use super::{
    super::{
        asked::asked,
        narrow::PATIENCE,
        rig::{DNS, prober},
    },
    Site,
};

/// A socket that is connected.
pub enum Own {
    Tcp(BufReader<TcpStream>),
    Udp(UdpSocket),
}

impl Own {
    pub fn connect(transport: Transport, [from, to]: [SocketAddr; 2]) -> std::io::Result<Self> {
        if transport.is_udp() {
            let socket = UdpSocket::bind(from)?;
            socket.connect(to)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            return Ok(Self::Udp(socket));
        }
        let family = match from {
            SocketAddr::V4(_) => AddressFamily::Inet,
            SocketAddr::V6(_) => AddressFamily::Inet6,
        };
        let stream = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        let patience = TimeVal::seconds(i64::try_from(PATIENCE.as_secs()).unwrap());
        setsockopt(&stream, sockopt::SendTimeout, &patience)?;
        bind(stream.as_raw_fd(), &SockaddrStorage::from(from))?;
        connect(stream.as_raw_fd(), &SockaddrStorage::from(to))?;
        let stream = TcpStream::from(stream);
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self::Tcp(BufReader::new(stream)))
    }

    /// Sends it, and returns whom the endpoint saw.
    pub fn echo(&mut self, word: &str) -> std::io::Result<SocketAddr> {
        let mut answer = String::new();
        match self {
            Self::Tcp(stream) => {
                stream.get_mut().write_all(format!("{word}\n").as_bytes())?;
                stream.read_line(&mut answer)?;
            }
            Self::Udp(socket) => {
                socket.send(word.as_bytes())?;
                let mut datagram = [0; 200];
                let length = socket.recv(&mut datagram)?;
                answer += &String::from_utf8_lossy(&datagram[..length]);
            }
        }
        let words: Vec<_> = answer.split_whitespace().collect();
        assert_eq!(words[1], word);
        Ok(words[2].parse().unwrap())
    }
}

#[test]
fn a_socket_of_the_node_and_a_client_seen_at_the_same_port_hear_their_own_answers() {
    let Some(site) = Site::build() else {
        return;
    };
    let agent = site.serve(&[]);
    let mut client = prober(&site.client);
    let node = site.shop.world.node().netns();
    for (number, (transport, to)) in site.all().into_iter().enumerate() {
        let name = number.to_string();
        let mut ask = || {
            let [first, second] = &*client.send_on(&name, transport, to, 2).unwrap() else {
                panic!("two were sent");
            };
            site.is_answered(to, first);
            assert_eq!(first, second);
            (first.client.unwrap(), first.answer.unwrap())
        };
        let (seen, endpoint) = ask();
        let listed = site.sources(&agent);
        assert!(
            listed.iter().any(|(_, source)| *source == seen),
            "{listed:?}"
        );

        let own = || -> std::io::Result<_> {
            let mut own = Own::connect(transport, [seen, endpoint])?;
            let there = own.echo("mine")?;
            Ok((own, there))
        };
        let (mut own, there) = node.run(own).unwrap().unwrap();
        assert_eq!(there.ip(), seen.ip(), "{to}");
        assert_ne!(there.port(), seen.port(), "{to}: {transport}");
        for word in ["again", "and again"] {
            let word = word.replace(' ', "-");
            assert_eq!(ask(), (seen, endpoint));
            assert_eq!(own.echo(&word).unwrap(), there);
        }
        drop(own);
        assert_eq!(ask(), (seen, endpoint));
    }
    // Only clients are listed.
    assert_eq!(site.sources(&agent).len(), site.all().len());
}

/// To netfilter, that port is as good as any other for what it masquerades.
#[test]
fn a_socket_at_a_port_that_clients_dial_hears_the_answers_to_its_own_datagrams() {
    let Some(site) = Site::build() else {
        return;
    };
    let _agent = site.serve(&[]);
    let mut client = prober(&site.client);
    let node = site.shop.world.node().netns();
    for (own, endpoint) in site.other.node.into_iter().zip(site.other.addresses) {
        let ends = [SocketAddr::new(own, DNS), SocketAddr::new(endpoint, 5353)];
        let seen = || -> std::io::Result<_> {
            let mut socket = Own::connect(Transport::Udp, ends)?;
            Ok([socket.echo("mine")?, socket.echo("again")?])
        };
        assert_eq!(node.run(seen).unwrap().unwrap(), [ends[0]; 2]);
    }
    for (transport, to) in site.all() {
        for attempt in client.send(transport, to, 5).unwrap() {
            site.is_answered(to, &attempt);
        }
    }
}

#[test]
fn a_port_that_a_socket_of_the_node_has_is_not_taken() {
    let Some(site) = Site::build() else {
        return;
    };
    // One of two.
    let agent = site.serve(&["--source-ports=40000-40001"]);
    let mut client = prober(&site.client);
    let node = site.shop.world.node().netns();
    let all = site.all().into_iter();
    for (transport, to) in all.filter(|(_, to)| site.client.node.contains(&to.ip())) {
        let family = usize::from(to.is_ipv6());
        let port = if transport.is_udp() { 5353 } else { 8080 };
        let ends = [(site.other.node, 40_000), (site.other.addresses, port)];
        let ends = ends.map(|(ips, port)| SocketAddr::new(ips[family], port));
        let own = || Own::connect(transport, ends);
        let mut own = node.run(own).unwrap().unwrap();
        assert_eq!(own.echo("mine").unwrap(), ends[0]);
        for name in ["one", "two", "three"] {
            let name = format!("{name} {to}");
            for attempt in client.send_on(&name, transport, to, 2).unwrap() {
                attempt.answer_as(to).unwrap();
                assert_ne!(attempt.client.unwrap(), ends[0], "{to}");
            }
        }
        assert_eq!(own.echo("mine-again").unwrap(), ends[0]);
    }
    let sources = site.sources(&agent);
    let is_free = |(_, source): &(_, SocketAddr)| source.port() == 40_001;
    assert!(sources.iter().all(is_free), "{sources:?}");
    // No endpoint had to tell.
    let counted = asked(&site.shop, &agent, &["stats"]);
    let mut words = counted.split_whitespace();
    assert!(words.all(|word| word != "direct"), "{counted}");
}
