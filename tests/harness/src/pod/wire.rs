//! What a test and the `culvert-pod` inside a pod say to each other: one JSON value per line.

use std::{collections::BTreeMap, fmt, net::SocketAddr, str::FromStr, time::Duration};

use anyhow::{anyhow, bail};
use serde::{Deserialize, Serialize};

/// An address that a server listens on, written `tcp:10.244.0.5:80` or `udp:[fd00::5]:53`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Listen {
    /// UDP instead of TCP.
    pub udp: bool,
    /// Where.
    pub address: SocketAddr,
}

impl Listen {
    /// TCP, and HTTP on the same port.
    pub const fn tcp(address: SocketAddr) -> Self {
        Self {
            udp: false,
            address,
        }
    }

    /// UDP.
    pub const fn udp(address: SocketAddr) -> Self {
        Self { udp: true, address }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}",
            if self.udp { "udp" } else { "tcp" },
            self.address
        )
    }
}

impl FromStr for Listen {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (protocol, address) = text
            .split_once(':')
            .ok_or_else(|| anyhow!("{text:?} is not PROTOCOL:IP:PORT"))?;
        let address = address.parse()?;
        match protocol {
            "tcp" => Ok(Self::tcp(address)),
            "udp" => Ok(Self::udp(address)),
            _ => bail!("{protocol:?} is neither tcp nor udp"),
        }
    }
}

/// How a prober's socket is made and used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// A TCP socket of the destination's family.
    Tcp,
    /// An IPv6 TCP socket that dials an IPv4-mapped address.
    TcpMapped,
    /// `GET /` over TCP.
    Http,
    /// A UDP socket that is never connected (`sendto`, `recvfrom`).
    Udp,
    /// The same on an IPv6 socket with an IPv4-mapped destination.
    UdpMapped,
    /// A UDP socket that is connected first.
    UdpConnected,
    /// The same on an IPv6 socket with an IPv4-mapped destination.
    UdpConnectedMapped,
}

impl Transport {
    /// Every transport and its name in scenario files.
    pub const ALL: [(Self, &str); 7] = [
        (Self::Tcp, "TCP"),
        (Self::TcpMapped, "TCP-mapped"),
        (Self::Http, "HTTP"),
        (Self::Udp, "UDP"),
        (Self::UdpMapped, "UDP-mapped"),
        (Self::UdpConnected, "UDP-connected"),
        (Self::UdpConnectedMapped, "UDP-connected-mapped"),
    ];

    /// Whether the socket is an IPv6 one that dials an IPv4-mapped address.
    pub const fn is_mapped(self) -> bool {
        matches!(
            self,
            Self::TcpMapped | Self::UdpMapped | Self::UdpConnectedMapped
        )
    }

    /// Whether the protocol is UDP.
    pub const fn is_udp(self) -> bool {
        !matches!(self, Self::Tcp | Self::TcpMapped | Self::Http)
    }

    /// Whether the socket has a peer (`getpeername`).
    pub const fn is_connected(self) -> bool {
        !matches!(self, Self::Udp | Self::UdpMapped)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(transport, _)| transport == self);
        f.pad(name.expect("ALL holds every transport").1)
    }
}

impl FromStr for Transport {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.iter().find(|(_, name)| *name == text);
        known.map(|(transport, _)| *transport).ok_or_else(|| {
            let names = Self::ALL.map(|(_, name)| name).join(", ");
            anyhow!("{text:?} is no transport; there are: {names}")
        })
    }
}

impl Serialize for Transport {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Transport {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// What a prober is asked to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Request {
    /// Sends `count` requests, one after the other, each answered or given up after `timeout`.
    Send {
        /// How.
        transport: Transport,
        /// Whereto.
        to: SocketAddr,
        /// The open socket to use; a new one per request when absent.
        socket: Option<String>,
        /// How many.
        count: u32,
        /// Limit of each.
        timeout: Duration,
    },
    /// Closes an open socket.
    Close {
        /// Which.
        socket: String,
    },
    /// Sends a packet by a raw socket, as it is.
    Packet {
        /// From its IPv4 header on.
        packet: Vec<u8>,
    },
    /// Starts a load.
    LoadStart(Load),
    /// Asks for a load's counts so far.
    LoadReport {
        /// Which.
        name: String,
    },
    /// Waits until loads have finished further requests, all of them at the same time, then asks for
    /// their counts.
    LoadWait {
        /// Which, and how many more each, answered or failed.
        more: Vec<(String, u64)>,
    },
    /// Stops a load.
    LoadStop {
        /// Which.
        name: String,
    },
}

/// Requests sent without pause until told otherwise.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Load {
    /// What to call it.
    pub name: String,
    /// How to send.
    pub transport: Transport,
    /// Whereto.
    pub to: SocketAddr,
    /// How many threads send, each with sockets of its own.
    pub threads: u32,
    /// How long each thread pauses after each request.
    pub pause: Duration,
    /// Keep one socket per thread instead of opening one per request.
    pub keep: bool,
}

/// What a load has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Time since it started.
    pub elapsed: Duration,
    /// Requests that were answered correctly.
    pub answered: u64,
    /// Correct answers per endpoint.
    pub answers: BTreeMap<SocketAddr, u64>,
    /// Everything else, by what went wrong.
    pub failures: BTreeMap<String, u64>,
    /// The slowest correct answer.
    pub slowest: Duration,
}

impl LoadReport {
    /// Requests that were answered or failed.
    pub fn finished(&self) -> u64 {
        self.answered + self.failures.values().sum::<u64>()
    }
}

/// What a prober answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// To [`Request::Send`].
    Attempts(Vec<Attempt>),
    /// To [`Request::LoadReport`] and [`Request::LoadStop`].
    Load(LoadReport),
    /// To [`Request::LoadWait`], in the same order.
    Loads(Vec<LoadReport>),
    /// To the others.
    Done,
    /// The request made no sense.
    Failed(String),
}

/// What became of one request. IPv4-mapped addresses are given as IPv4.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The endpoint's own address, as the endpoint says.
    pub answer: Option<SocketAddr>,
    /// Who the endpoint takes for the client; HTTP does not tell.
    pub client: Option<SocketAddr>,
    /// The system call that failed and the name of its error: `connect ECONNREFUSED`.
    pub error: Option<String>,
    /// What `getpeername` says, on a connected socket.
    pub peer: Option<SocketAddr>,
    /// Where `recvfrom` says that the answer came from, on a UDP socket.
    pub from: Option<SocketAddr>,
}

impl Attempt {
    /// The name of the error without the system call, if there was one.
    pub fn errno(&self) -> Option<&str> {
        self.error
            .as_deref()
            .and_then(|error| error.rsplit(' ').next())
    }

    /// The endpoint that answered, provided that the socket shows `dialled` as the other side
    /// wherever it shows one; else what is wrong.
    pub fn answer_as(&self, dialled: SocketAddr) -> Result<SocketAddr, String> {
        for (what, shown) in [("getpeername", self.peer), ("recvfrom", self.from)] {
            if let Some(shown) = shown.filter(|shown| *shown != dialled) {
                return Err(format!(
                    "{what} shows {shown}, not {dialled} which was dialled"
                ));
            }
        }
        self.answer
            .ok_or_else(|| self.error.clone().unwrap_or_else(|| "no answer".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_and_listeners_read_back_what_they_print() {
        for (transport, name) in Transport::ALL {
            assert_eq!(transport.to_string(), name);
            assert_eq!(name.parse::<Transport>().unwrap(), transport);
        }
        for text in ["tcp:10.244.0.5:80", "udp:[fd00::5]:53"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        assert!("sctp:10.244.0.5:80".parse::<Listen>().is_err());
        assert!("UDP-sticky".parse::<Transport>().is_err());
    }

    #[test]
    fn an_answer_counts_only_if_the_socket_shows_what_was_dialled() {
        let dialled = "10.96.0.1:80".parse().unwrap();
        let endpoint = "10.244.0.5:8080".parse().unwrap();
        let good = Attempt {
            answer: Some(endpoint),
            peer: Some(dialled),
            ..Attempt::default()
        };
        assert_eq!(good.answer_as(dialled), Ok(endpoint));
        let leak = Attempt {
            peer: Some(endpoint),
            ..good.clone()
        };
        assert!(leak.answer_as(dialled).unwrap_err().contains("getpeername"));
        let leak = Attempt {
            from: Some(endpoint),
            ..good
        };
        assert!(leak.answer_as(dialled).unwrap_err().contains("recvfrom"));
        let failed = Attempt {
            error: Some("connect ECONNREFUSED".into()),
            ..Attempt::default()
        };
        assert_eq!(
            failed.answer_as(dialled).unwrap_err(),
            "connect ECONNREFUSED"
        );
        assert_eq!(failed.errno(), Some("ECONNREFUSED"));
    }
}
