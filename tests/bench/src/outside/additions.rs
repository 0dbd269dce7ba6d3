//! `additions`: how soon a NodePort answers on a device that has just come, and on an address that the node has just
//! got: from before the command that gives it until the first answer.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use proxy_harness::netns::NetNs;

use super::{
    super::{
        Session,
        figures::{Collected, Goal},
    },
    cluster::NODE_PORTS,
    place::Place,
    way::{self, Case, Kind, Way},
};

/// Additions of each kind; few with `--quick`.
const TIMES: u8 = 20;
const QUICK_TIMES: u8 = 2;
/// The ends of its wire. Nobody asks who has an address: what is lost of that while a wire comes up is
/// asked again after a second, whoever serves.
const OWN: &str = "02:63:76:00:00:01";
const THEIRS: &str = "02:63:76:00:00:02";
/// Of each addition.
const SOON: Goal = Goal::AtMost(100.0);
/// How long one question waits for its answer, which takes far less.
const PAUSE: Duration = Duration::from_millis(2);
/// After that there will be no answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Measures it with programs on devices, alone and above nftables.
pub(in super::super) fn measure(session: &Session) -> Result<Collected> {
    let mut collected = Collected::default();
    session.progress("additions");
    let times = if session.quick { QUICK_TIMES } else { TIMES };
    for (kind, world) in &way::worlds()? {
        if !matches!(kind, Kind::Alone | Kind::Layers) {
            continue;
        }
        let way = Way::start(*kind, world, Case::small(Place::Here))?;
        let node = world.node().netns();
        let case = format!("{kind}, {times} additions");
        for number in 1..=times {
            session.still_wanted()?;
            // Of no other device: the first one's addresses are below.
            let own = Ipv4Addr::new(192, 0, 2, 4 + number * 4 + 1);
            let theirs = Ipv4Addr::new(192, 0, 2, 4 + number * 4 + 2);
            let (host, device) = (NetNs::new()?, format!("ext{}", number + 1));
            let peer = host.path();
            node.ip(&format!(
                "link add {device} address {OWN} type veth peer name eth0 address {THEIRS} netns {peer}\n"
            ))?;
            host.ip(&format!(
                "link set lo up\naddr add {theirs}/30 dev eth0\nlink set eth0 up\n\
                 neigh add {own} lladdr {OWN} dev eth0\nroute add default via {own}\n"
            ))?;
            let began = Instant::now();
            node.ip(&format!(
                "addr add {own}/30 dev {device}\nlink set {device} up\n\
                 neigh add {theirs} lladdr {THEIRS} dev {device}\n"
            ))?;
            let took = host.run(|| answered(own, began))??;
            add(&mut collected, &case, "on a new device", took);

            let another = Ipv4Addr::new(198, 51, 100, number);
            let began = Instant::now();
            node.ip(&format!("addr add {another}/32 dev {device}\n"))?;
            let took = way.outside().run(|| answered(another, began))??;
            add(&mut collected, &case, "on a new address", took);
            // The next one is as new to the agent as the first.
            node.ip(&format!("link del {device}\n"))?;
        }
    }
    Ok(collected)
}

fn add(collected: &mut Collected, case: &str, metric: &str, took: Duration) {
    let metric = format!("a NodePort answers {metric}");
    let took = took.as_secs_f64() * 1_000.0;
    collected.add_with_goal(case, &metric, "ms", Some(SOON), took);
}

/// Asks from one port after the other until there is an answer: what was passed on stays so.
fn answered(address: Ipv4Addr, began: Instant) -> Result<Duration> {
    let to = SocketAddr::new(IpAddr::V4(address), NODE_PORTS[1]);
    while began.elapsed() < LIMIT {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.set_read_timeout(Some(PAUSE))?;
        // There may be no way yet.
        if socket.send_to(&[0; 16], to).is_ok() && socket.recv_from(&mut [0; 64]).is_ok() {
            return Ok(began.elapsed());
        }
    }
    bail!("{to} does not answer")
}
