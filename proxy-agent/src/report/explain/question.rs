//! Questions as they are typed: `--from IP --to IP:PORT/PROTOCOL`.

use std::net::{IpAddr, SocketAddr};

use proxy_model::{IpFamily, Protocol, oracle::Packet};
use thiserror::Error;

/// A question that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QuestionError {
    /// The source is no address.
    #[error(
        "{0:?} is not an IP address: write the source as 10.244.0.9 or fd00:10:244::9, without a \
         port"
    )]
    Source(String),
    /// Nothing says which protocol.
    #[error("{0:?} names no protocol: write the destination as {FORM}")]
    NoProtocol(String),
    /// The protocol is none that a Service can have.
    #[error(
        "{protocol:?} in {destination:?} is not a protocol of Services: write TCP, UDP or SCTP"
    )]
    Protocol {
        /// What was typed.
        destination: String,
        /// Its protocol.
        protocol: String,
    },
    /// The destination is no address and port.
    #[error("{0:?} is not an IP address with a port: write the destination as {FORM}")]
    Destination(String),
    /// No packet has addresses of both families.
    #[error("no packet can go from {from} to {to}: one is IPv4, the other IPv6")]
    Families {
        /// The source.
        from: IpAddr,
        /// The destination.
        to: IpAddr,
    },
}

/// How a destination is written.
const FORM: &str = "IP:PORT/PROTOCOL, such as 10.96.0.1:80/TCP or [fd00:10:96::1]:53/UDP";

/// Reads a source address.
pub fn source(text: &str) -> Result<IpAddr, QuestionError> {
    text.parse()
        .map_err(|_| QuestionError::Source(text.to_owned()))
}

/// Reads `IP:PORT/PROTOCOL`; the protocol in either case.
pub fn destination(text: &str) -> Result<(SocketAddr, Protocol), QuestionError> {
    let (to, protocol) = text
        .split_once('/')
        .ok_or_else(|| QuestionError::NoProtocol(text.to_owned()))?;
    let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp]
        .into_iter()
        .find(|one| one.as_str().eq_ignore_ascii_case(protocol))
        .ok_or_else(|| QuestionError::Protocol {
            destination: text.to_owned(),
            protocol: protocol.to_owned(),
        })?;
    let to = to
        .parse()
        .map_err(|_| QuestionError::Destination(text.to_owned()))?;
    Ok((to, protocol))
}

/// The packet that `--from`, `--to` and `--in-interface` describe.
pub fn packet(from: &str, to: &str, interface: Option<&str>) -> Result<Packet, QuestionError> {
    let (destination, protocol) = destination(to)?;
    let packet = Packet {
        source: source(from)?,
        destination,
        protocol,
        interface: interface.map(Into::into),
    }
    .canonical();
    let (from, to) = (packet.source, packet.destination.ip());
    if IpFamily::of(from) == IpFamily::of(to) {
        Ok(packet)
    } else {
        Err(QuestionError::Families { from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_has_an_address_a_port_and_a_protocol() {
        for (text, expected) in [
            ("10.96.0.1:80/TCP", "10.96.0.1:80 TCP"),
            ("10.96.0.1:53/udp", "10.96.0.1:53 UDP"),
            ("[fd00::1]:9/Sctp", "[fd00::1]:9 SCTP"),
        ] {
            let (to, protocol) = destination(text).unwrap();
            assert_eq!(format!("{to} {protocol}"), expected);
        }
        for (text, part) in [
            ("10.96.0.1:80", "names no protocol"),
            ("10.96.0.1:80/", "\"\" in"),
            ("10.96.0.1:80/ICMP", "\"ICMP\" in"),
            ("10.96.0.1/TCP", "is not an IP address with a port"),
            ("fd00::1:80/TCP", "[fd00:10:96::1]:53/UDP"),
            ("web.shop:80/TCP", "is not an IP address with a port"),
            ("10.96.0.1:65536/TCP", "is not an IP address with a port"),
        ] {
            let error = destination(text).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn source_and_destination_are_of_one_family() {
        let ask = |from, to| packet(from, to, Some("eth0")).map_err(|error| error.to_string());
        let asked = ask("::ffff:10.0.0.9", "10.96.0.1:80/tcp").unwrap();
        assert_eq!(asked.source.to_string(), "10.0.0.9");
        assert_eq!(asked.interface.as_deref(), Some("eth0"));
        assert_eq!(
            ask("fd00::9", "10.96.0.1:80/tcp").unwrap_err(),
            "no packet can go from fd00::9 to 10.96.0.1: one is IPv4, the other IPv6"
        );
        let error = ask("10.0.0.9:1234", "10.96.0.1:80/tcp").unwrap_err();
        assert!(error.contains("without a port"), "{error}");
    }
}
