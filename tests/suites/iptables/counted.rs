//! What the kernel counts by the rules themselves, for metrics that kube-proxy has, too.

use std::{
    fs,
    net::TcpStream,
    os::{fd::AsRawFd as _, unix::fs::symlink},
    path::{Path, PathBuf},
};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use proxy_common::socket::TCP;
use proxy_tests::{agent::Rights, journey::local::Local, packets, scraped};
use tempfile::TempDir;

use super::{
    faults::{finding, put},
    localnet::open_service,
    *,
};
use crate::layers::rig::metrics;

const INVALID: &str = "kubeproxy_iptables_ct_state_invalid_dropped_packets_total";
const LOCALHOST: &str = "kubeproxy_iptables_localhost_nodeports_accepted_packets_total";
/// Offset of what comes behind the header of Ethernet.
const BEHIND_ETHERNET: usize = 14;

fn rooted() -> AgentOptions {
    AgentOptions {
        rights: Rights::Root,
        ..options()
    }
}

impl Node {
    fn counted(&self, name: &str) -> Option<f64> {
        scraped::sample(&metrics(&self.shop), name)
    }

    /// Has the node forward a packet whose sums are wrong: conntrack takes it for none of a connection.
    fn forward_invalid(&self) {
        let to = http(1);
        let from = (self.shop.client.addresses()[0], 40000);
        let packet = packets::packet(from, (to.ip(), to.port()), TCP);
        let send = || Local::open()?.send(&packet[BEHIND_ETHERNET..], to.ip());
        self.shop.client.netns().run(send).unwrap().unwrap();
    }

    fn dial(&self, to: &str) -> bool {
        let netns = self.shop.world.node().netns();
        netns.run(|| TcpStream::connect(to)).unwrap().is_ok()
    }

    /// Whether rules can name this counter.
    fn has_counter(&self, name: &str) -> bool {
        let program = format!("iptables-{}-restore", self.flavour);
        let input = format!(
            "*filter\n:COUNTED - [0:0]\n-A COUNTED -m nfacct --nfacct-name {name}\nCOMMIT\n\
             *filter\n-F COUNTED\n-X COUNTED\nCOMMIT\n"
        );
        let netns = self.shop.world.node().netns();
        let words = [&*program, "--noflush", "-w", "20"];
        netns.feed(&words, &input).is_ok()
    }
}

#[test]
fn what_is_invalid_and_what_the_host_dials_on_loopback_is_counted() {
    if !can_run() {
        return;
    }
    for flavour in FLAVOURS {
        let node = Node::new(flavour);
        let files = [(FILE, &*open_service())];
        let mut agent = Agent::start(&node.shop.world, rooted(), &files).unwrap();
        let counted = |names: [&str; 2]| names.map(|name| node.counted(name));
        assert_eq!(counted([INVALID, LOCALHOST]), [Some(0.0); 2]);
        (0..3).for_each(|_| assert!(node.dial("127.0.0.1:30080")));
        // Nobody is led anywhere there, or it is none of loopback.
        assert!(!node.dial("127.0.0.1:30081"));
        assert!(node.dial(&format!("{}:80", frontend(1, 80).ip())));
        (0..2).for_each(|_| node.forward_invalid());
        assert_eq!(counted([INVALID, LOCALHOST]), [Some(2.0), Some(3.0)]);
        // It is the kernel that counts.
        agent.kill().unwrap();
        node.forward_invalid();
        agent.launch().unwrap();
        assert_eq!(counted([INVALID, LOCALHOST]), [Some(3.0), Some(3.0)]);
        assert!(node.has_counter("localhost_nps_accepted_pkts"));
        agent.terminate().unwrap();
        assert_eq!(node.ask(&agent, "cleanup").code, Some(0));
        assert!(!node.has_counter("localhost_nps_accepted_pkts"));
    }
}

/// Has somebody make this counter with a quota, of which nothing is used up (`linux/netfilter/nfnetlink_acct.h`).
fn make_with_quota(name: &str) {
    const NEW: u16 = 7 << 8;
    const REQUEST_CREATE_ACK: u16 = 0x405;
    const NAME: u16 = 1;
    const FLAGS: u16 = 5;
    const QUOTA: u16 = 6;
    let attribute = |kind: u16, value: &[u8]| {
        let length = u16::try_from(4 + value.len()).unwrap();
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let mut body = vec![0; 4];
    body.extend(attribute(NAME, format!("{name}\0").as_bytes()));
    body.extend(attribute(FLAGS, &1_u32.to_be_bytes()));
    body.extend(attribute(QUOTA, &1_000_000_u64.to_be_bytes()));
    let mut message = u32::try_from(16 + body.len())
        .unwrap()
        .to_ne_bytes()
        .to_vec();
    message.extend(NEW.to_ne_bytes());
    message.extend(REQUEST_CREATE_ACK.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    let flags = SockFlag::SOCK_CLOEXEC;
    let protocol = SockProtocol::NetlinkNetFilter;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol).unwrap();
    send(socket.as_raw_fd(), &message, MsgFlags::empty()).unwrap();
    let mut answer = [0; 64];
    recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()).unwrap();
    assert_eq!(answer[16..20], [0; 4], "{answer:?}");
}

/// A rule that names such a counter would match nothing, and let through what it is to drop.
#[test]
fn a_counter_of_somebody_else_that_has_a_quota_is_not_used() {
    if !can_run() {
        return;
    }
    let node = Node::new("nft");
    let netns = node.shop.world.node().netns();
    let make = || make_with_quota("ct_state_invalid_dropped_pkts");
    netns.run(make).unwrap();
    let files = [(FILE, &*open_service())];
    let mut agent = Agent::start(&node.shop.world, rooted(), &files).unwrap();
    let log = agent.log();
    let mut told = log
        .iter()
        .filter(|line| line.message() == Some("packets not counted"));
    let reason = told.next().unwrap().text("reason").unwrap();
    assert!(reason.contains("quota"), "{reason}");
    assert!(!node.saved("iptables").contains("nfacct"));
    assert_eq!(node.counted(INVALID), None);
    agent.terminate().unwrap();
}

/// The first restore fails, and the next one does not.
#[test]
fn a_restore_that_fails_once_is_not_blamed_on_counters() {
    if !can_run() {
        return;
    }
    let node = Node::new("nft");
    let program = "iptables-nft-restore";
    let dir = TempDir::new().unwrap();
    let once = format!(
        "PATH=${{PATH#*:}}\n[ -e {0}/done ] || {{ touch {0}/done; echo no >&2; exit 1; }}\nexec {program} \"$@\"\n",
        dir.path().display()
    );
    put(&dir.path().join(program), &once);
    let finding = AgentOptions {
        rights: Rights::Root,
        ..finding(&dir)
    };
    let files = [(FILE, &*open_service())];
    let mut agent = Agent::start(&node.shop.world, finding, &files).unwrap();
    assert!(dir.path().join("done").exists());
    assert_eq!(node.saved("iptables").matches("--nfacct-name").count(), 2);
    assert_eq!(
        [INVALID, LOCALHOST].map(|name| node.counted(name)),
        [Some(0.0); 2]
    );
    agent.terminate().unwrap();
}

/// Where the extensions of the iptables programs are.
fn extensions() -> PathBuf {
    let triplets = fs::read_dir("/usr/lib").unwrap();
    let mut all = triplets.map(|entry| entry.unwrap().path().join("xtables"));
    all.find(|one| one.join("libxt_nfacct.so").exists())
        .unwrap_or_else(|| "/usr/lib/xtables".into())
}

/// All extensions but the one that counts.
fn without_counters(at: &Path) {
    for entry in fs::read_dir(extensions()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "libxt_nfacct.so" {
            symlink(entry.path(), at.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn without_a_counter_everything_is_served_and_no_figure_is_made_up() {
    if !can_run() {
        return;
    }
    let few = TempDir::new().unwrap();
    without_counters(few.path());
    let node = Node::new("nft");
    let files = [(FILE, &*open_service())];
    let mut agent = Agent::start(
        &node.shop.world,
        AgentOptions {
            launcher: vec![
                "env".to_owned(),
                format!("XTABLES_LIBDIR={}", few.path().display()),
            ],
            ..rooted()
        },
        &files,
    )
    .unwrap();
    let log = agent.log();
    let told = log
        .iter()
        .filter(|line| line.message() == Some("packets not counted"));
    assert_eq!(told.count(), 2, "{log:?}");
    answering(&mut node.prober());
    assert!(node.dial("127.0.0.1:30080"));
    assert!(!node.saved("iptables").contains("nfacct"));
    assert_eq!(
        [INVALID, LOCALHOST].map(|name| node.counted(name)),
        [None; 2]
    );
    agent.terminate().unwrap();
}
