//! Session affinity is each layer's own: a client that comes by both has one endpoint by each.

use std::net::SocketAddr;

use proxy_tests::{
    Agent, Prober, Shop,
    shop::{frontend, service},
};

use super::rig::{answer, can_run, options, prober};

/// So many, each with eight endpoints: that both layers choose the same for all has odds of 6·10⁻⁸.
const SERVICES: u8 = 8;

/// So often does a client dial each: one that is not remembered gets the same endpoint with odds of
/// 10⁻¹⁷.
const ATTEMPTS: u32 = 20;

/// The endpoint that a client has of each Service, whenever it dials.
fn kept(prober: &mut Prober) -> Vec<SocketAddr> {
    let one = |number| {
        let to = frontend(number, 80);
        let first = answer(prober, to);
        for _ in 1..ATTEMPTS {
            assert_eq!(answer(prober, to), first, "{to}");
        }
        first
    };
    (1..=SERVICES).map(one).collect()
}

#[test]
fn a_client_that_comes_by_both_layers_keeps_one_endpoint_by_each() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let sticky = "spec:\n  sessionAffinity: ClientIP\n";
    let services = (1..=SERVICES).map(|number| service(number, &[1, 2, 3, 4, 5, 6, 7, 8]));
    let manifest: String = services
        .map(|service| service.replacen("spec:\n", sticky, 1))
        .collect();
    let files = [("cluster.yaml", &*manifest)];
    let mut agent = Agent::start(&shop.world, options(&[]), &files).unwrap();
    let place = shop.world.unseen(&shop.client).unwrap();
    // The same address: of a process, and, of that pod, somebody whose packets alone are seen.
    let mut clients = [Prober::start(&shop.client).unwrap(), prober(&place)];
    let mut all = || clients.each_mut().map(kept);
    let [by_sockets, by_packets] = all();
    assert_ne!(by_sockets, by_packets, "neither layer knows the other's");
    // Another process of that pod is the same client to either layer.
    let mut again = Prober::start(&shop.client).unwrap();
    assert_eq!(kept(&mut again), by_sockets);
    agent.kill().unwrap();
    agent.launch().unwrap();
    assert_eq!(all(), [by_sockets, by_packets], "after a restart");
}
