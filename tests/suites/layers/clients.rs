//! Clients of each kind, and what becomes of what they send: who is seen by the endpoint, and what the
//! node's conntrack says of who decided.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use proxy_model::Protocol;
use proxy_tests::{
    Prober,
    journey::{Datagram, tun::Tun},
    pod::{ATTEMPT_LIMIT, Transport},
    world::Place,
};

use super::{
    packets::{Ears, Packet, wait},
    stage::{Dials, MACHINE, NODE, OUTSIDE, POD, Stage, WIRE},
    tracked::{flows, seen_from},
};

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// A process of a pod.
    Pod,
    /// A process of the node.
    Node,
    /// A process in a pod's network that no hook sees.
    Unseen,
    /// The same in the node's.
    UnseenOfNode,
    /// A host elsewhere, routed through the node.
    Outside,
    /// A process of a pod that writes its own packets.
    Raw,
    /// A virtual machine.
    Machine,
}

impl Client {
    /// Its address.
    pub const fn address(self) -> IpAddr {
        match self {
            Self::Pod | Self::Unseen | Self::Raw => POD,
            Self::Node | Self::UnseenOfNode => NODE,
            Self::Outside => OUTSIDE,
            Self::Machine => MACHINE,
        }
    }

    /// Whether it writes its own packets, instead of dialling.
    pub const fn writes_packets(self) -> bool {
        matches!(self, Self::Raw | Self::Machine)
    }
}

/// How it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From a socket.
    Socket(Transport),
    /// A packet that it writes itself.
    Packet(Protocol),
}

impl Way {
    /// What it speaks.
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Socket(transport) if transport.is_udp() => Protocol::Udp,
            Self::Socket(_) => Protocol::Tcp,
            Self::Packet(protocol) => protocol,
        }
    }
}

/// What became of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Became {
    /// eBPF decided: conntrack holds client → endpoint, not translated.
    Led {
        /// Whom the endpoint sees.
        sees: IpAddr,
    },
    /// nftables decided: conntrack holds client → frontend, translated.
    Translated {
        /// Whom the endpoint sees.
        sees: IpAddr,
    },
    /// eBPF, then nftables: conntrack holds client → another frontend, translated.
    LedThenTranslated {
        /// Whom the endpoint sees.
        sees: IpAddr,
    },
    /// The client is told so, by a socket with this error; conntrack holds nothing.
    Refused(&'static str),
    /// Nothing comes back; conntrack holds nothing.
    Silence,
}

/// All of them.
pub struct Clients<'s> {
    stage: &'s Stage,
    pod: Prober,
    node: Prober,
    unseen: Prober,
    unseen_of_node: Prober,
    outside: Prober,
    at_pod: Ears,
    at_machine: Ears,
    port: u16,
    /// Where those are that no hook sees.
    _places: [Place<'s>; 3],
}

/// So long is silence waited for: an answer needs far less. Where one is expected it may take its time.
const SILENCE: Duration = Duration::from_millis(200);

/// What a refused packet is told by, whoever wrote it.
const TOLD: &str = "ECONNREFUSED";

impl<'s> Clients<'s> {
    /// Starts them. `wire` is the machine's.
    pub fn start(stage: &'s Stage, wire: Tun) -> Self {
        let world = &stage.world;
        let places =
            [&stage.pod, world.node(), &stage.outside].map(|host| world.unseen(host).unwrap());
        let [unseen, unseen_of_node, outside] = [0, 1, 2]
            .map(|at: usize| Prober::start_with(|command| places[at].spawn(command)).unwrap());
        Self {
            pod: Prober::start(&stage.pod).unwrap(),
            node: Prober::start(world.node()).unwrap(),
            unseen,
            unseen_of_node,
            outside,
            at_pod: Ears::at(&stage.pod),
            at_machine: Ears::Frames(wire),
            port: 20_000,
            stage,
            _places: places,
        }
    }

    /// What becomes of a connection of `client` to what it `dials`. If no answer is `expected`, none is
    /// waited for any longer than an answer takes.
    pub fn dial(&mut self, client: Client, dials: Dials, way: Way, expected: Became) -> Became {
        let protocol = way.protocol();
        let to = dials.address(protocol);
        self.stage.arrivals.heard();
        let Way::Socket(transport) = way else {
            return self.write(client, protocol, to);
        };
        let prober = match client {
            Client::Pod => &mut self.pod,
            Client::Node => &mut self.node,
            Client::Unseen => &mut self.unseen,
            Client::UnseenOfNode => &mut self.unseen_of_node,
            _ => &mut self.outside,
        };
        let within = match expected {
            Became::Silence => SILENCE,
            _ => ATTEMPT_LIMIT,
        };
        let attempt = prober.send_within(within, transport, to, 1).unwrap();
        match attempt[0].answer_as(to) {
            Ok(_) => self.arrived(client, protocol, to),
            Err(error) => {
                // Its port is not known: of all its sockets none got there.
                self.assert_untracked(SocketAddr::new(client.address(), 0), to);
                match error.rsplit(' ').next() {
                    Some("ECONNREFUSED") => Became::Refused("ECONNREFUSED"),
                    Some("EHOSTUNREACH") => Became::Refused("EHOSTUNREACH"),
                    Some("timeout") => Became::Silence,
                    _ => panic!("{client:?} to {to}: {error}"),
                }
            }
        }
    }

    /// What became of the only connection that reached the endpoint.
    fn arrived(&self, client: Client, protocol: Protocol, to: SocketAddr) -> Became {
        let heard = self.stage.arrivals.heard();
        let first = heard.iter().find_map(|packet| match packet {
            Packet::Of {
                protocol: of,
                source,
                destination,
                opens: true,
                ..
            } if *of == protocol => Some((*source, *destination)),
            _ => None,
        });
        let (source, endpoint) = first.unwrap_or_else(|| panic!("{to}: {heard:?}"));
        self.decided(client, protocol, to, source, endpoint)
    }

    /// Who decided about the connection that `endpoint` sees coming from `source`.
    fn decided(
        &self,
        client: Client,
        protocol: Protocol,
        to: SocketAddr,
        source: SocketAddr,
        endpoint: SocketAddr,
    ) -> Became {
        let sees = source.ip();
        let world = &self.stage.world;
        let Some(flow) = seen_from(world, protocol, source, endpoint) else {
            panic!("{source} to {endpoint} is not tracked: {:?}", flows(world))
        };
        assert_eq!(flow.original[0].ip(), client.address(), "{flow:?}");
        match flow.original[1] {
            dialled if dialled == to => Became::Translated { sees },
            dialled if dialled == endpoint => Became::Led { sees },
            _ => Became::LedThenTranslated { sees },
        }
    }

    /// Port 0 stands for any.
    fn assert_untracked(&self, client: SocketAddr, to: SocketAddr) {
        let all = flows(&self.stage.world);
        let of = all.iter().find(|flow| {
            let [source, destination] = flow.original;
            let same_port = [0, source.port()].contains(&client.port());
            source.ip() == client.ip() && same_port && destination == to
        });
        assert_eq!(of, None, "{client:?} to {to}");
    }

    /// A packet that the client writes itself, and behind it one that reaches the endpoint for certain:
    /// once that is there, nothing more can come of the first.
    fn write(&mut self, client: Client, protocol: Protocol, to: SocketAddr) -> Became {
        let first = self.next(client, protocol, to);
        self.put(client, &first);
        let behind = self.next(
            client,
            Protocol::Udp,
            Dials::ClusterIp.address(Protocol::Udp),
        );
        self.put(client, &behind);
        let ears = match client {
            Client::Machine => &self.at_machine,
            _ => &self.at_pod,
        };
        let mut answered = false;
        let mut refused = false;
        // Answers of the endpoint come the same way back, one behind the other.
        loop {
            let heard = ears.heard();
            if heard.is_empty() {
                wait(&[ears]);
            }
            let answers = |packet: &Packet, to: &Datagram| {
                let Packet::Of {
                    source,
                    destination,
                    ..
                } = packet
                else {
                    return false;
                };
                (*source, *destination) == (to.destination, to.source)
            };
            answered |= heard.iter().any(|packet| answers(packet, &first));
            refused |= heard.contains(&Packet::Refusal(first.token));
            if heard.iter().any(|packet| answers(packet, &behind)) {
                break;
            }
        }
        if refused {
            self.assert_untracked(first.source, to);
            return Became::Refused(TOLD);
        }
        let heard = self.stage.arrivals.heard();
        let is_first = |packet: &&Packet| {
            matches!(packet, Packet::Of { token: Some(token), opens: true, .. }
                if *token == first.token)
        };
        let arrived = heard.iter().find(is_first);
        let Some(Packet::Of {
            source,
            destination,
            ..
        }) = arrived
        else {
            self.assert_untracked(first.source, to);
            return Became::Silence;
        };
        // Nothing here answers SCTP.
        assert!(answered || protocol == Protocol::Sctp, "{first:?}");
        self.decided(client, protocol, to, *source, *destination)
    }

    fn next(&mut self, client: Client, protocol: Protocol, to: SocketAddr) -> Datagram {
        self.port += 1;
        let source = SocketAddr::new(client.address(), self.port);
        Datagram::first(source, to, protocol, self.port.into())
    }

    fn put(&mut self, client: Client, datagram: &Datagram) {
        let packet = datagram.encode();
        let Ears::Frames(wire) = &self.at_machine else {
            panic!("a machine has a wire");
        };
        if client == Client::Machine {
            let [node, own] = WIRE;
            let frame = [&node[..], &own, &[0x08, 0x00], &packet].concat();
            wire.inject(&frame).unwrap();
        } else {
            self.pod.send_packet(packet).unwrap();
        }
    }
}
