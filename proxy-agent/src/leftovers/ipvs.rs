//! What IPVS mode leaves besides chains: virtual servers, the device that holds their addresses,
//! and sets.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{RouteNetlinkMessage, link::LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::{errno::Errno, ifaddrs::getifaddrs, net::if_::if_nametoindex};

use super::{
    Found, Leftover, Mode, Removal,
    error::RemoveError,
    sets,
    virtual_servers::{self, VirtualServer},
};
use proxy_netlink::{netfilter::exchange, socket::Socket};

/// The device that kube-proxy gives the addresses of Services.
const DEVICE: &str = "kube-ipvs0";

/// Adds what IPVS mode left, in the order in which it is removed: sets go last, because rules name
/// them.
pub(super) fn find(found: &mut Found) {
    let names = sets::names().unwrap_or_else(|error| {
        found.problems.push(format!(
            "looking for kube-proxy's sets (ipset) over netlink: {error}; run as root, or with \
             CAP_NET_ADMIN"
        ));
        Vec::new()
    });
    let has_device = if_nametoindex(DEVICE).is_ok();
    let servers = virtual_servers::all().unwrap_or_else(|error| {
        let list = virtual_servers::LIST;
        let problem = format!("reading {list} to look for virtual servers: {error}");
        found.problems.push(problem);
        Vec::new()
    });
    let addresses = addresses();
    let servers = kube_proxys(&servers, &addresses, !names.is_empty());
    let left = |what: String, parts, removal| Leftover {
        mode: Mode::Ipvs,
        family: None,
        what,
        parts,
        rules: 0,
        removal,
    };
    if !servers.is_empty() {
        let removal = Removal::VirtualServers(servers.clone());
        let leftover = left("virtual servers".to_owned(), servers.len(), removal);
        found.leftovers.push(leftover);
    }
    if has_device {
        let held = addresses.iter().filter(|(device, _)| device == DEVICE);
        let leftover = left(
            format!("device `{DEVICE}`"),
            held.count(),
            Removal::Device(DEVICE),
        );
        found.leftovers.push(leftover);
    }
    if !names.is_empty() {
        let leftover = left("sets (ipset)".to_owned(), names.len(), Removal::Sets(names));
        found.leftovers.push(leftover);
    }
}

/// Devices with their addresses, of the network namespace of this thread.
fn addresses() -> Vec<(String, IpAddr)> {
    let all = getifaddrs().into_iter().flatten();
    all.filter_map(|one| {
        let storage = one.address?;
        let v4 = storage
            .as_sockaddr_in()
            .map(|address| IpAddr::V4(address.ip()));
        let v6 = storage
            .as_sockaddr_in6()
            .map(|address| IpAddr::V6(address.ip()));
        Some((one.interface_name, v4.or(v6)?))
    })
    .collect()
}

/// The virtual servers that are kube-proxy's: those at addresses of its device, and with its sets,
/// those at the host's other addresses, where it serves NodePorts. All others are somebody else's.
fn kube_proxys(
    servers: &[VirtualServer],
    addresses: &[(String, IpAddr)],
    has_sets: bool,
) -> Vec<VirtualServer> {
    let is_its = |address: &SocketAddr| {
        let mut holders = addresses.iter().filter(|(_, held)| *held == address.ip());
        holders.any(|(device, _)| device == DEVICE || has_sets)
    };
    let servers = servers.iter().copied();
    servers.filter(|server| is_its(&server.address)).collect()
}

/// Deletes a device, and with it its addresses. One that is gone already is no error.
pub(super) fn delete_device(name: &str) -> Result<(), RemoveError> {
    let failed = |what, error| RemoveError::Kernel { what, error };
    let index = match if_nametoindex(name) {
        Ok(index) => index,
        Err(Errno::ENODEV) => return Ok(()),
        Err(errno) => return Err(failed("looking for it", io::Error::other(errno))),
    };
    let mut link = LinkMessage::default();
    link.header.index = index;
    let payload = NetlinkPayload::from(RouteNetlinkMessage::DelLink(link));
    let mut request = NetlinkMessage::new(NetlinkHeader::default(), payload);
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    // The answer consists of its end.
    let done =
        Socket::open(NETLINK_ROUTE).and_then(|mut socket| exchange(&mut socket, &bytes, |_, _| {}));
    done.map_err(|error| failed("deleting it over netlink", error))
}
