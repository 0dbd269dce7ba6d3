//! Programs that somebody takes off a device are put back, and connections go on.

use std::net::SocketAddr;

use proxy_tests::{Agent, Shop, pod::Transport, world::Neighbour};

use super::{
    journeys::{all_are_led, dial, tracked},
    kept,
    rig::{HTTP, Site, on_node, prober},
};

/// Connections that are open while programs are taken away: it takes none of them to another of several
/// endpoints by chance.
const CONNECTIONS: usize = 12;

#[test]
fn connections_go_on_where_endpoints_see_the_client_by_themselves() {
    let Some(site) = Site::build() else {
        return;
    };
    let agent = site.serve(&[1, 2, 3]);
    go_on(&site.shop, &site.neighbour, agent);
}

#[test]
fn connections_go_on_whose_clients_would_be_masqueraded() {
    let Some(site) = kept::Site::build() else {
        return;
    };
    let agent = site.serve_from_here();
    go_on(&site.shop, &site.neighbour, agent);
}

/// Takes the programs off one after the other, by which connections to a NodePort go.
fn go_on(shop: &Shop, neighbour: &Neighbour, mut agent: Agent<'_>) {
    let directory = agent.pins().path().to_owned();
    let entries = agent.pins().entries();
    let of_devices = entries.iter().filter(|path| path.starts_with("devices"));
    let pinned: Vec<_> = of_devices
        .map(|path| directory.join(path).display().to_string())
        .collect();
    // Before Linux 6.6 programs hang on a qdisc, and nothing but a note about that is pinned.
    let has_qdisc = pinned.iter().any(|path| path.ends_with("-clsact"));
    let is_link = |path: &&String| path.ends_with("gress");
    let undone: Vec<Vec<&str>> = if has_qdisc {
        vec![vec!["tc", "qdisc", "del", "dev", "ext1", "clsact"]]
    } else {
        let links = pinned.iter().filter(is_link);
        links
            .map(|path| vec!["bpftool", "link", "detach", "pinned", path])
            .collect()
    };
    assert!(!undone.is_empty(), "{pinned:?}");
    let mut prober = prober(neighbour);
    let to = SocketAddr::new(neighbour.node[0], HTTP);
    let mut ask = || {
        for name in 0..CONNECTIONS {
            let name = format!("kept{name}");
            let attempts = prober.send_on(&name, Transport::Tcp, to, 1).unwrap();
            let answer = attempts[0].answer_as(to);
            answer.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    };
    ask();
    for command in undone {
        on_node(shop, command[0], &command[1..]);
        // The layer beneath takes no request of an open connection for a new one, to another endpoint.
        // Replies that nobody translates break it: none is on its way.
        if !command.last().is_some_and(|path| path.ends_with("egress")) {
            ask();
        }
        // Both hang on the qdisc.
        for _ in 0..if has_qdisc { 2 } else { 1 } {
            agent
                .wait_for_line("a program is put back", |line| {
                    line.message() == Some("repaired")
                        && line.text("difference") == Some("detached")
                })
                .unwrap();
        }
    }
    ask();
    dial(&mut prober, neighbour.node);
    for client in neighbour.addresses {
        let flows = tracked(shop, client);
        assert!(all_are_led(&flows), "{flows:?}");
    }
}
