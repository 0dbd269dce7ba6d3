//! A packet that the kernel has summed up as a whole (`CHECKSUM_COMPLETE`), as many network cards do: a
//! program that changes it must keep that sum right, too, or the kernel sums up again and says in its log
//! that the card is broken. Out of a VXLAN whose outer packet has a checksum, every packet comes so.
//!
//! Only traces of the kernel show how the sum of a packet stands: netfilter, which looks at it on the way,
//! takes a right one for verified, and the packet leaves as such. With a wrong one it leaves as one of
//! which nothing is known.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    process, thread,
    time::{Duration, Instant},
};

use nix::mount::{MsFlags, mount, umount};
use proxy_model::Protocol;
use proxy_tests::{
    Agent, Shop,
    agent::LIMIT,
    journey::{Datagram, tun::Tun},
    requires::{self, Need},
};
use tempfile::TempDir;

use crate::edge::rig::{FILE, HTTP, can_run, cluster, options, served};

/// The ends of the tunnel below, and the client in it.
const OWN: Ipv4Addr = Ipv4Addr::new(198, 18, 8, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(198, 18, 8, 2);
const CLIENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x78, 0, 0, 0, 0, 9);
/// Where VXLANs listen.
const VXLAN: u16 = 4789;
/// The hardware address of the node's device, and of who sends to it.
const ADDRESS: &str = "02:63:76:00:00:01";
const FRAME: [u8; 14] = [2, 0x63, 0x76, 0, 0, 1, 2, 0x63, 0x76, 0, 0, 2, 0x86, 0xdd];

/// `CHECKSUM_UNNECESSARY`: it was right.
const VERIFIED: &str = "ip_summed=1";

/// RFC 1071.
fn sum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or_default();
        u32::from(u16::from_be_bytes([pair[0], low]))
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).unwrap()).to_be_bytes()
}

/// An IPv4 packet of VXLAN with a checksum, and `inner` in it.
fn in_vxlan(inner: &[u8]) -> Vec<u8> {
    let vxlan = [8, 0, 0, 0, 0, 0, 7, 0];
    let length = u16::try_from(8 + vxlan.len() + FRAME.len() + inner.len()).unwrap();
    let ports = [5_555_u16.to_be_bytes(), VXLAN.to_be_bytes()].concat();
    let addresses = [OWN, FAR].map(|one| one.octets());
    let addresses = [addresses[1], addresses[0]].concat();
    let mut udp = [
        &ports[..],
        &length.to_be_bytes(),
        &[0, 0],
        &vxlan,
        &FRAME,
        inner,
    ]
    .concat();
    let pseudo = [&addresses[..], &[0, 17], &length.to_be_bytes(), &udp].concat();
    udp[6..8].copy_from_slice(&sum(&pseudo));
    let whole = (20 + length).to_be_bytes();
    let mut header = [
        &[0x45, 0][..],
        &whole,
        &[0, 0, 0x40, 0, 64, 17, 0, 0],
        &addresses,
    ]
    .concat();
    let of_header = sum(&header);
    header[10..12].copy_from_slice(&of_header);
    [header, udp].concat()
}

/// Traces of this test alone.
struct Traces {
    root: TempDir,
    instance: PathBuf,
}

impl Traces {
    /// Of what comes in by `device`, and of what leaves with so many bytes: others send, too.
    fn begin(device: &str, length: usize) -> Self {
        let root = tempfile::tempdir().unwrap();
        let nothing = None::<&str>;
        let kind = Some("tracefs");
        mount(kind, root.path(), kind, MsFlags::empty(), nothing).unwrap();
        let name = format!("culvert-test-{}", process::id());
        let instance = root.path().join("instances").join(name);
        fs::create_dir(&instance).unwrap();
        for (event, filter) in [
            ("netif_receive_skb", format!("name == \"{device}\"")),
            ("net_dev_start_xmit", format!("len == {length}")),
        ] {
            let event = instance.join("events/net").join(event);
            fs::write(event.join("filter"), filter).unwrap();
            fs::write(event.join("enable"), "1").unwrap();
        }
        Self { root, instance }
    }

    /// How a packet that came in by this device stood when it left.
    fn of_packet(&self, device: &str) -> Option<String> {
        let traces = fs::read_to_string(self.instance.join("trace")).unwrap();
        let came = format!("netif_receive_skb: dev={device} ");
        let mut lines = traces.lines().skip_while(|line| !line.contains(&came));
        let word = |line: &str, begin: &str| {
            let mut words = line.split_whitespace().map(ToOwned::to_owned);
            words.find(|word| word.starts_with(begin))
        };
        let packet = word(lines.next()?, "skbaddr=")?;
        let left = lines.find(|line| line.contains("start_xmit:") && line.contains(&packet))?;
        word(left, "ip_summed=")
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        fs::remove_dir(&self.instance).ok();
        umount(self.root.path()).ok();
    }
}

#[test]
fn the_sum_that_a_card_made_of_a_packet_over_ipv6_stays_right() {
    if !can_run() || !requires::met("edge", &[Need::Device("vxlan"), Need::Tracing]) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let neighbour = shop.world.neighbour(1).unwrap();
    let node = shop.world.node().netns();
    let below = node.run(|| Tun::new("below")).unwrap().unwrap();
    // Traces show all network namespaces.
    let above = format!("over{}", process::id());
    node.ip(&format!(
        "link set below up\naddr add {OWN}/32 dev below\nroute add {FAR} dev below\n\
         link add {above} address {ADDRESS} type vxlan id 7 dstport {VXLAN} local {OWN}\n\
         link set {above} up\nroute add {CLIENT} dev {above}\n"
    ))
    .unwrap();
    let objects = cluster(&neighbour, &[1]);
    let named = options(&["--tc=on", &format!("--devices={above}")]);
    let mut agent = Agent::start(&shop.world, named, &[(FILE, &*objects)]).unwrap();
    served(&mut agent, &above);
    let client = (IpAddr::V6(CLIENT), 1_025).into();
    let to = (neighbour.node[1], HTTP).into();
    let first = Datagram::first(client, to, Protocol::Tcp, 7);
    let first = first.encode();
    // It leaves on a bridge.
    let traces = Traces::begin(&above, FRAME.len() + first.len());
    below.inject(&in_vxlan(&first)).unwrap();
    let deadline = Instant::now() + LIMIT;
    let stood = loop {
        if let Some(stood) = traces.of_packet(&above) {
            break stood;
        }
        assert!(
            Instant::now() < deadline,
            "no packet left that came by {above}"
        );
        // A trace is no file that tells when there is more.
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(stood, VERIFIED);
}
