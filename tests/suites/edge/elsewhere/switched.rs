//! A node that goes from one backend to another, in every direction, while endpoints on other nodes have
//! connections: these go on, and their endpoints go on seeing the same.

use std::net::SocketAddr;

use proxy_tests::{Agent, AgentOptions, Prober, agent::Rights};

use super::{
    super::rig::{FILE, prober, traffic},
    Site, both_served,
};

/// What serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stack {
    Layers,
    Nftables,
    Alone,
}

use Stack::{Alone, Layers, Nftables};

impl Stack {
    fn arguments(self) -> Vec<String> {
        let arguments: &[&str] = match self {
            Layers => &["--proxy-mode=auto", "--tc=auto"],
            // By default, only the first address of the node has NodePorts in this mode.
            Nftables => &[
                "--proxy-mode=nftables",
                "--nodeport-addresses=0.0.0.0/0,::/0",
            ],
            Alone => &["--proxy-mode=ebpf", "--backend-order=ebpf"],
        };
        arguments.iter().map(|one| (*one).to_owned()).collect()
    }

    fn options(self) -> AgentOptions {
        AgentOptions {
            arguments: self.arguments(),
            // To ask about programs takes rights that some modes do not.
            rights: Rights::Root,
            ..AgentOptions::default()
        }
    }

    /// Ends the agent, and starts it as this one.
    fn follow(self, agent: &mut Agent<'_>, kill: bool) {
        if kill {
            agent.kill().unwrap();
        } else {
            agent.terminate().unwrap();
        }
        agent.options().arguments = self.arguments();
        agent.launch().unwrap();
        if self != Nftables {
            both_served(agent);
        }
    }
}

/// One open connection of each kind, and whom its endpoint sees.
struct Kept {
    name: String,
    seen: Vec<SocketAddr>,
}

impl Kept {
    fn begin(name: String, prober: &mut Prober, site: &Site) -> Self {
        let mut kept = Self {
            name,
            seen: Vec::new(),
        };
        kept.seen = kept.ask(prober, site);
        kept
    }

    fn ask(&self, prober: &mut Prober, site: &Site) -> Vec<SocketAddr> {
        let mut seen = Vec::new();
        // Where the traffic goes, too: alone, an open connection keeps its client's port from another address.
        let all = site.all().into_iter();
        for (transport, to) in all.filter(|(_, to)| site.client.node.contains(&to.ip())) {
            let name = format!("{} {transport} {to}", self.name);
            for attempt in prober.send_on(&name, transport, to, 2).unwrap() {
                attempt
                    .answer_as(to)
                    .unwrap_or_else(|error| panic!("{name}: {error}"));
                let source = attempt.client.unwrap();
                assert!(site.other.node.contains(&source.ip()), "{name}: {source}");
                seen.push(source);
            }
        }
        seen
    }
}

#[test]
fn connections_outlive_every_change_of_the_backend() {
    let Some(site) = Site::build() else {
        return;
    };
    let files = [(FILE, &*site.objects())];
    let mut agent = Agent::start(&site.shop.world, Layers.options(), &files).unwrap();
    both_served(&mut agent);
    let mut prober = prober(&site.client);
    let mut traffic = traffic(&site.client);
    let mut all = vec![Kept::begin("first".to_owned(), &mut prober, &site)];
    let mut from = Layers;
    // Every pair, half of them by a kill.
    for (to, kill) in [
        (Nftables, false),
        (Alone, true),
        (Layers, false),
        (Alone, true),
        (Nftables, false),
        (Layers, true),
    ] {
        let what = format!("from {from:?} to {to:?}");
        to.follow(&mut agent, kill);
        traffic.goes_on(&what).unwrap();
        for kept in &all {
            assert_eq!(
                kept.ask(&mut prober, &site),
                kept.seen,
                "{what}: {}",
                kept.name
            );
        }
        all.push(Kept::begin(what, &mut prober, &site));
        from = to;
    }
    traffic.stop().unwrap();
}
