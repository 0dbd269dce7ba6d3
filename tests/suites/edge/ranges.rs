//! Source ranges of load-balancer IPs: clients in them are served on the device, all others are refused
//! by the layer beneath, and a change of the ranges counts for whoever connects after it.

use std::{net::SocketAddr, time::Duration};

use proxy_tests::{
    Agent, AgentOptions, Prober, Shop, Traffic,
    pod::{Attempt, Load, Transport},
    requires::{self, PRIVILEGED},
    shop::{balanced, ranged_service},
    world::Neighbour,
};
use serde_json::Value;

use super::SUITE;
use super::asked::{asked, listed};
use super::journeys::{all_are_led, explained, tracked};
use super::rig::{FILE, alone, can_run, node, options, prober, served};

/// What is dialled at the load balancer's addresses.
const PORTS: [(Transport, u16); 2] = [(Transport::Tcp, 80), (Transport::Udp, 53)];

/// How long a request may take that nobody answers.
const UNANSWERED: Duration = Duration::from_millis(300);

/// How long one may take whose first packet is sent again.
const SENT_AGAIN: Duration = Duration::from_secs(20);

/// A node with two neighbours outside, on ext1 and ext2.
struct Site {
    shop: Shop,
    neighbours: [Neighbour; 2],
}

impl Site {
    /// `None` if this cannot run here.
    fn build() -> Option<Self> {
        can_run().then(Self::new)
    }

    fn new() -> Self {
        let shop = Shop::routed().unwrap();
        let neighbours = [1, 2].map(|number| shop.world.neighbour(number).unwrap());
        Self { shop, neighbours }
    }

    /// The objects, with the wires of these neighbours as the ranges.
    fn objects(&self, admitted: &[usize]) -> String {
        let wires = admitted.iter().map(|index| {
            let [v4, v6] = self.neighbours[*index].addresses;
            format!("{v4}/30, \"{v6}/64\"")
        });
        let ranges = wires.collect::<Vec<_>>().join(", ");
        let service = ranged_service(1, &[1, 2, 3], &ranges);
        [node(&self.neighbours[0]), service].concat()
    }

    /// The default agent, with those.
    fn serve(&self, admitted: &[usize]) -> Agent<'_> {
        self.serve_by(options(&[]), admitted)
    }

    fn serve_by(&self, mut options: AgentOptions, admitted: &[usize]) -> Agent<'_> {
        options.arguments.push("--devices=ext1,ext2".to_owned());
        let objects = self.objects(admitted);
        let files = [(FILE, &*objects)];
        let mut agent = Agent::start(&self.shop.world, options, &files).unwrap();
        for neighbour in &self.neighbours {
            served(&mut agent, &neighbour.device);
        }
        agent
    }

    /// The flows from a neighbour that the programs on devices translate.
    fn taken(&self, agent: &Agent<'_>, from: usize) -> Vec<Value> {
        let clients = self.neighbours[from].addresses.iter();
        clients
            .flat_map(|client| listed(&self.shop, agent, &["--client", &client.to_string()]))
            .collect()
    }

    /// First packets that came in by the neighbour's device, and were passed on because of the ranges.
    fn refused(&self, agent: &Agent<'_>, from: usize) -> u64 {
        let text = asked(&self.shop, agent, &["stats"]);
        let device = &self.neighbours[from].device;
        let counts = text.lines().filter_map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            (words.get(..2)? == [&**device, "source-ranges"])
                .then(|| words[2].parse::<u64>().unwrap())
        });
        counts.sum()
    }
}

/// Everything that a client may dial.
fn all() -> impl Iterator<Item = (Transport, SocketAddr)> {
    balanced(1)
        .into_iter()
        .flat_map(|ip| PORTS.map(|(transport, port)| (transport, SocketAddr::new(ip, port))))
}

/// Whether each of some new connections is answered; all are, or none.
fn connects(prober: &mut Prober) -> bool {
    let mut answered = all().map(|(transport, to)| {
        let attempts = prober.send_within(UNANSWERED, transport, to, 3).unwrap();
        let answers = attempts.iter().filter(|one| one.answer_as(to).is_ok());
        match answers.count() {
            0 => false,
            3 => true,
            _ => panic!("{to}: {attempts:?}"),
        }
    });
    let first = answered.next().unwrap();
    assert!(answered.all(|one| one == first));
    first
}

/// Sends on connections that stay, one to each address and port.
fn keeps(prober: &mut Prober) {
    for (transport, to) in all() {
        let attempts = prober.send_on(&to.to_string(), transport, to, 3).unwrap();
        let answer = attempts
            .iter()
            .try_for_each(|one: &Attempt| one.answer_as(to).map(drop));
        answer.unwrap_or_else(|error| panic!("{to}: {error}"));
    }
}

/// New connections all the time by one of these, and such that stay by all.
fn traffic(neighbour: &Neighbour, new: &[Transport]) -> Traffic {
    let loads = all().flat_map(|(transport, to)| {
        let kinds = [false, true].into_iter();
        let kinds = kinds.filter(move |keep| *keep || new.contains(&transport));
        kinds.map(move |keep| Load {
            name: format!("{to} {keep}"),
            transport,
            to,
            threads: 1,
            pause: Duration::from_micros(500),
            keep,
        })
    });
    Traffic::start("outside", &neighbour.host, loads.collect()).unwrap()
}

#[test]
fn clients_in_the_ranges_are_served_on_the_device_and_others_refused_beneath() {
    let Some(site) = Site::build() else {
        return;
    };
    let agent = site.serve(&[0]);
    let [mut within, mut without] = [0, 1].map(|index| prober(&site.neighbours[index]));
    keeps(&mut within);
    assert!(connects(&mut within));
    let taken = site.taken(&agent, 0);
    for (_, to) in all() {
        let dialled = |flow: &&Value| flow["frontend"] == *to.to_string();
        assert!(taken.iter().any(|flow| dialled(&flow)), "{to}: {taken:#?}");
    }
    assert!(!connects(&mut without));
    assert_eq!(site.taken(&agent, 1), [] as [Value; 0]);
    assert_eq!(site.refused(&agent, 0), 0);
    assert!(site.refused(&agent, 1) >= 12, "each first packet counts");
    for client in site.neighbours[0].addresses {
        let flows = tracked(&site.shop, client);
        assert!(all_are_led(&flows), "{flows:?}");
    }
    for (index, why) in [
        (0, "ebpf decides: its programs are on ext1."),
        (
            1,
            "nftables decides: ebpf passes the packet on: its source is in none of the \
             loadBalancerSourceRanges.",
        ),
    ] {
        let neighbour = &site.neighbours[index];
        let from = neighbour.addresses[0];
        let to = SocketAddr::new(balanced(1)[0], 80);
        let told = explained(&agent, from, to, &neighbour.device);
        assert!(told.contains(why), "{told}");
    }
}

#[test]
fn a_change_of_the_ranges_counts_for_new_connections_and_open_ones_go_on() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[0]);
    let [mut first, mut second] = [0, 1].map(|index| prober(&site.neighbours[index]));
    keeps(&mut first);
    // A later socket with the port of an earlier one goes on with its flow of datagrams.
    let mut of_first = traffic(&site.neighbours[0], &[Transport::Tcp]);
    assert!(!connects(&mut second));

    agent.apply_and_sync(FILE, &site.objects(&[0, 1])).unwrap();
    of_first.goes_on("another range came").unwrap();
    keeps(&mut second);
    assert!(connects(&mut second));
    assert!(
        site.taken(&agent, 1).len() >= 4,
        "newly admitted, and served on the device"
    );
    of_first.stop().unwrap();

    let mut of_second = traffic(&site.neighbours[1], &[Transport::Tcp, Transport::Udp]);
    let before = site.refused(&agent, 0);
    agent.apply_and_sync(FILE, &site.objects(&[1])).unwrap();
    keeps(&mut first);
    assert!(!connects(&mut first));
    assert!(site.refused(&agent, 0) >= before + 12);
    of_second.goes_on("the range of others went").unwrap();
    of_second.stop().unwrap();
    keeps(&mut second);
    assert!(site.taken(&agent, 0).len() >= 4, "what was open stays");
}

#[test]
fn a_first_packet_that_was_refused_is_taken_when_it_is_sent_again_and_admitted() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[0]);
    let before = site.refused(&agent, 1);
    let to = SocketAddr::new(balanced(1)[0], 80);
    let mut prober = prober(&site.neighbours[1]);
    let attempts = std::thread::scope(|scope| {
        let sent = scope.spawn(|| prober.send_on_within(SENT_AGAIN, "kept", Transport::Tcp, to, 1));
        while site.refused(&agent, 1) == before {
            assert!(!sent.is_finished(), "answered or given up, and not refused");
            std::thread::sleep(Duration::from_millis(20));
        }
        agent.apply_and_sync(FILE, &site.objects(&[1])).unwrap();
        sent.join().unwrap().unwrap()
    });
    attempts[0].answer_as(to).unwrap();
    let taken = site.taken(&agent, 1);
    assert_eq!(taken.len(), 1, "{taken:#?}");
    assert_eq!(taken[0]["frontend"], *to.to_string());
}

#[test]
fn without_a_layer_beneath_clients_outside_the_ranges_reach_nobody() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let site = Site::new();
    let mut agent = site.serve_by(alone(), &[0]);
    let mut clients = [0, 1].map(|index| prober(&site.neighbours[index]));
    assert_eq!(clients.each_mut().map(connects), [true, false]);
    for (admitted, expected) in [(&[0, 1][..], [true, true]), (&[1], [false, true])] {
        agent.apply_and_sync(FILE, &site.objects(admitted)).unwrap();
        assert_eq!(clients.each_mut().map(connects), expected, "{admitted:?}");
    }
}
