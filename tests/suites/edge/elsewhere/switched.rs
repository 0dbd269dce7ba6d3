//! A node that goes from one backend to another, in every direction, while endpoints on other nodes have
//! connections: these go on, and their endpoints go on seeing the same.

use proxy_tests::{Agent, AgentOptions, agent::Rights};

use super::{
    super::rig::{FILE, traffic},
    Site, both_served,
    leaving::Kept,
};
use crate::switch::Stack::{self, Ebpf, Layers, Nftables};

/// Otherwise only the first address of the node has NodePorts in the mode nftables.
const EVERYWHERE: &str = "--nodeport-addresses=0.0.0.0/0,::/0";

fn arguments(stack: Stack) -> Vec<String> {
    let mut arguments = stack.arguments();
    arguments.push(EVERYWHERE.to_owned());
    arguments
}

/// Ends the agent, and starts it with this stack.
fn follow(stack: Stack, agent: &mut Agent<'_>, kill: bool) {
    if kill {
        agent.kill().unwrap();
    } else {
        agent.terminate().unwrap();
    }
    agent.options().arguments = arguments(stack);
    agent.launch().unwrap();
    if stack != Nftables {
        both_served(agent);
    }
}

/// Connections to where the traffic goes, too: alone, an open one keeps its client's port from another address.
fn keep(site: &Site) -> Kept {
    let mut all = site.all();
    all.retain(|(_, to)| site.client.node.contains(&to.ip()));
    Kept::to(site, all)
}

#[test]
fn connections_outlive_every_change_of_the_backend() {
    let Some(site) = Site::build() else {
        return;
    };
    let files = [(FILE, &*site.objects())];
    let options = AgentOptions {
        arguments: arguments(Layers),
        // To ask about programs takes rights that some modes do not.
        rights: Rights::Root,
        ..AgentOptions::default()
    };
    let mut agent = Agent::start(&site.shop.world, options, &files).unwrap();
    both_served(&mut agent);
    let mut traffic = traffic(&site.client);
    let mut all = vec![keep(&site)];
    let mut from = Layers;
    // Every pair, half of them by a kill.
    for (to, kill) in [
        (Nftables, false),
        (Ebpf, true),
        (Layers, false),
        (Ebpf, true),
        (Nftables, false),
        (Layers, true),
    ] {
        let what = format!("from {from:?} to {to:?}");
        follow(to, &mut agent, kill);
        traffic.goes_on(&what).unwrap();
        for kept in &mut all {
            kept.go_on(&site);
        }
        all.push(keep(&site));
        from = to;
    }
    traffic.stop().unwrap();
}
