//! An API server that is cut off from the node without a word to either.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    api_server::{ApiServer, Options},
    requires::{self, PRIVILEGED},
    shop::service,
    world::NODE_ADDRESSES,
};

use super::until_http;

/// Nobody is told of a cut: no connection ends, and what the server says is lost. The agent's own
/// limit is eleven seconds; that of the kernel for what is not acknowledged would be many minutes.
#[test]
fn a_partition_is_noticed_long_before_the_server_is_due_to_say_something() {
    if !requires::met("api_server", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let address = Ipv4Addr::new(10, 244, 250, 1);
    let host = shop.world.pod("api", &[address.into()]).unwrap();
    let server = ApiServer::start(Options {
        address: Some((address, 0).into()),
        netns: Some(host.netns()),
        ..Options::default()
    });
    let server = server.unwrap();
    server.apply_yaml(&service(1, &[1])).unwrap();
    let options = AgentOptions {
        source: vec!["--master".to_owned(), server.url()],
        ..AgentOptions::default()
    };
    let mut agent = Agent::start(&shop.world, options, &[]).unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    until_http(&mut agent, &mut prober, &[1]);

    // What the server's host sends to the node is lost, and nobody is told.
    let [node, _] = NODE_ADDRESSES;
    let cut = Instant::now();
    let script = format!("route add blackhole {node}/32\n");
    host.netns().ip(&script).unwrap();
    server.apply_yaml(&service(1, &[2])).unwrap();
    agent.wait_for("API server lost").unwrap();
    let noticed = cut.elapsed();
    assert!(noticed < Duration::from_secs(30), "after {noticed:?}");
    // What was known is in force.
    until_http(&mut agent, &mut prober, &[1]);

    let script = format!("route del blackhole {node}/32\n");
    host.netns().ip(&script).unwrap();
    agent.wait_for("API server connected").unwrap();
    until_http(&mut agent, &mut prober, &[2]);
}
