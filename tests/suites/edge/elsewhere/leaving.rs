//! An agent that ends and starts again, with other maps or in another mode, while endpoints on other nodes
//! have connections: these go on, and their endpoints go on seeing the same.

use std::net::SocketAddr;

use proxy_model::Protocol;
use proxy_tests::{Agent, Prober, agent::Rights, pod::Transport};

use super::{
    super::rig::{prober, traffic},
    Site, both_served,
};
use crate::layers::tracked::seen_from;

/// One open connection of each kind.
pub struct Kept {
    prober: Prober,
    all: Vec<(Transport, SocketAddr)>,
    seen: Vec<SocketAddr>,
}

impl Kept {
    fn begin(site: &Site) -> Self {
        let kept = Self::to(site, site.all());
        assert!(kept.seen.iter().all(|seen| seen.port() >= 32768));
        kept
    }

    /// To these, whoever translates.
    pub fn to(site: &Site, all: Vec<(Transport, SocketAddr)>) -> Self {
        let mut kept = Self {
            prober: prober(&site.client),
            all,
            seen: Vec::new(),
        };
        kept.seen = kept.ask(site);
        kept
    }

    /// Whom the endpoints see.
    fn ask(&mut self, site: &Site) -> Vec<SocketAddr> {
        let mut seen = Vec::new();
        for (transport, to) in &self.all {
            let name = format!("{transport} {to}");
            for attempt in self.prober.send_on(&name, *transport, *to, 3).unwrap() {
                seen.push(site.seen(*to, &attempt));
            }
        }
        seen
    }

    /// All of them go on.
    #[track_caller]
    pub fn go_on(&mut self, site: &Site) {
        assert_eq!(self.ask(site), self.seen);
    }

    /// New ones are the layer beneath's: netfilter translates what they dialled.
    fn is_left_by_new_ones(&mut self, site: &Site) {
        for (transport, to) in &self.all {
            let attempts = self.prober.send(*transport, *to, 1).unwrap();
            let endpoint = attempts[0].answer_as(*to).unwrap();
            let protocol = if transport.is_udp() {
                Protocol::Udp
            } else {
                Protocol::Tcp
            };
            let source = attempts[0].client.unwrap();
            let flow = seen_from(&site.shop.world, protocol, source, endpoint).unwrap();
            assert_eq!(flow.original[1], *to, "{flow:?}");
        }
    }
}

/// Ends the agent, and starts it with these arguments.
fn restart(agent: &mut Agent<'_>, arguments: &[&str]) {
    agent.terminate().unwrap();
    let options = agent.options();
    options.arguments = arguments.iter().map(|one| (*one).to_owned()).collect();
    // To ask about programs takes rights that some modes do not.
    options.rights = Rights::Root;
    agent.launch().unwrap();
}

#[test]
fn nobody_notices_an_agent_that_is_killed_and_starts_again() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[]);
    let mut kept = Kept::begin(&site);
    let mut traffic = traffic(&site.client);
    for requests in [0, 50] {
        agent.kill().unwrap();
        traffic.goes_on("killed").unwrap();
        kept.go_on(&site);
        agent.spawn().unwrap();
        traffic.prober.load_wait("tcp0", requests).unwrap();
    }
    agent.kill().unwrap();
    agent.launch().unwrap();
    both_served(&mut agent);
    traffic.goes_on("restarted").unwrap();
    kept.go_on(&site);
    traffic.stop().unwrap();
}

#[test]
fn connections_go_on_in_maps_of_another_size() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[]);
    let mut kept = Kept::begin(&site);
    let before = site.sources(&agent);
    for size in ["--map-size=TRACK=150000", "--map-size=OPENING=4000"] {
        agent.kill().unwrap();
        agent.options().arguments.push(size.to_owned());
        agent.launch().unwrap();
        let moved = "connections from outside moved to maps of another size";
        agent.wait_for(moved).unwrap();
        kept.go_on(&site);
        assert_eq!(site.sources(&agent), before);
    }
}

#[test]
fn connections_go_on_without_programs_on_devices() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[]);
    let mut kept = Kept::begin(&site);
    restart(&mut agent, &["--proxy-mode=auto", "--tc=off"]);
    // It serves a moment before those of its predecessor take nothing new.
    agent
        .wait_for("programs on devices stay until their connections end")
        .unwrap();
    kept.go_on(&site);
    kept.is_left_by_new_ones(&site);
    kept.go_on(&site);
}

#[test]
fn connections_go_on_without_the_backend() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[]);
    let mut kept = Kept::begin(&site);
    // By default, only the first address of the node has NodePorts in this mode.
    let mode = [
        "--proxy-mode=nftables",
        "--nodeport-addresses=0.0.0.0/0,::/0",
    ];
    restart(&mut agent, &mode);
    agent
        .wait_for("what another backend left is in use; removed when its last connection has ended")
        .unwrap();
    kept.go_on(&site);
    kept.is_left_by_new_ones(&site);
    kept.go_on(&site);
}

#[test]
fn connections_go_on_where_clients_keep_their_address_no_more() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[]);
    let mut kept = Kept::begin(&site);
    restart(&mut agent, &["--proxy-mode=auto", "--tc=auto"]);
    both_served(&mut agent);
    kept.go_on(&site);
    Kept::begin(&site).go_on(&site);
    kept.go_on(&site);
}
