//! The lines of a `layered` section: what must come of a probe where socket hooks lie over a packet
//! backend. The hooks tell in the call that something leads nowhere; packets are rejected or dropped.

use std::fmt;

use anyhow::{Result, anyhow, bail, ensure};
use proxy_model::{
    NodeState,
    oracle::{Beneath, Outcome as Verdict, Packet, layered},
};

use super::{
    Outcome, Probe, document,
    packets::{Fate, parse_fate},
    probe::parse_dialled,
};

/// One line of a `layered` section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayeredLine {
    /// Who dials what, and the outcome without who brings it about.
    pub probe: Probe,
    /// What must come of it.
    pub end: End,
}

/// What comes of a probe, and who brings it about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// A hook refuses, as if nobody listened there.
    Refused,
    /// A hook refuses, as if there were no way there.
    Unreachable,
    /// In the words for packets. Endpoints that see the client are led to by either layer.
    Fate(Fate),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("refused"),
            Self::Unreachable => f.write_str("unreachable"),
            Self::Fate(fate) => fate.fmt(f),
        }
    }
}

impl fmt::Display for LayeredLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Probe {
            source,
            transport,
            to,
            ..
        } = &self.probe;
        write!(f, "{source} {transport} {to} -> {}", self.end)
    }
}

/// Understands the lines of a `layered` section whose header is on line `header`.
pub(super) fn parse_lines(body: &str, header: usize) -> Result<Vec<LayeredLine>> {
    document::parse_lines(body, header, "probe", parse)
}

fn parse(text: &str, line: usize) -> Result<LayeredLine> {
    let (dialled, end) = text
        .split_once("->")
        .ok_or_else(|| anyhow!("write SOURCE TRANSPORT TO -> OUTCOME"))?;
    let end = match end.trim() {
        "refused" => End::Refused,
        "unreachable" => End::Unreachable,
        other => End::Fate(parse_fate(other)?),
    };
    let (source, transport, socket, to) = parse_dialled(dialled)?;
    if socket.is_some() {
        bail!("what an open socket keeps is for the section `probes`");
    }
    let outcome = match &end {
        End::Refused | End::Fate(Fate::Rejected) => Outcome::Refused,
        End::Unreachable | End::Fate(Fate::Dropped) => Outcome::Unreachable,
        End::Fate(Fate::Untouched) => Outcome::Untouched,
        End::Fate(Fate::Endpoints(all)) => Outcome::Endpoints(all.keys().copied().collect()),
    };
    Ok(LayeredLine {
        probe: Probe {
            source,
            transport,
            socket,
            to,
            outcome,
            line,
        },
        end,
    })
}

/// The file must expect of a probe, which sends `packet`, what the oracle says.
pub fn expectation(state: &NodeState, line: &LayeredLine, packet: &Packet) -> Result<()> {
    let all = layered(state, packet);
    let verdict = all.verdict();
    let end = match (verdict.outcome, &all.beneath) {
        (Verdict::Reject, Beneath::Nothing) => End::Refused,
        (Verdict::Drop, Beneath::Nothing) => End::Unreachable,
        _ => End::Fate(Fate::from(&verdict)),
    };
    let number = line.probe.line;
    ensure!(
        end == line.end,
        "line {number}: {line}\nbut the oracle says: {end}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_back_as_printed() {
        let lines = [
            "pod TCP 10.96.0.1:80 -> 10.244.0.5:8080+masquerade 10.244.1.5:8080",
            "node UDP-connected [fd00:96::1]:53 -> refused",
            "endpoints TCP 10.96.0.1:80 -> unreachable",
            "pod UDP 10.96.0.1:80 -> rejected",
            "pod TCP 10.96.0.1:81 -> dropped",
            "pod TCP 10.96.0.1:82 -> untouched",
        ];
        let parsed = parse_lines(&lines.join("\n"), 10).unwrap();
        let printed: Vec<_> = parsed.iter().map(ToString::to_string).collect();
        assert_eq!(printed, lines);
        assert_eq!(parsed[1].probe.line, 12);
        assert_eq!(parsed[4].probe.outcome, Outcome::Unreachable);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (line, part) in [
            ("pod TCP 10.96.0.1:80", "OUTCOME"),
            ("pod TCP@open 10.96.0.1:80 -> dropped", "open socket"),
            ("stranger TCP 10.96.0.1:80 -> dropped", "no source"),
            ("pod TCP 10.96.0.1:80 -> one of 10.0.0.1:1", "not IP:PORT"),
        ] {
            let error = format!("{:#}", parse_lines(line, 4).unwrap_err());
            assert!(
                error.contains("line 5") && error.contains(part),
                "{line}: {error}"
            );
        }
    }
}
