//! One dump of all addresses: request, answers. What answers mean is in `answer`.

use std::{collections::BTreeSet, io, net::IpAddr, time::Duration};

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressHeader, AddressMessage},
};
use netlink_sys::{
    AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket, protocols::NETLINK_ROUTE,
};
use tokio::time::timeout;

use super::{AddressesError, answer, attempted};

/// The kernel's answers have 32 KiB at most.
const LONGEST_ANSWER: usize = 64 * 1024;

/// Far above what the kernel takes for all of them.
const PATIENCE: Duration = Duration::from_secs(5);

/// All addresses; `None` if they changed meanwhile.
///
/// A socket of its own, so that nothing else comes in between. One family at a time: addresses of
/// others, MCTP's for one, are nothing that a parser of IP addresses knows.
pub(super) async fn dump() -> Result<Option<Vec<IpAddr>>, AddressesError> {
    let opened = attempted("asking for all addresses");
    let mut socket = TokioSocket::new(NETLINK_ROUTE).map_err(&opened)?;
    socket.socket_mut().bind_auto().map_err(&opened)?;
    let mut addresses = BTreeSet::new();
    for (sequence, family) in (1..).zip([AddressFamily::Inet, AddressFamily::Inet6]) {
        let asked = one_family(&socket, family, sequence, &mut addresses);
        let lost = |_| opened(io::ErrorKind::TimedOut.into());
        if !timeout(PATIENCE, asked).await.map_err(lost)?? {
            return Ok(None);
        }
    }
    Ok(Some(addresses.into_iter().collect()))
}

/// Adds the addresses of one family. Whether they are all.
async fn one_family(
    socket: &TokioSocket,
    family: AddressFamily,
    sequence: u32,
    addresses: &mut BTreeSet<IpAddr>,
) -> Result<bool, AddressesError> {
    let asked = attempted("asking for all addresses");
    let kernel = SocketAddr::new(0, 0);
    let request = request(family, sequence);
    socket.send_to(&request, &kernel).await.map_err(&asked)?;
    let mut datagram = Vec::with_capacity(LONGEST_ANSWER);
    loop {
        datagram.clear();
        let from = socket.recv_from(&mut datagram).await.map_err(&asked)?;
        if from.port_number() != kernel.port_number() {
            continue;
        }
        if let Some(ended) = answer::read(&datagram, sequence, addresses)? {
            return ended.map_err(&asked);
        }
    }
}

fn request(family: AddressFamily, sequence: u32) -> Vec<u8> {
    let mut message = AddressMessage::default();
    message.header = AddressHeader {
        family,
        ..AddressHeader::default()
    };
    let payload = NetlinkPayload::from(RouteNetlinkMessage::GetAddress(message));
    let mut request = NetlinkMessage::new(NetlinkHeader::default(), payload);
    request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    request.header.sequence_number = sequence;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    bytes
}
