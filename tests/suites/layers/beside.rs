//! The layers beside each other, and beside another agent: what one has no room for the other serves,
//! and nobody else takes anything from either.

use proxy_model::Protocol;
use proxy_tests::{
    Agent, Prober, Shop,
    journey::Datagram,
    pod::Transport,
    shop::{answers, frontend, frontend6, http, small_service},
};

use super::{
    lost::services,
    packets::{Ears, Packet, wait},
    rig::{
        ABOVE, BENEATH, answer, assert_whole, can_run, from_the_node, from_the_pod, is_translated,
        layer, options, prober, told,
    },
    tracked::flows,
};

const FILE: &str = "cluster.yaml";

#[test]
fn over_ipv6_too_processes_are_led_and_packets_translated() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let manifest = [2, 3].map(|number| proxy_tests::shop::service(number, &[1]));
    let files = [(FILE, &*manifest.concat())];
    let agent = Agent::start(&shop.world, options(&[]), &files).unwrap();
    let place = shop.world.unseen(&shop.client).unwrap();
    let mut pod = Prober::start(&shop.client).unwrap();
    assert!(!is_translated(&shop, &mut pod, frontend6(2, 80)));
    assert!(is_translated(&shop, &mut prober(&place), frontend6(3, 80)));
    assert_whole(&shop, &agent);
}

#[test]
fn what_does_not_fit_above_is_served_beneath() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let manifest: String = (1..=6)
        .map(|number| small_service(number, &[number]))
        .collect();
    let options = options(&["--map-size=FRONTENDS=3"]);
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &manifest)]).unwrap();
    let mut pod = Prober::start(&shop.client).unwrap();
    let translated = |pod: &mut Prober| {
        let all = (1..=6).filter(|number| is_translated(&shop, pod, frontend(*number, 80)));
        all.collect::<Vec<u8>>()
    };
    let beneath = translated(&mut pod);
    assert_eq!(beneath.len(), 3, "{beneath:?}");
    let now = told(&agent);
    assert_eq!(layer(&now, ABOVE)["notProgrammed"], 3);
    assert_eq!(layer(&now, BENEATH)["notProgrammed"], 0);
    let named = now["notProgrammed"].as_array().unwrap();
    assert!(named.iter().all(|one| one["layer"] == ABOVE), "{named:?}");
    // It follows there, too.
    let first = beneath[0];
    let moved = small_service(first, &[8]);
    let manifest: String = (1..=6)
        .map(|number| match number {
            _ if number == first => moved.clone(),
            _ => small_service(number, &[number]),
        })
        .collect();
    agent.apply_and_sync(FILE, &manifest).unwrap();
    assert_eq!(answer(&mut pod, frontend(first, 80)), http(8));
}

/// What is left of it above must not hide what is beneath.
#[test]
fn what_no_longer_fits_above_is_served_beneath() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let manifest =
        |endpoints: &[u8]| [small_service(1, endpoints), small_service(2, &[1, 2])].concat();
    let options = options(&["--map-size=SLOTS=2"]);
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &manifest(&[]))]).unwrap();
    let mut pod = Prober::start(&shop.client).unwrap();
    let to = frontend(1, 80);
    let refused = pod.send(Transport::Tcp, to, 1).unwrap().remove(0);
    assert_eq!(refused.errno(), Some("ECONNREFUSED"));
    for endpoints in [&[3][..], &[4, 5]] {
        agent.apply_and_sync(FILE, &manifest(endpoints)).unwrap();
        let expected = endpoints.iter().map(|one| http(*one)).collect();
        let answers = answers(&mut pod, Transport::Tcp, to).unwrap();
        assert_eq!(answers, expected);
    }
    assert_eq!(layer(&told(&agent), ABOVE)["notProgrammed"], 1);
    assert!(flows(&shop.world).iter().any(|flow| flow.original[1] == to));
}

#[test]
fn a_second_agent_takes_nothing_from_either_layer() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*services(1))];
    let mut second = Agent::prepare(&shop.world, options(&[]), &files).unwrap();
    let first = Agent::start(&shop.world, options(&[]), &files).unwrap();
    let (mut pod, mut node) = (from_the_pod(&shop), from_the_node(&shop));
    let who = format!("process {} of ", first.pid().unwrap());
    // Their pin directories, and with them their sockets, differ.
    second.spawn().unwrap();
    let (code, log) = second.wait_for_exit().unwrap();
    assert_eq!(code, Some(4), "{log:?}");
    let mut errors = log.iter().filter_map(|line| line.text("error"));
    assert!(errors.any(|error| error.contains(&who)), "{log:?}");
    pod.goes_on("beside another agent").unwrap();
    node.goes_on("beside another agent").unwrap();
    assert_whole(&shop, &first);
    assert_eq!(told(&first)["repaired"], 0);
    pod.stop().unwrap();
    node.stop().unwrap();
    // It has nothing to clean up, and the first one still serves: see the suite nftables.
    drop(first);
}

/// The only port from which sockets of the pod dial.
const PORT: u16 = 40_000;

/// A packet that the pod writes itself, from there.
fn from_port(shop: &Shop, protocol: Protocol, token: u32) -> Datagram {
    let port = if protocol == Protocol::Udp { 53 } else { 80 };
    let source = (shop.client.addresses()[0], PORT).into();
    Datagram::first(source, frontend(1, port), protocol, token)
}

/// To the kernel they are one connection at the endpoint, unless it gives one of them another port.
#[test]
fn two_connections_from_one_port_through_both_layers_do_not_meet() {
    if !can_run() {
        return;
    }
    for packet_first in [true, false] {
        let shop = Shop::routed().unwrap();
        let one = proxy_tests::shop::service(1, &[1]);
        let agent = Agent::start(&shop.world, options(&[]), &[(FILE, &*one)]).unwrap();
        shop.client.netns().sends_from([PORT, PORT]).unwrap();
        let ears = Ears::at(&shop.client);
        let mut pod = Prober::start(&shop.client).unwrap();
        let by_packet = |pod: &mut Prober| {
            let first = from_port(&shop, Protocol::Udp, 7);
            pod.send_packet(first.encode()).unwrap();
            let answers = |packet: &Packet| {
                matches!(packet, Packet::Of { source, destination, .. }
                    if (*source, *destination) == (first.destination, first.source))
            };
            while !ears.heard().iter().any(answers) {
                wait(&[&ears]);
            }
        };
        let by_socket = |pod: &mut Prober| {
            let to = frontend(1, 53);
            let attempts = pod.send_on("one", Transport::UdpConnected, to, 3).unwrap();
            for attempt in attempts {
                attempt.answer_as(to).unwrap();
            }
        };
        if packet_first {
            by_packet(&mut pod);
            by_socket(&mut pod);
        } else {
            by_socket(&mut pod);
            by_packet(&mut pod);
            by_socket(&mut pod);
        }
        // Both are tracked, from that very port.
        let client = shop.client.addresses()[0];
        let flows = flows(&shop.world);
        let of_port = flows
            .iter()
            .filter(|flow| flow.original[0] == (client, PORT).into());
        let seen: Vec<_> = of_port.map(|flow| flow.reply[1]).collect();
        assert_eq!(seen.len(), 2, "{flows:?}");
        assert_ne!(seen[0], seen[1], "{flows:?}");
        assert_whole(&shop, &agent);
    }
}
