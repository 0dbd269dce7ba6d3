//! NodePorts on 127.0.0.1, and what the host is told for them.

use std::fs;

use proxy_tests::agent::Rights;

use super::*;

pub const SYSCTL: &str = "/proc/sys/net/ipv4/conf/all/route_localnet";
/// As an agent sets it; others write 1.
pub const OPENED: &str = "2";

impl Node {
    pub fn localnet(&self) -> String {
        let netns = self.shop.world.node().netns();
        let text = netns.run(|| fs::read_to_string(SYSCTL)).unwrap();
        text.unwrap().trim().to_owned()
    }

    pub fn set_localnet(&self, value: &str) {
        let netns = self.shop.world.node().netns();
        netns.run(|| fs::write(SYSCTL, value)).unwrap().unwrap();
    }
}

/// With a NodePort.
pub fn open_service() -> String {
    service(1, &[1, 2])
        .replacen(
            "port: 80, protocol: TCP",
            "port: 80, protocol: TCP, nodePort: 30080",
            1,
        )
        .replacen("spec:\n", "spec:\n  type: NodePort\n", 1)
}

#[test]
fn the_host_routes_what_it_sends_to_itself_as_long_as_node_ports_answer_there() {
    if !can_run() {
        return;
    }
    for flavour in FLAVOURS {
        let node = Node::new(flavour);
        let with = |localhost: bool| AgentOptions {
            rights: Rights::Root,
            arguments: vec![
                "--proxy-mode=iptables".to_owned(),
                format!("--iptables-localhost-nodeports={localhost}"),
            ],
            ..AgentOptions::default()
        };
        let files = [(FILE, &*open_service())];
        let to = "127.0.0.1:30080".parse().unwrap();
        let both = [1, 2].map(http).into();
        let mut prober = Prober::start(node.shop.world.node()).unwrap();
        let mut agent = Agent::start(&node.shop.world, with(true), &files).unwrap();
        assert_eq!(node.localnet(), OPENED);
        assert_eq!(answers(&mut prober, Transport::Tcp, to).unwrap(), both);
        agent.kill().unwrap();
        // Another one knows that it was an agent who set it.
        let mut other = Agent::start(&node.shop.world, with(false), &files).unwrap();
        assert_eq!(node.localnet(), "0");
        assert!(!node.saved("iptables").contains("KUBE-LOCALNET"));
        other.kill().unwrap();
        agent.launch().unwrap();
        assert_eq!(node.localnet(), OPENED);
        assert_eq!(answers(&mut prober, Transport::Tcp, to).unwrap(), both);
        agent.terminate().unwrap();
        assert_eq!(node.ask(&agent, "cleanup").code, Some(0));
        assert_eq!(node.localnet(), "0");
        // What somebody else has set stays.
        node.set_localnet("1");
        agent.launch().unwrap();
        agent.terminate().unwrap();
        assert_eq!(node.ask(&agent, "cleanup").code, Some(0));
        assert_eq!(node.localnet(), "1");
        assert!(!node.saved("iptables").contains("KUBE-LOCALNET"));
    }
}

#[test]
fn without_the_right_to_have_it_routed_each_node_port_is_told() {
    if !can_run() {
        return;
    }
    let node = Node::new("nft");
    let files = [(FILE, &*open_service())];
    let agent = Agent::start(&node.shop.world, options(), &files).unwrap();
    let log = agent.log();
    let gaps: Vec<_> = log
        .iter()
        .filter(|line| line.message() == Some("capability gap"))
        .filter_map(|line| line.text("capability"))
        .collect();
    assert!(gaps.contains(&"loopback-node-ports"), "{log:?}");
    assert_eq!(node.localnet(), "0");
}

/// Rules of the flavour of before go once others are in force.
#[test]
fn after_the_flavour_has_changed_node_ports_go_on_answering_there_until_they_are_cleaned_up() {
    if !can_run() {
        return;
    }
    for (before, after) in [("nft", "legacy"), ("legacy", "nft")] {
        let node = Node::new(before);
        let files = [(FILE, &*open_service())];
        let with = AgentOptions {
            rights: Rights::Root,
            ..options()
        };
        let to = "127.0.0.1:30080".parse().unwrap();
        let both = [1, 2].map(http).into();
        let mut prober = Prober::start(node.shop.world.node()).unwrap();
        let mut agent = Agent::start(&node.shop.world, with, &files).unwrap();
        agent.kill().unwrap();
        node.move_kubelet(after);
        agent.launch().unwrap();
        assert_eq!(agent.serving().unwrap().text("flavour"), Some(after));
        assert_eq!(node.localnet(), OPENED, "{after}");
        assert_eq!(answers(&mut prober, Transport::Tcp, to).unwrap(), both);
        agent.terminate().unwrap();
        assert_eq!(node.ask(&agent, "cleanup").code, Some(0));
        assert_eq!(node.localnet(), "0", "{after}");
    }
}
