//! What a client and an endpoint send each other, and what else happens. It is played at once: what
//! becomes of each packet must be what is expected, and tells what comes next.

use std::net::{IpAddr, SocketAddr};

use proxy_common::{
    in_memory::{Build, Bytes, Hook, Payload},
    packet::{Version, parse::flags, rewrite::End},
    track::reason::Outcome,
};

use crate::packets::{
    Play,
    fields::Layout,
    site::{Family, at},
    step::Step,
};

pub(super) const SYN: u32 = flags::SYN;
pub(super) const ACK: u32 = flags::ACK;
/// What becomes of a packet of a flow.
pub(super) const DONE: Outcome = Outcome::TRANSLATED;
/// What becomes of one that is of none.
pub(super) const UNTOUCHED: Outcome = Outcome::UNTOUCHED;

/// A client, and what happened so far.
pub(super) struct Journey {
    pub(super) family: &'static Family,
    pub(super) client: SocketAddr,
    pub(super) frontend: SocketAddr,
    /// Where its last packet went.
    pub(super) endpoint: SocketAddr,
    pub(super) steps: Vec<Step>,
    play: Play,
}

impl Journey {
    pub(super) fn new(family: &'static Family) -> Self {
        let frontend = at(family.frontend);
        let client = if frontend.is_ipv4() {
            "198.51.100.7:40000"
        } else {
            "[2001:db8:7::7]:40000"
        };
        Self {
            family,
            client: at(client),
            frontend,
            endpoint: at(family.endpoints[0]),
            steps: Vec::new(),
            play: Play::default(),
        }
    }

    pub(super) fn version(&self) -> Version {
        if self.frontend.is_ipv4() {
            Version::V4
        } else {
            Version::V6
        }
    }

    pub(super) fn does(&mut self, step: Step) {
        self.play.take(step.clone());
        self.steps.push(step);
    }

    /// What becomes of the packet of such a step.
    #[track_caller]
    pub(super) fn becomes(&mut self, step: Step, expected: Outcome) {
        self.does(step);
        assert_eq!(self.play.outcomes.last(), Some(&expected));
    }

    /// A packet that this becomes of.
    #[track_caller]
    pub(super) fn meets(&mut self, hook: Hook, packet: Bytes, expected: Outcome) {
        self.does(Step::Packet(hook, self.version(), packet.0));
        assert_eq!(self.play.outcomes.last(), Some(&expected));
        if let (DONE, Hook::Ingress, Some((_, version, packet))) =
            (expected, hook, &self.play.translated)
        {
            let layout = Layout::of(*version, &packet.0).unwrap();
            let (address, port) = layout.outer.side(&packet.0, End::Destination);
            if let Some(port) = port {
                self.endpoint = SocketAddr::new(address, port);
            }
        }
    }

    /// What the client sends.
    pub(super) fn request(&self, payload: Payload) -> Build {
        Build {
            from: self.client,
            to: self.frontend,
            options: 0,
            payload,
        }
    }

    /// What the endpoint gets, and answers.
    pub(super) fn inside(&self, payload: Payload) -> Build {
        Build {
            to: self.endpoint,
            ..self.request(payload)
        }
    }

    pub(super) fn reply(&self, payload: Payload) -> Build {
        Build {
            from: self.endpoint,
            to: self.client,
            options: 0,
            payload,
        }
    }

    #[track_caller]
    pub(super) fn sends(&mut self, payload: Payload, expected: Outcome) {
        let packet = self.request(payload).bytes();
        self.meets(Hook::Ingress, packet, expected);
    }

    #[track_caller]
    pub(super) fn hears(&mut self, payload: Payload, expected: Outcome) {
        // The numbers of the client change places.
        let payload = match payload {
            Payload::Tcp(seen, sequence, acknowledged, data) if seen & SYN == 0 => {
                Payload::Tcp(seen, acknowledged, sequence, data)
            }
            other => other,
        };
        let packet = self.reply(payload).bytes();
        self.meets(Hook::Egress, packet, expected);
    }

    pub(super) fn connects(&mut self) {
        self.sends(tcp(SYN, ""), DONE);
        self.hears(taken(), DONE);
        self.sends(tcp(ACK, ""), DONE);
    }

    pub(super) fn asks(&mut self) {
        self.sends(udp("question"), DONE);
        self.hears(udp("answer"), DONE);
        self.hears(udp("more"), DONE);
    }

    pub(super) fn router(&self) -> SocketAddr {
        at(if self.frontend.is_ipv4() {
            "203.0.113.1:0"
        } else {
            "[2001:db8:9::1]:0"
        })
    }

    /// An error about a packet, to its sender, that quotes so many bytes of it.
    pub(super) fn error(from: IpAddr, about: Build, quoted: usize) -> Bytes {
        let kind = if from.is_ipv4() { 3 } else { 1 };
        Self::error_of(kind, from, about, quoted)
    }

    pub(super) fn error_of(kind: u8, from: IpAddr, about: Build, quoted: usize) -> Bytes {
        let error = Build {
            from: SocketAddr::new(from, 0),
            to: SocketAddr::new(about.from.ip(), 0),
            options: 0,
            payload: Payload::Error(kind, Box::new(about), quoted),
        };
        error.bytes()
    }
}

pub(super) fn tcp(seen: u32, data: &str) -> Payload {
    let acknowledged = if seen & ACK == 0 { 0 } else { 5001 };
    let sequence = if seen & SYN == 0 { 1001 } else { 1000 };
    Payload::Tcp(seen, sequence, acknowledged, data.into())
}

/// What the endpoint begins with.
pub(super) fn taken() -> Payload {
    Payload::Tcp(SYN | ACK, 5000, 1001, Vec::new())
}

pub(super) fn udp(data: &str) -> Payload {
    Payload::Udp(data.into())
}
