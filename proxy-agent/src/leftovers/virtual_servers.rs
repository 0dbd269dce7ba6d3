//! The kernel's virtual servers (IPVS): read from procfs, deleted over generic netlink
//! (`linux/ip_vs.h`).

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use netlink_sys::protocols::NETLINK_GENERIC;

use super::error::RemoveError;
use proxy_netlink::{
    attributes::exactly,
    message::{Head, Messages, NLM_F_ACK, NLM_F_REQUEST},
    netfilter::exchange,
    socket::Socket,
};

/// Of the network namespace of the thread that reads it.
pub(super) const LIST: &str = "/proc/thread-self/net/ip_vs";

/// `GENL_ID_CTRL`, which knows the numbers of all others.
const CONTROL: u16 = 16;
const CONTROL_GET_FAMILY: u8 = 3;
const CONTROL_FAMILY_ID: u16 = 1;
const CONTROL_FAMILY_NAME: u16 = 2;
/// The name of IPVS, and the command that deletes a virtual server.
const IPVS: &str = "IPVS";
const DELETE_SERVICE: u8 = 3;
const SERVICE: u16 = 1;
const SERVICE_FAMILY: u16 = 1;
const SERVICE_PROTOCOL: u16 = 2;
const SERVICE_ADDRESS: u16 = 3;
const SERVICE_PORT: u16 = 4;

/// A virtual server that is found by address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VirtualServer {
    /// Number of the protocol.
    pub(super) protocol: u8,
    pub(super) address: SocketAddr,
    /// Connections that it still leads: the kernel drops their packets when it goes.
    pub(super) connections: u64,
}

/// All virtual servers that are found by address, from [`LIST`]. None if the kernel has no IPVS.
pub(super) fn all() -> io::Result<Vec<VirtualServer>> {
    match fs::read_to_string(LIST) {
        Ok(list) => Ok(read(&list)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Virtual servers, each with the sum of its real servers' connections. Those that are found by mark,
/// which kube-proxy never makes, are passed over with theirs.
fn read(list: &str) -> Vec<VirtualServer> {
    let mut found: Vec<VirtualServer> = Vec::new();
    let mut named = false;
    for line in list.lines() {
        if let Some(connections) = real_server(line) {
            if let Some(server) = found.last_mut().filter(|_| named) {
                server.connections += connections;
            }
            continue;
        }
        let server = virtual_server(line);
        named = server.is_some();
        found.extend(server);
    }
    found
}

/// `-> AC120002:192B Masq 1 0 0`: active connections, and those that are about to end, or that the
/// kernel sees no end of (UDP).
fn real_server(line: &str) -> Option<u64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["->", _, _, _, active, inactive] => {
            Some(active.parse::<u64>().ok()? + inactive.parse::<u64>().ok()?)
        }
        _ => None,
    }
}

/// `TCP  0A600001:01BB rr …`, or `[fd00:…]:0050`. Other lines are headings and marks.
fn virtual_server(line: &str) -> Option<VirtualServer> {
    let mut words = line.split_whitespace();
    let protocol = match words.next()? {
        "TCP" => 6,
        "UDP" => 17,
        "SCTP" => 132,
        _ => return None,
    };
    let (address, port) = words.next()?.rsplit_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let address: IpAddr = match address.strip_prefix('[') {
        Some(address) => address.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?.into(),
        None => Ipv4Addr::from(u32::from_str_radix(address, 16).ok()?).into(),
    };
    Some(VirtualServer {
        protocol,
        address: SocketAddr::new(address, port),
        connections: 0,
    })
}

/// Deletes these. One that is gone already is no error.
pub(super) fn delete(servers: &[&VirtualServer]) -> Result<(), RemoveError> {
    if servers.is_empty() {
        return Ok(());
    }
    let failed = |error| RemoveError::Kernel {
        what: "asking the kernel's IPVS over netlink",
        error,
    };
    let mut socket = Socket::open(NETLINK_GENERIC).map_err(failed)?;
    let family = number(&mut socket).map_err(failed)?;
    let mut refused = Vec::new();
    for server in servers {
        match exchange(&mut socket, deletion(family, server).as_bytes(), |_, _| {}) {
            // What IPVS says of a virtual server that it does not have.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            // Whatever else the kernel has to say is lost, or late: the others would take as long.
            Err(error) if error.raw_os_error().is_none() => {
                refused.push((server.address.to_string(), error));
                break;
            }
            Err(error) => refused.push((server.address.to_string(), error)),
            Ok(()) => {}
        }
    }
    RemoveError::of_some(refused)
}

/// A request to generic netlink begins as one to netfilter does, with the command for a family.
const fn head(kind: u16, command: u8) -> Head {
    Head {
        kind,
        flags: NLM_F_REQUEST | NLM_F_ACK,
        family: command,
        resource: 0,
    }
}

fn deletion(family: u16, server: &VirtualServer) -> Messages {
    let mut address = [0; 16];
    let number: u16 = match server.address.ip() {
        IpAddr::V4(v4) => {
            address[..4].copy_from_slice(&v4.octets());
            2
        }
        IpAddr::V6(v6) => {
            address = v6.octets();
            10
        }
    };
    Messages::one(head(family, DELETE_SERVICE), |attributes| {
        attributes.nested(SERVICE, |service| {
            service.bytes(SERVICE_FAMILY, &number.to_ne_bytes());
            service.bytes(SERVICE_PROTOCOL, &u16::from(server.protocol).to_ne_bytes());
            service.bytes(SERVICE_ADDRESS, &address);
            service.bytes(SERVICE_PORT, &server.address.port().to_be_bytes());
        });
    })
}

/// The number that IPVS has in generic netlink.
fn number(socket: &mut Socket) -> io::Result<u16> {
    let request = Messages::one(head(CONTROL, CONTROL_GET_FAMILY), |attributes| {
        attributes.text(CONTROL_FAMILY_NAME, IPVS);
    });
    let mut found = None;
    exchange(socket, request.as_bytes(), |kind, value| {
        if kind == CONTROL_FAMILY_ID {
            found = exactly(value).ok().map(u16::from_ne_bytes);
        }
    })?;
    found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_servers_are_read_as_the_kernel_lists_them() {
        let list = "IP Virtual Server version 1.2.1 (size=4096)\n\
                    Prot LocalAddress:Port Scheduler Flags\n  \
                    -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n\
                    TCP  0A600001:01BB rr \n  \
                    -> AC120002:192B      Masq    1      2          3         \n  \
                    -> AC120003:192B      Masq    1      0          1         \n\
                    UDP  [fd00:0010:0096:0000:0000:0000:0000:000a]:0035 rr \n\
                    SCTP 0A600002:1E61 rr persistent 10800 FFFFFFFF\n\
                    FWM  00000001 rr \n  \
                    -> AC120002:192B      Masq    1      7          0         \n";
        let found: Vec<_> = read(list)
            .into_iter()
            .map(|server| {
                (
                    server.protocol,
                    server.address.to_string(),
                    server.connections,
                )
            })
            .collect();
        let expected = [
            (6, "10.96.0.1:443", 6),
            (17, "[fd00:10:96::a]:53", 0),
            (132, "10.96.0.2:7777", 0),
        ];
        let expected = expected
            .map(|(protocol, address, connections)| (protocol, address.to_owned(), connections));
        assert_eq!(found, expected);
    }
}
