//! Another mode: connections that the programs translate go on until they end, and new ones are the
//! layer beneath's.

use std::net::SocketAddr;

use proxy_tests::{agent::Rights, pod::Transport};

use super::rig::{HTTP, Site, prober};
use crate::layers::tracked::flows;

#[test]
fn connections_outlive_the_mode_and_new_ones_belong_to_the_layer_beneath() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[1]);
    let (shop, neighbour) = (&site.shop, &site.neighbour);
    let mut prober = prober(neighbour);
    let to = SocketAddr::new(neighbour.node[0], HTTP);
    let mut ask = |name: &str| {
        let attempts = prober.send_on(name, Transport::Tcp, to, 2).unwrap();
        for attempt in &attempts {
            attempt
                .answer_as(to)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    };
    ask("kept");
    agent.terminate().unwrap();
    agent.options().arguments = vec!["--proxy-mode=nftables".to_owned()];
    // To ask about programs takes rights that the mode itself does not.
    agent.options().rights = Rights::Root;
    agent.launch().unwrap();
    agent
        .wait_for("what another backend left is in use; removed when its last connection has ended")
        .unwrap();
    ask("kept");
    ask("new");
    let translated = |flow: &crate::layers::tracked::Flow| flow.original[1] == to;
    assert!(flows(&shop.world).iter().any(translated));
}
