//! Endpoints in the networks of hosts, this one's and another one's, and clients that use the same port.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use proxy_tests::{Server, pod::Listen};

use super::{super::asked::listed, Site, local::Own};

/// How often each frontend is dialled.
const REQUESTS: usize = 30;

#[test]
fn an_endpoint_in_the_network_of_this_host_sees_the_client_and_one_elsewhere_this_host() {
    let Some(site) = Site::build() else {
        return;
    };
    let own = site.other.node;
    let listen = own.map(|ip| {
        let [http, dns] = [8080, 5353].map(|port| SocketAddr::new(ip, port));
        [Listen::tcp(http), Listen::udp(dns)]
    });
    let _server = Server::start(site.shop.world.node(), listen.as_flattened()).unwrap();
    let mut objects = site.objects();
    for (own, other) in own.into_iter().zip(site.other.addresses) {
        let there = format!("- {{addresses: [\"{other}\"], nodeName: node-b");
        let here = format!(
            "- {{addresses: [\"{own}\"], nodeName: node-a, conditions: {{ready: true}}}}\n"
        );
        objects = objects.replace(&there, &format!("{here}{there}"));
    }
    let agent = site.serve_these(&[], &objects);
    // Ports of our own: two requests from one port would be one flow.
    let mut ports = 20_000..;
    for (transport, to) in site.all() {
        let client = site.client.addresses[usize::from(to.is_ipv6())];
        // One of two is missed once in 10^9 times.
        let asks = ports.by_ref().take(REQUESTS).map(|port| {
            let ends = [SocketAddr::new(client, port), to];
            Own::connect(transport, ends)
                .unwrap()
                .echo("hello")
                .unwrap()
        });
        let seen: BTreeSet<_> = site
            .client
            .host
            .netns()
            .run(|| asks.map(|seen| seen.ip()).collect())
            .unwrap();
        // By the endpoint elsewhere, and by the one here.
        assert_eq!(seen.len(), 2, "{to}: {seen:?}");
        assert!(seen.contains(&client), "{to}: {seen:?}");
        assert!(own.iter().any(|own| seen.contains(own)), "{to}: {seen:?}");
    }
    assert_eq!(
        listed(&site.shop, &agent, &[]).len(),
        REQUESTS * site.all().len()
    );
}

#[test]
fn clients_that_use_the_same_port_are_told_apart() {
    let Some(site) = Site::build() else {
        return;
    };
    let agent = site.serve(&[]);
    // Another client, who is on the same host.
    let others: [IpAddr; 2] = ["198.51.100.7", "2001:db8:c::7"].map(|ip| ip.parse().unwrap());
    for (other, client) in others.into_iter().zip(site.client.addresses) {
        let address = format!("addr add {other} dev lo\n");
        site.client.host.netns().ip(&address).unwrap();
        let route = format!("route add {other} via {client}\n");
        site.shop.world.node().netns().ip(&route).unwrap();
    }
    for (port, (transport, to)) in (20_000..).zip(site.all()) {
        let family = usize::from(to.is_ipv6());
        let connects = |ip: IpAddr| Own::connect(transport, [(ip, port).into(), to]);
        let both = [site.client.addresses, others].map(|ips| ips[family]);
        let connect = || both.map(|ip| connects(ip).unwrap());
        let mut clients = site.client.host.netns().run(connect).unwrap();
        let seen = clients
            .each_mut()
            .map(|client| client.echo("first").unwrap());
        assert_ne!(seen[0], seen[1], "{to}");
        for word in ["second", "third"] {
            for (client, seen) in clients.iter_mut().zip(seen).rev() {
                assert_eq!(client.echo(word).unwrap(), seen, "{to}");
            }
        }
        let listed = site.sources(&agent);
        for flow in both
            .map(|ip| SocketAddr::new(ip, port))
            .into_iter()
            .zip(seen)
        {
            assert!(listed.contains(&flow), "{listed:?}: {flow:?}");
        }
    }
}
