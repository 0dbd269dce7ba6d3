//! These chains beneath programs on sockets, as on a node that nftables cannot be used on.

use super::*;

/// Where this kernel has everything, an order has to say so.
fn layers() -> AgentOptions {
    AgentOptions {
        arguments: ["--proxy-mode=auto", "--backend-order=ebpf,iptables"]
            .map(str::to_owned)
            .into(),
        ..AgentOptions::default()
    }
}

#[test]
fn layers_serve_processes_of_pods_and_whoever_no_hook_sees() {
    if !can_run() {
        return;
    }
    for flavour in FLAVOURS {
        let node = Node::new(flavour);
        let files = [(FILE, &*service(1, &[1, 2]))];
        let mut agent = Agent::start(&node.shop.world, layers(), &files).unwrap();
        let log = agent.log();
        let mut chosen = log
            .iter()
            .filter(|line| line.message() == Some("backend chosen"));
        let chosen = chosen.next().unwrap();
        assert_eq!(
            chosen.text("backend"),
            Some("ebpf over iptables"),
            "{chosen:?}"
        );
        let machine = node.shop.world.unseen(&node.shop.client).unwrap();
        let mut unseen = Prober::start_with(|command| machine.spawn(command)).unwrap();
        let mut seen = node.prober();
        answering(&mut seen);
        answering(&mut unseen);
        agent.kill().unwrap();
        answering(&mut unseen);
        agent.launch().unwrap();
        agent.apply_and_sync(FILE, &service(1, &[2])).unwrap();
        let only = [http(2)].into();
        for prober in [&mut seen, &mut unseen] {
            let found = answers(prober, Transport::Tcp, frontend(1, 80)).unwrap();
            assert_eq!(found, only, "{flavour}");
        }
    }
}
