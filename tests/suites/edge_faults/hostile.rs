//! What breaks other load balancers: a flood of SYNs, clients that use their ports again at once, one
//! port towards two frontends of one endpoint, strict firewalls, and filters of others on the device.

use std::{
    collections::HashSet,
    io::{BufRead as _, BufReader, ErrorKind, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::fd::AsRawFd as _,
    thread,
    time::{Duration, Instant},
};

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, setsockopt, socket, sockopt,
};
use proxy_model::Protocol;
use proxy_tests::{
    Agent, Prober, Shop,
    emulated::is_emulated,
    journey::Datagram,
    pod::{ATTEMPT_LIMIT, Transport},
    world::Neighbour,
};

use crate::layers::tracked::flows;

use crate::edge::{
    journeys::{all_are_led, dial, tracked},
    rig::{FILE, HTTP, Site, can_run, cluster, on_node, options, prober, served},
};

/// Connections that are open during the flood, and entries of OPENING; a flow takes two. An emulated
/// machine would need minutes for as many.
fn flood() -> (usize, u32) {
    if is_emulated() {
        (1_000, 1_024)
    } else {
        (10_000, 8_192)
    }
}

/// The agent looks for flows that are over two or three times meanwhile.
const SWEEPS: Duration = Duration::from_secs(12);
/// For a machine with much else to do.
const PATIENCE: Duration = Duration::from_mins(2);

fn answered(prober: &mut Prober, name: &str, to: SocketAddr) {
    for attempt in prober.send_on(name, Transport::Tcp, to, 1).unwrap() {
        attempt
            .answer_as(to)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// Half of the table's flows, so four times as many flows as there is room for.
#[test]
fn a_flood_of_syns_costs_nobody_an_established_connection() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let neighbour = shop.world.neighbour(1).unwrap();
    let objects = cluster(&neighbour, &[1, 2, 3]);
    let (established, opening) = flood();
    let sizes = [
        &*format!("--map-size=OPENING={opening}"),
        "--map-size=TRACK=12000",
    ];
    let mut agent = Agent::start(&shop.world, options(&sizes), &[(FILE, &*objects)]).unwrap();
    served(&mut agent, "ext1");
    let to = SocketAddr::new(neighbour.node[0], HTTP);
    let mut prober = prober(&neighbour);
    let names: Vec<_> = (0..established).map(|one| one.to_string()).collect();
    for one in &names {
        answered(&mut prober, one, to);
    }

    for number in 0..2 * opening {
        let [_, _, high, low] = number.to_be_bytes();
        let source = SocketAddr::new(Ipv4Addr::new(198, 18, high, low).into(), 1024);
        let first = Datagram::first(source, to, Protocol::Tcp, number);
        prober.send_packet(first.encode()).unwrap();
    }
    let mut of_flood = flows(&shop.world);
    of_flood.retain(|flow| flow.original[0].port() == 1024);
    assert!(all_are_led(&of_flood), "{of_flood:?}");
    for one in &names {
        answered(&mut prober, one, to);
    }
    answered(&mut prober, "one more", to);
}

/// Connects from this port.
pub fn connected(port: u16, to: SocketAddr) -> std::io::Result<TcpStream> {
    let SocketAddr::V4(v4) = to else {
        return Err(std::io::Error::other("an address of IPv4 is needed"));
    };
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    bind(socket.as_raw_fd(), &SockaddrIn::new(0, 0, 0, 0, port))?;
    connect(socket.as_raw_fd(), &SockaddrIn::from(v4))?;
    Ok(TcpStream::from(socket))
}

/// Connects from this port, says a line, hears it back, and closes the connection: those of odd ports
/// by a reset.
pub fn echo_from(port: u16, to: SocketAddr) -> std::io::Result<()> {
    let stream = connected(port, to)?;
    let reset = libc::linger {
        l_onoff: i32::from(port % 2),
        l_linger: 0,
    };
    setsockopt(&stream, sockopt::Linger, &reset)?;
    say(stream)
}

/// Says a line, and hears it back.
pub fn say(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(ATTEMPT_LIMIT))?;
    stream.write_all(b"again\n")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    if answer.is_empty() {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// How many connections are made from few ports; by default as many as show that they are used again.
const CONNECTS: &str = "CULVERT_CONNECTS";

/// Ports of one client, connections from them, and a pause before each.
fn reuse() -> (u16, u32, Duration) {
    if let Ok(text) = std::env::var(CONNECTS) {
        let many = text.parse();
        let many = many.unwrap_or_else(|_| panic!("{CONNECTS}={text:?} is no number"));
        return (500, many, Duration::ZERO);
    }
    // What keeps the processor of an emulated machine busy keeps all others waiting.
    if is_emulated() {
        (100, 150, Duration::from_millis(10))
    } else {
        (500, 750, Duration::ZERO)
    }
}

#[test]
fn ports_that_are_used_again_at_once_serve_every_time() {
    let Some(site) = Site::build() else {
        return;
    };
    let _agent = site.serve(&[1, 2, 3]);
    let (shop, neighbour) = (&site.shop, &site.neighbour);
    let to = SocketAddr::new(neighbour.node[0], HTTP);
    let (ports, enough, pause) = reuse();
    let patience = PATIENCE + Duration::from_millis(2) * enough;
    let connects = || {
        let began = Instant::now();
        let mut done = 0_u32;
        // Over several sweeps, however long that takes where much else is done.
        while began.elapsed() < SWEEPS || (done < enough && began.elapsed() < patience) {
            for port in 20_000..20_000 + ports {
                thread::sleep(pause);
                match echo_from(port, to) {
                    Ok(()) => done += 1,
                    // The client's own kernel does not give it out again yet.
                    Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {}
                    Err(error) => panic!("{port}, after {done}: {error}"),
                }
            }
        }
        println!(
            "{done} connections from {ports} ports in {:?}",
            began.elapsed()
        );
        done
    };
    let netns = neighbour.host.netns();
    netns.sysctls(&[("ipv4/tcp_tw_reuse", "1")]).unwrap();
    let done = netns.run(connects).unwrap();
    assert!(
        done >= enough,
        "{done} connections: few ports were used again"
    );
    let flows = tracked(shop, neighbour.addresses[0]);
    assert!(all_are_led(&flows), "{flows:?}");
}

/// Behind its frontends both would be one connection to the endpoint.
#[test]
fn one_port_of_a_client_reaches_one_endpoint_by_two_frontends() {
    let Some(site) = Site::build() else {
        return;
    };
    let other = site.shop.world.neighbour(2).unwrap();
    let _agent = site.serve(&[1]);
    let neighbour = &site.neighbour;
    let both = [neighbour.node[0], other.node[0]].map(|ip| SocketAddr::new(ip, HTTP));
    let connects = || -> std::io::Result<()> {
        let streams = [connected(21_000, both[0])?, connected(21_000, both[1])?];
        // While both are open.
        for stream in streams.iter().chain(&streams) {
            say(stream.try_clone()?)?;
        }
        Ok(())
    };
    neighbour.host.netns().run(connects).unwrap().unwrap();
}

#[test]
fn strict_firewalls_meet_one_consistent_connection() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let neighbour = shop.world.neighbour(1).unwrap();
    let objects = cluster(&neighbour, &[1, 2, 3]);
    for one in [
        "add table inet strict",
        "add chain inet strict forward { type filter hook forward priority 0; policy drop; }",
        "add rule inet strict forward ct state invalid drop",
        "add rule inet strict forward ct state established,related accept",
        "add rule inet strict forward iifname ext1 ct state new meta l4proto { tcp, udp } accept",
        "add rule inet strict forward icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept",
    ] {
        on_node(&shop, "nft", &[one]);
    }
    for name in ["all", "ext1"] {
        on_node(
            &shop,
            "sysctl",
            &["-w", &format!("net.ipv4.conf.{name}.rp_filter=1")],
        );
    }
    let mut agent = Agent::start(&shop.world, options(&[]), &[(FILE, &*objects)]).unwrap();
    served(&mut agent, "ext1");
    dial(&mut prober(&neighbour), neighbour.node);
    for client in neighbour.addresses {
        let flows = tracked(&shop, client);
        assert!(all_are_led(&flows), "{flows:?}");
    }
}

/// Each decides for good about every packet that it sees: `ret #-1`.
fn filters(shop: &Shop, neighbour: &Neighbour, preference: &str) {
    let device = &*neighbour.device;
    for direction in ["ingress", "egress"] {
        let filter = ["bpf", "bytecode", "1,6 0 0 4294967295,", "flowid", "1:1"];
        let place = [
            "filter", "add", "dev", device, direction, "pref", preference,
        ];
        let arguments = [&place[..], &filter].concat();
        on_node(shop, "tc", &arguments);
    }
}

#[test]
fn filters_of_others_before_and_after_ours_change_nothing_and_stay() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let neighbour = shop.world.neighbour(1).unwrap();
    let objects = cluster(&neighbour, &[1, 2, 3]);
    on_node(&shop, "tc", &["qdisc", "add", "dev", "ext1", "clsact"]);
    filters(&shop, &neighbour, "7");
    let mut agent = Agent::start(&shop.world, options(&[]), &[(FILE, &*objects)]).unwrap();
    served(&mut agent, "ext1");
    filters(&shop, &neighbour, "9");
    dial(&mut prober(&neighbour), neighbour.node);
    for client in neighbour.addresses {
        let flows = tracked(&shop, client);
        assert!(all_are_led(&flows), "{flows:?}");
    }
    agent.terminate().unwrap();
    agent.cleanup().unwrap();
    for direction in ["ingress", "egress"] {
        let left = on_node(&shop, "tc", &["filter", "show", "dev", "ext1", direction]);
        let kept: HashSet<_> = ["7", "9"]
            .into_iter()
            .filter(|pref| left.contains(&format!("pref {pref} bpf")))
            .collect();
        assert_eq!(kept.len(), 2, "{left}");
        assert!(!left.contains("culvert"), "{left}");
    }
}
