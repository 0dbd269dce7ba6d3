//! Probe lines: who dials what, and what must come of it.

use std::{collections::BTreeSet, fmt, net::SocketAddr};

use anyhow::{Context as _, Result, anyhow, bail};

use super::document;
use crate::pod::Transport;

/// Who can send a probe.
pub const SOURCES: [&str; 3] = ["node", "pod", "endpoints"];

/// One line of a `probes` section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// `node`, `pod`, or `endpoints` (the pod that carries every endpoint address).
    pub source: String,
    /// How.
    pub transport: Transport,
    /// The socket that stays open from probe to probe, if the line names one.
    pub socket: Option<String>,
    /// Whereto.
    pub to: SocketAddr,
    /// What must come of it.
    pub outcome: Outcome,
    /// Line number in the file, from 1.
    pub line: usize,
}

/// What must come of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Every answer comes from one of these, and each of them answers sooner or later.
    Endpoints(BTreeSet<SocketAddr>),
    /// All answers come from the same one of these.
    OneOf(BTreeSet<SocketAddr>),
    /// All answers come from the same one of these, on a new connection each: session affinity.
    Sticky(BTreeSet<SocketAddr>),
    /// The call fails at once, as if nobody listened there.
    Refused,
    /// The call fails at once, as if there were no way there.
    Unreachable,
    /// What was dialled is what is reached: the endpoint itself, or nothing.
    Untouched,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |endpoints: &BTreeSet<SocketAddr>| {
            endpoints
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        };
        match self {
            Self::Endpoints(endpoints) => f.write_str(&list(endpoints)),
            Self::OneOf(endpoints) => write!(f, "one of {}", list(endpoints)),
            Self::Sticky(endpoints) => write!(f, "sticky {}", list(endpoints)),
            Self::Refused => f.write_str("refused"),
            Self::Unreachable => f.write_str("unreachable"),
            Self::Untouched => f.write_str("untouched"),
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.source, self.transport)?;
        if let Some(socket) = &self.socket {
            write!(f, "@{socket}")?;
        }
        write!(f, " {} -> {}", self.to, self.outcome)
    }
}

/// Understands the lines of a `probes` section whose header is on line `header`.
pub(super) fn parse_lines(body: &str, header: usize) -> Result<Vec<Probe>> {
    document::parse_lines(body, header, "probe", parse)
}

fn parse(text: &str, line: usize) -> Result<Probe> {
    let (dialled, outcome) = text
        .split_once("->")
        .ok_or_else(|| anyhow!("write SOURCE TRANSPORT TO -> OUTCOME"))?;
    let (source, transport, socket, to) = parse_dialled(dialled)?;
    let outcome = parse_outcome(outcome.trim())?;
    if socket.is_some() && matches!(&outcome, Outcome::Endpoints(set) if set.len() > 1) {
        bail!("a socket that stays open keeps its endpoint: write `one of …`");
    }
    if socket.is_none() && matches!(outcome, Outcome::OneOf(_)) {
        bail!(
            "only a socket that stays open (TRANSPORT@NAME) keeps its endpoint, and a client with \
             session affinity, which is `sticky …`"
        );
    }
    if socket.is_some() && matches!(outcome, Outcome::Sticky(_)) {
        bail!("a socket that stays open keeps its endpoint without session affinity, too");
    }
    Ok(Probe {
        source,
        transport,
        socket,
        to,
        outcome,
        line,
    })
}

/// The source, the transport, the open socket and the destination that begin a line.
pub(super) fn parse_dialled(text: &str) -> Result<(String, Transport, Option<String>, SocketAddr)> {
    let [source, transport, to] = text.split_whitespace().collect::<Vec<_>>()[..] else {
        bail!("write SOURCE TRANSPORT TO -> OUTCOME");
    };
    if !SOURCES.contains(&source) {
        bail!("{source:?} is no source; there are: {}", SOURCES.join(", "));
    }
    let (transport, socket) = match transport.split_once('@') {
        Some((transport, socket)) => (transport, Some(socket.to_owned())),
        None => (transport, None),
    };
    let transport = transport.parse()?;
    let to: SocketAddr = to
        .parse()
        .with_context(|| format!("{to:?} is not IP:PORT"))?;
    Ok((source.to_owned(), transport, socket, to))
}

fn parse_outcome(text: &str) -> Result<Outcome> {
    let endpoints = |list: &str| -> Result<BTreeSet<SocketAddr>> {
        let set = list
            .split_whitespace()
            .map(|word| {
                word.parse()
                    .with_context(|| format!("{word:?} is not IP:PORT"))
            })
            .collect::<Result<BTreeSet<_>>>()?;
        if set.is_empty() {
            bail!("there is no outcome");
        }
        Ok(set)
    };
    Ok(match text {
        "refused" => Outcome::Refused,
        "unreachable" => Outcome::Unreachable,
        "untouched" => Outcome::Untouched,
        _ => match text.split_once(' ') {
            Some(("one", list)) if list.starts_with("of ") => {
                Outcome::OneOf(endpoints(&list[3..])?)
            }
            Some(("sticky", list)) => Outcome::Sticky(endpoints(list)?),
            _ => Outcome::Endpoints(endpoints(text)?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_back_as_printed() {
        let lines = [
            "node TCP 10.96.0.1:80 -> 10.244.0.5:8080 10.244.1.5:8080",
            "pod UDP-connected-mapped 10.96.0.1:53 -> refused",
            "node UDP@dns [fd00:10:96::1]:53 -> one of [fd00:10:244::5]:53",
            "endpoints HTTP 10.96.0.1:80 -> unreachable",
            "pod UDP 10.96.0.9:53 -> untouched",
            "pod UDP 10.96.0.1:53 -> sticky 10.244.0.5:53 10.244.1.5:53",
        ];
        let body = lines.map(|line| format!("  {line}\n")).concat();
        let probes = parse_lines(&format!("# comment\n\n{body}"), 10).unwrap();
        assert_eq!(
            probes.iter().map(ToString::to_string).collect::<Vec<_>>(),
            lines
        );
        assert_eq!(probes[0].line, 13);
        assert_eq!(probes[2].socket.as_deref(), Some("dns"));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let to = "10.96.0.1:80";
        for (line, part) in [
            ("node TCP 10.96.0.1 -> refused".to_owned(), "not IP:PORT"),
            (format!("mars TCP {to} -> refused"), "no source"),
            (format!("node SCTP {to} -> refused"), "no transport"),
            (format!("node TCP {to}"), "OUTCOME"),
            (format!("node TCP {to} -> "), "no outcome"),
            (format!("node TCP {to} -> dropped"), "not IP:PORT"),
            (
                format!("node UDP {to} -> one of 10.244.0.5:1"),
                "only a socket",
            ),
            (
                format!("node TCP@a {to} -> sticky 10.244.0.5:1"),
                "without session affinity",
            ),
            (
                format!("node UDP@a {to} -> 10.244.0.5:1 10.244.0.6:1"),
                "one of",
            ),
        ] {
            let error = format!("{:#}", parse_lines(&line, 4).unwrap_err());
            assert!(
                error.contains("line 5") && error.contains(part),
                "{line}: {error}"
            );
        }
    }
}
