//! Neighbours reach nothing of a host that routes packets from loopback addresses for NodePorts (CVE-2020-8558): real
//! packets, honest and spoofed, and all that may come between the setting and the rules.

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
};

use proxy_common::socket::UDP;
use proxy_tests::{
    agent::{self, AdminDirectory, Rights},
    journey::local::Local,
    packets,
    requires::NFTABLES,
    world::NODE_ADDRESSES,
};

use super::{
    localnet::{OPENED, SYSCTL, open_service},
    *,
};

/// Offset of what comes behind the header of Ethernet, and behind that of the checksum of UDP.
const BEHIND_ETHERNET: usize = 14;
const CHECKSUM: usize = 26;
const SPOOFED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn with(localhost: bool, rights: Rights) -> AgentOptions {
    AgentOptions {
        rights,
        arguments: vec![
            "--proxy-mode=iptables".to_owned(),
            format!("--iptables-localhost-nodeports={localhost}"),
        ],
        ..AgentOptions::default()
    }
}

impl Node {
    /// Who reaches the node from a neighbour: with an address of loopback, or at one.
    fn reached(&self) -> Vec<(IpAddr, &'static str)> {
        let netns = self.shop.world.node().netns();
        let listen = |address: Ipv4Addr| {
            let socket = UdpSocket::bind((address, 0)).unwrap();
            socket.set_read_timeout(Some(LIMIT)).unwrap();
            socket
        };
        let (alone, all) = netns
            .run(|| (listen(Ipv4Addr::LOCALHOST), listen(Ipv4Addr::UNSPECIFIED)))
            .unwrap();
        let node = NODE_ADDRESSES[0];
        let honest = self.shop.client.addresses()[0];
        let send = |from: IpAddr, to: IpAddr, port: u16| {
            let packet = packets::packet((from, 40000), (to, port), UDP);
            let mut packet = packet[BEHIND_ETHERNET..].to_vec();
            // None.
            packet[CHECKSUM..].fill(0);
            let sent = || Local::open()?.send(&packet, node);
            self.shop.client.netns().run(sent).unwrap().unwrap();
        };
        let port = |socket: &UdpSocket| socket.local_addr().unwrap().port();
        for from in [honest, SPOOFED.into()] {
            send(from, Ipv4Addr::LOCALHOST.into(), port(&alone));
        }
        send(SPOOFED.into(), node, port(&all));
        // Whatever came before is there once this is.
        send(honest, node, port(&all));
        let mut reached = Vec::new();
        let source = |socket: &UdpSocket| {
            let (_, from): (usize, SocketAddr) = socket.recv_from(&mut [0; 64])?;
            std::io::Result::Ok(from.ip())
        };
        loop {
            match source(&all).unwrap() {
                from if from == honest => break,
                from => reached.push((from, "its address")),
            }
        }
        alone.set_nonblocking(true).unwrap();
        loop {
            match source(&alone) {
                Ok(from) => reached.push((from, "loopback")),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return reached,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Has somebody flush these tables, in this order, but for kubelet's chains, which are there once more.
    fn flush(&self, tables: &[&str]) {
        let all = tables
            .iter()
            .map(|table| format!("*{table}\n-F\n-X\nCOMMIT\n"));
        self.restore(&all.collect::<String>());
        self.restore(KUBELETS);
    }

    /// `cleanup` by an agent that may not change sysctls.
    fn clean_with_fewer_rights(&self, agent: &Agent<'_>) -> Finished {
        let directory = AdminDirectory::keep().unwrap();
        let arguments = ["--proxy-mode=iptables".to_owned()];
        let launcher = Rights::default().launcher(&arguments, &directory).unwrap();
        let mut command = Command::new(&launcher[0]);
        command.args(&launcher[1..]).arg(agent::path().unwrap());
        command
            .args(["cleanup", "--pin-dir"])
            .arg(agent.pins().path());
        let netns = self.shop.world.node().netns();
        process::enter(&mut command, Some(netns.as_fd()), None).unwrap();
        Process::run("proxy-agent", command, LIMIT).unwrap()
    }
}

/// What keeps neighbours out goes last.
const TABLES: &[&str] = &["nat", "filter", "mangle"];

#[test]
fn neighbours_reach_no_loopback_address_and_come_from_none() {
    if !can_run() {
        return;
    }
    for flavour in FLAVOURS {
        let node = Node::new(flavour);
        node.set_localnet("1");
        assert_eq!(node.reached().len(), 3, "{flavour}: without rules");
        node.set_localnet("0");
        assert_eq!(node.reached(), [], "{flavour}: by the kernel");
        let files = [(FILE, &*open_service())];
        let mut agent = Agent::start(&node.shop.world, with(true, Rights::Root), &files).unwrap();
        assert_eq!(node.reached(), [], "{flavour}");
        node.restore("*filter\n-I INPUT -j ACCEPT\nCOMMIT\n");
        assert_eq!(node.reached(), [], "{flavour}: with what others accept");
        node.flush(TABLES);
        agent
            .wait_for_line("the repair", |line| {
                line.text("object") == Some("mangle KUBE-LOCALNET")
            })
            .unwrap();
        assert_eq!(node.reached(), [], "{flavour}: after a repair");
        agent.terminate().unwrap();
    }
}

#[test]
fn whatever_becomes_of_the_rules_the_host_is_set_back() {
    if !can_run() {
        return;
    }
    for flavour in FLAVOURS {
        let node = Node::new(flavour);
        let files = [(FILE, &*open_service())];
        let mut agent = Agent::start(&node.shop.world, with(true, Rights::Root), &files).unwrap();
        let away = |agent: &mut Agent<'_>, what: &str, between: &dyn Fn(&mut Agent<'_>)| {
            assert_eq!(node.localnet(), OPENED, "{flavour}: {what}");
            agent.kill().unwrap();
            between(agent);
            let cleaned = node.ask(agent, "cleanup");
            assert_eq!(cleaned.code, Some(0), "{flavour}, {what}: {cleaned:?}");
            assert_eq!(node.localnet(), "0", "{flavour}: {what}");
            let left = node.saved("iptables");
            assert!(!left.contains("CULVERT") && !left.contains("KUBE-SERVICES"));
            agent.launch().unwrap();
        };
        away(&mut agent, "all flushed", &|_| node.flush(TABLES));
        away(&mut agent, "all flushed, and served once more", &|agent| {
            node.flush(TABLES);
            agent.launch().unwrap();
            agent.kill().unwrap();
        });
        away(&mut agent, "one flushed", &|_| node.flush(&["nat"]));
        // While it serves.
        node.set_localnet("0");
        agent
            .wait_for_line("the setting", |line| line.text("object") == Some(SYSCTL))
            .unwrap();
        assert_eq!(node.localnet(), OPENED, "{flavour}");
        away(&mut agent, "set again", &|_| ());
        agent.terminate().unwrap();
    }
}

#[test]
fn where_it_cannot_be_set_back_rules_stay_that_keep_neighbours_out() {
    if !can_run() {
        return;
    }
    for flavour in FLAVOURS {
        let node = Node::new(flavour);
        let files = [(FILE, &*open_service())];
        let mut first = Agent::start(&node.shop.world, with(true, Rights::Root), &files).unwrap();
        first.kill().unwrap();
        let fewer = with(false, Rights::default());
        let mut agent = Agent::start(&node.shop.world, fewer, &files).unwrap();
        let log = agent.log();
        let told = log
            .iter()
            .find(|line| line.message() == Some("sysctl not set"));
        assert_eq!(told.unwrap().text("value"), Some("0"), "{log:?}");
        assert_eq!(node.localnet(), OPENED, "{flavour}");
        assert_eq!(node.reached(), [], "{flavour}: while it serves");
        agent.terminate().unwrap();
        let cleaned = node.clean_with_fewer_rights(&agent);
        assert_eq!(cleaned.code, Some(1), "{flavour}: {cleaned:?}");
        assert!(cleaned.stderr.contains("route_localnet"), "{cleaned:?}");
        assert_eq!(node.localnet(), OPENED, "{flavour}");
        assert_eq!(node.reached(), [], "{flavour}: after half a cleanup");
        // By one who may.
        let cleaned = node.ask(&first, "cleanup");
        assert_eq!(cleaned.code, Some(0), "{flavour}: {cleaned:?}");
        assert_eq!(node.localnet(), "0", "{flavour}");
        let left = node.saved("iptables");
        assert!(
            !left.contains("LOCALNET") && !left.contains("CULVERT"),
            "{left}"
        );
    }
}

/// With a rule of others that only `nft` can show, nobody can tell whether what keeps neighbours out is there.
#[test]
fn what_cannot_be_looked_at_is_not_left_open_and_what_can_be_is_removed() {
    if !can_run() || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let node = Node::new("nft");
    let files = [(FILE, &*open_service())];
    let mut agent = Agent::start(&node.shop.world, with(true, Rights::Root), &files).unwrap();
    let nft = |script: &str| {
        let netns = node.shop.world.node().netns();
        netns.feed(&["nft", "-f", "-"], script).unwrap();
    };
    let theirs = "add rule ip mangle PREROUTING ct count over 5 counter\n";
    nft(&format!("{theirs}flush chain ip mangle KUBE-LOCALNET\n"));
    agent.wait_for("sysctl set back").unwrap();
    assert_eq!(node.localnet(), "0");
    assert_eq!(node.reached(), []);
    nft("flush chain ip mangle PREROUTING\n");
    agent.wait_for("in force again").unwrap();
    assert_eq!(node.localnet(), OPENED);
    assert_eq!(node.reached(), []);
    agent.kill().unwrap();
    nft(theirs);
    let cleaned = node.ask(&agent, "cleanup");
    assert_eq!(cleaned.code, Some(1), "{cleaned:?}");
    assert!(cleaned.stderr.contains("incompatible"), "{cleaned:?}");
    assert_eq!(node.localnet(), "0");
    assert!(!node.saved("iptables").contains("KUBE-SERVICES"));
    nft("flush chain ip mangle PREROUTING\n");
    assert_eq!(node.ask(&agent, "cleanup").code, Some(0));
}

/// Whoever writes what, and when: rules are those of what is set.
#[test]
fn the_setting_that_others_change_has_the_rules_that_it_needs() {
    if !can_run() {
        return;
    }
    for flavour in FLAVOURS {
        let node = Node::new(flavour);
        node.set_localnet("1");
        let files = [(FILE, &*open_service())];
        let mut agent = Agent::start(&node.shop.world, with(true, Rights::Root), &files).unwrap();
        let mut repaired = |what: &str| {
            let is_it = |line: &proxy_tests::agent::LogLine| {
                line.text("object") == Some("mangle KUBE-LOCALNET")
            };
            let told = agent.wait_for_line(what, is_it);
            told.unwrap_or_else(|error| panic!("{flavour}, {what}: {error:#}"));
        };
        node.set_localnet(OPENED);
        repaired("by the value of ours");
        assert_eq!(node.reached(), [], "{flavour}");
        node.set_localnet("1");
        repaired("by that of others");
        let jumps = node.saved("iptables");
        assert_eq!(jumps.matches("-j KUBE-LOCALNET").count(), 1, "{flavour}");
        assert_eq!(node.localnet(), "1", "{flavour}");
        agent.terminate().unwrap();
    }
}
