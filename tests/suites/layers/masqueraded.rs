//! With `masqueradeAll`, ClusterIPs are the layer beneath's, whoever dials: from both layers to nftables
//! alone and back, nothing changes for them.

use std::net::IpAddr;

use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    shop::{frontend, service, small_service},
    world::NODE_ADDRESSES,
};

use super::{
    rig::{answer, assert_whole, can_run, from, from_the_node, from_the_pod, options},
    tracked::flows,
};

const MASQUERADE: &str = "--masquerade-all";

/// Whom the endpoint sees of a new connection to a Service that nothing else dials, which is translated.
fn seen(shop: &Shop, prober: &mut Prober, number: u8) -> IpAddr {
    let to = frontend(number, 80);
    answer(prober, to);
    let flows = flows(&shop.world);
    let mut translated = flows.iter().filter(|flow| flow.original[1] == to);
    let (one, more) = (translated.next(), translated.next());
    assert_eq!(more, None);
    let [_, source] = one
        .unwrap_or_else(|| panic!("{to} is not translated"))
        .reply;
    source.ip()
}

#[test]
fn masqueraded_connections_outlive_a_change_to_nftables_alone_and_back() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let single = (2..=4).map(|number| small_service(number, &[1]));
    let manifest: String = [service(1, &[1, 2, 3])].into_iter().chain(single).collect();
    let files = [("cluster.yaml", &*manifest)];
    let mut agent = Agent::start(&shop.world, options(&[MASQUERADE]), &files).unwrap();
    let mut client = Prober::start(&shop.client).unwrap();
    // None is excused anything: no hook led them.
    let place = shop.world.unseen(&shop.client).unwrap();
    let (pod, node) = (from_the_pod(&shop), from_the_node(&shop));
    let mut traffic = [pod, node, from(&place)];
    let mut goes_on = |when: &str| {
        for one in &mut traffic {
            one.goes_on(when).unwrap();
        }
    };
    goes_on("through both layers");
    let [own, _] = NODE_ADDRESSES;
    assert_eq!(seen(&shop, &mut client, 2), own);

    agent.terminate().unwrap();
    let alone = ["--proxy-mode=nftables", MASQUERADE].map(str::to_owned);
    *agent.options() = AgentOptions {
        arguments: alone.into(),
        ..AgentOptions::default()
    };
    agent.launch().unwrap();
    agent
        .wait_for("what another backend left is removed")
        .unwrap();
    assert!(agent.pins().entries().is_empty());
    goes_on("through nftables alone");
    assert_eq!(seen(&shop, &mut client, 3), own);

    agent.kill().unwrap();
    *agent.options() = options(&[MASQUERADE]);
    agent.launch().unwrap();
    goes_on("through both layers again");
    assert_eq!(seen(&shop, &mut client, 4), own);
    assert_whole(&shop, &agent);
    for one in traffic {
        one.stop().unwrap();
    }
}
