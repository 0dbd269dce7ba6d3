//! Connections that the layer beneath translates when programs come to their device: they stay with
//! their endpoints.

use std::net::SocketAddr;

use proxy_tests::{Agent, Prober, Shop, pod::Transport};

use crate::edge::rig::{DNS, FILE, HTTP, can_run, cluster, on_node, options, prober, served};

/// Enough that some would be led elsewhere.
const CONVERSATIONS: usize = 24;

#[test]
fn conversations_go_on_with_the_endpoint_that_they_had() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let neighbour = shop.world.neighbour(1).unwrap();
    let objects = cluster(&neighbour, &[1, 2, 3]);
    let mut agent =
        Agent::start(&shop.world, options(&["--tc=off"]), &[(FILE, &*objects)]).unwrap();
    let mut prober = prober(&neighbour);
    let endpoints = |prober: &mut Prober| -> Vec<SocketAddr> {
        let mut all = Vec::new();
        for ip in neighbour.node {
            for (transport, port) in [(Transport::Udp, DNS), (Transport::Tcp, HTTP)] {
                let to = SocketAddr::new(ip, port);
                for number in 0..CONVERSATIONS {
                    let name = format!("{to} {number}");
                    let attempts = prober.send_on(&name, transport, to, 2).unwrap();
                    all.extend(
                        attempts
                            .iter()
                            .map(|attempt| attempt.answer_as(to).unwrap()),
                    );
                }
            }
        }
        all
    };
    // Where everything takes long, conntrack would forget them before the agent is back.
    on_node(
        &shop,
        "sysctl",
        &["-w", "net.netfilter.nf_conntrack_udp_timeout=600"],
    );
    let before = endpoints(&mut prober);
    agent.terminate().unwrap();
    agent.options().arguments = options(&[]).arguments;
    agent.launch().unwrap();
    served(&mut agent, "ext1");
    assert_eq!(endpoints(&mut prober), before);
}
