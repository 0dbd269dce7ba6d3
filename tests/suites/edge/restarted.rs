//! An agent that ends under traffic, and starts again: programs and flows stay, and nobody notices.

use super::rig::{Site, on_node, prober, served, traffic};

#[test]
fn clients_outside_notice_nothing_of_an_agent_that_is_killed_and_starts_again() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[1, 2, 3]);
    let neighbour = &site.neighbour;
    let mut traffic = traffic(neighbour);
    for requests in [0, 20, 60, 150] {
        agent.kill().unwrap();
        traffic.goes_on("killed").unwrap();
        agent.spawn().unwrap();
        traffic.prober.load_wait("tcp0", requests).unwrap();
    }
    agent.kill().unwrap();
    agent.launch().unwrap();
    served(&mut agent, "ext1");
    traffic.goes_on("restarted").unwrap();
    agent.terminate().unwrap();
    traffic.goes_on("ended").unwrap();
    agent.launch().unwrap();
    traffic.goes_on("and again").unwrap();
    traffic.stop().unwrap();
}

#[test]
fn cleanup_leaves_no_program_and_no_qdisc() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[1]);
    let (shop, neighbour) = (&site.shop, &site.neighbour);
    let mut prober = prober(neighbour);
    let to = (neighbour.node[0], super::rig::HTTP).into();
    prober
        .send(proxy_tests::pod::Transport::Tcp, to, 1)
        .unwrap();
    agent.terminate().unwrap();
    agent.cleanup().unwrap();
    let qdiscs = on_node(shop, "tc", &["qdisc", "show", "dev", "ext1"]);
    assert!(!qdiscs.contains("clsact"), "{qdiscs}");
    let refused = prober
        .send(proxy_tests::pod::Transport::Tcp, to, 1)
        .unwrap();
    assert!(refused[0].answer_as(to).is_err(), "{refused:?}");
}
