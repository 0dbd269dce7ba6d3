//! `conntrack` about flows whose endpoint sees this node.

use std::net::SocketAddr;

use serde_json::Value;

use super::{
    super::{
        asked::{ask, asked, listed},
        rig::prober,
    },
    Site,
};

#[test]
fn whom_an_endpoint_sees_is_listed_and_all_that_there_is_of_a_flow_ends_with_it() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[]);
    let shop = &site.shop;
    let mut client = prober(&site.client);
    let all = site.all();
    for (transport, to) in &all {
        let name = to.to_string();
        let endpoint = ask(&mut client, &name, *transport, *to);
        let attempts = client.send_on(&name, *transport, *to, 1).unwrap();
        let seen = attempts[0].client.unwrap();
        let flows = listed(shop, &agent, &[]);
        let dialled = |flow: &&Value| flow["frontend"] == *to.to_string();
        let flow = flows.iter().find(dialled).unwrap();
        assert_eq!(flow["source"], *seen.to_string(), "{flow}");
        assert_eq!(flow["endpoint"], *endpoint.to_string(), "{flow}");
        assert_eq!(flow["state"], "established", "{flow}");
        let said: SocketAddr = flow["client"].as_str().unwrap().parse().unwrap();
        assert!(site.client.addresses.contains(&said.ip()), "{flow}");
        let table = asked(shop, &agent, &["list"]);
        let is_it = |line: &&str| line.split_whitespace().any(|word| word == to.to_string());
        let line = table.lines().find(is_it).unwrap();
        let mut words = line.split_whitespace();
        assert!(words.any(|word| word == seen.to_string()), "{table}");
    }

    let counted = asked(shop, &agent, &["stats", "--output", "json"]);
    let counted: Value = serde_json::from_str(&counted).unwrap();
    assert_eq!(counted["flows"], all.len(), "{counted:#}");
    assert_eq!(counted["track"]["used"], 2 * all.len(), "{counted:#}");

    // It takes no agent.
    agent.kill().unwrap();
    let ended = asked(shop, &agent, &["flush", "--service", "shop/far"]);
    assert_eq!(ended, format!("ended {} connections\n", all.len()));
    assert_eq!(listed(shop, &agent, &[]), [] as [Value; 0]);
    let counted = asked(shop, &agent, &["stats", "--output", "json"]);
    let counted: Value = serde_json::from_str(&counted).unwrap();
    assert_eq!(counted["track"]["used"], 0, "{counted:#}");
    assert_eq!(counted["opening"]["used"], 0, "{counted:#}");
    for (transport, to) in &all {
        let name = to.to_string();
        let again = client.send_on(&name, *transport, *to, 1).unwrap();
        if transport.is_udp() {
            // Datagrams begin anew.
            site.is_answered(*to, &again[0]);
        } else {
            assert!(again[0].answer_as(*to).is_err(), "{again:?}");
        }
        let new = client.send(*transport, *to, 1).unwrap();
        site.is_answered(*to, &new[0]);
    }
}
