//! The lines of a `packets` section: what must become of a packet that passes through the node.
//! Knows no witness: the oracle is one, rules as text are another, a kernel the third.

use std::{collections::BTreeMap, fmt, net::SocketAddr};

use anyhow::{Context as _, Result, anyhow, bail};
use proxy_model::{
    Protocol,
    oracle::{Outcome, Packet, Verdict},
};

use super::document;

/// One line of a `packets` section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketLine {
    /// What is sent.
    pub packet: Packet,
    /// What must come of it.
    pub fate: Fate,
    /// Line number in the file, from 1.
    pub line: usize,
}

/// What comes of a packet, in the words of scenario files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It may land on any of these; true where the endpoint sees the node as the source.
    Endpoints(BTreeMap<SocketAddr, bool>),
    /// The sender is told that nobody listens.
    Rejected,
    /// The sender is told nothing.
    Dropped,
    /// It goes on as it is.
    Untouched,
}

impl From<&Verdict> for Fate {
    fn from(verdict: &Verdict) -> Self {
        match verdict.outcome {
            Outcome::Forward => Self::Endpoints(
                verdict
                    .targets
                    .iter()
                    .map(|target| (target.address, target.masquerade.is_some()))
                    .collect(),
            ),
            Outcome::Reject => Self::Rejected,
            Outcome::Drop => Self::Dropped,
            Outcome::Pass => Self::Untouched,
        }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoints(endpoints) => {
                let words: Vec<_> = endpoints
                    .iter()
                    .map(|(address, masquerade)| {
                        let mark = if *masquerade { MASQUERADE } else { "" };
                        format!("{address}{mark}")
                    })
                    .collect();
                f.write_str(&words.join(" "))
            }
            Self::Rejected => f.write_str("rejected"),
            Self::Dropped => f.write_str("dropped"),
            Self::Untouched => f.write_str("untouched"),
        }
    }
}

impl fmt::Display for PacketLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Packet {
            source,
            destination,
            protocol,
            interface,
        } = &self.packet;
        write!(f, "{source}")?;
        if let Some(interface) = interface {
            write!(f, "@{interface}")?;
        }
        write!(f, " {destination}/{protocol} -> {}", self.fate)
    }
}

/// Marks an endpoint that sees the node as the source.
const MASQUERADE: &str = "+masquerade";

/// Understands the lines of a `packets` section whose header is on line `header`.
pub(super) fn parse_lines(body: &str, header: usize) -> Result<Vec<PacketLine>> {
    document::parse_lines(body, header, "packet", parse)
}

fn parse(text: &str, line: usize) -> Result<PacketLine> {
    let (sent, fate) = text
        .split_once("->")
        .ok_or_else(|| anyhow!("write FROM[@INTERFACE] TO/PROTOCOL -> OUTCOME"))?;
    let [from, to] = sent.split_whitespace().collect::<Vec<_>>()[..] else {
        bail!("write FROM[@INTERFACE] TO/PROTOCOL -> OUTCOME");
    };
    let (from, interface) = match from.split_once('@') {
        Some((from, interface)) => (from, Some(interface.into())),
        None => (from, None),
    };
    let (to, protocol) = to.split_once('/').unwrap_or((to, ""));
    let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp]
        .into_iter()
        .find(|one| one.as_str() == protocol)
        .ok_or_else(|| anyhow!("{protocol:?} is no protocol: write TCP, UDP or SCTP"))?;
    Ok(PacketLine {
        packet: Packet {
            source: from
                .parse()
                .with_context(|| format!("{from:?} is no IP address"))?,
            destination: address(to)?,
            protocol,
            interface,
        },
        fate: parse_fate(fate.trim())?,
        line,
    })
}

pub(super) fn parse_fate(text: &str) -> Result<Fate> {
    Ok(match text {
        "" => bail!("there is no outcome"),
        "rejected" => Fate::Rejected,
        "dropped" => Fate::Dropped,
        "untouched" => Fate::Untouched,
        _ => Fate::Endpoints(
            text.split_whitespace()
                .map(|word| match word.strip_suffix(MASQUERADE) {
                    Some(word) => Ok((address(word)?, true)),
                    None => Ok((address(word)?, false)),
                })
                .collect::<Result<_>>()?,
        ),
    })
}

fn address(text: &str) -> Result<SocketAddr> {
    text.parse()
        .with_context(|| format!("{text:?} is not IP:PORT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_back_as_printed() {
        let lines = [
            "10.244.0.5 10.96.0.1:80/TCP -> 10.244.0.5:8080+masquerade 10.244.1.5:8080",
            "fd00::9@eth0 [fd00:96::1]:53/UDP -> rejected",
            "10.244.0.5 10.96.0.77:9/SCTP -> dropped",
            "10.244.0.5 192.0.2.1:80/TCP -> untouched",
        ];
        let parsed = parse_lines(&("# comment\n\n".to_owned() + &lines.join("\n")), 10).unwrap();
        let printed: Vec<_> = parsed.iter().map(ToString::to_string).collect();
        assert_eq!(printed, lines);
        assert_eq!(parsed[0].line, 13);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (line, part) in [
            ("10.244.0.5 10.96.0.1:80/TCP", "OUTCOME"),
            ("10.244.0.5 10.96.0.1:80/TCP ->", "no outcome"),
            ("10.244.0.5 10.96.0.1:80 -> dropped", "no protocol"),
            ("10.244.0.5 10.96.0.1/TCP -> dropped", "not IP:PORT"),
            ("pod 10.96.0.1:80/TCP -> dropped", "no IP address"),
            ("10.244.0.5 10.96.0.1:80/TCP -> refused", "not IP:PORT"),
        ] {
            let error = format!("{:#}", parse_lines(line, 4).unwrap_err());
            assert!(
                error.contains("line 5") && error.contains(part),
                "{line}: {error}"
            );
        }
    }
}
