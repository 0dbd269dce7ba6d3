//! What the node's conntrack holds, as the kernel lists it.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
};

use proxy_model::Protocol;
use proxy_tests::World;

/// One connection: who began it, what the first packet was sent to, and what comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    pub protocol: Protocol,
    /// Source and destination of the first packet.
    pub original: [SocketAddr; 2],
    /// Source and destination of answers, as the endpoint sends them.
    pub reply: [SocketAddr; 2],
}

/// Connections that the node tracks: all of them, unless others end meanwhile. The kernel hands out the
/// list in parts, and counts its way to the next part from the beginning.
pub fn flows(world: &World) -> Vec<Flow> {
    // Of the thread: the file of the process is that of its first thread.
    let read = || fs::read_to_string("/proc/thread-self/net/nf_conntrack");
    let listed = world.node().netns().run(read).unwrap().unwrap();
    listed.lines().filter_map(flow).collect()
}

/// How often a connection is looked for that must be there: one listing misses some, see [`flows`].
const LISTINGS: usize = 100;

/// The connection whose endpoint sees `source`, and is `endpoint`.
pub fn seen_from(
    world: &World,
    protocol: Protocol,
    source: SocketAddr,
    endpoint: SocketAddr,
) -> Option<Flow> {
    let reply = [endpoint, source];
    let is_it = |flow: &Flow| flow.protocol == protocol && flow.reply == reply;
    (0..LISTINGS).find_map(|_| flows(world).into_iter().find(is_it))
}

/// `ipv4 2 tcp 6 117 SYN_SENT src=… dst=… sport=… dport=… [UNREPLIED] src=… dst=… sport=… dport=… …`
fn flow(line: &str) -> Option<Flow> {
    let protocol = match line.split_whitespace().nth(2)? {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        "sctp" => Protocol::Sctp,
        _ => return None,
    };
    let all = |key: &'static str| {
        let words = line.split_whitespace();
        words.filter_map(move |word| word.strip_prefix(key)?.strip_prefix('='))
    };
    let addresses = |direction| -> Option<[SocketAddr; 2]> {
        let one = |address, port| -> Option<SocketAddr> {
            let address: IpAddr = all(address).nth(direction)?.parse().ok()?;
            Some(SocketAddr::new(
                address,
                all(port).nth(direction)?.parse().ok()?,
            ))
        };
        Some([one("src", "sport")?, one("dst", "dport")?])
    };
    Some(Flow {
        protocol,
        original: addresses(0)?,
        reply: addresses(1)?,
    })
}
