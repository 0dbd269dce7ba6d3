//! Maps that are too small: the error says which Service and which limit, everything else goes
//! on, and what did not fit is served once there is room. Needs root and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
};

use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    agent::LogLine,
    pod::Transport,
    requires::{self, PRIVILEGED},
    shop::{frontend, http, small_service},
    world::NODE_ADDRESSES,
};

const FILE: &str = "cluster.yaml";

/// Which endpoints answer for the Service `number`, or the name of the error.
fn answers(prober: &mut Prober, number: u8) -> Result<BTreeSet<SocketAddr>, String> {
    let to = frontend(number, 80);
    let attempts = prober.send(Transport::Tcp, to, 60).unwrap();
    attempts
        .iter()
        .map(|attempt| match attempt.errno() {
            Some(errno) => Err(errno.to_owned()),
            None => attempt.answer_as(to),
        })
        .collect()
}

fn endpoints(numbers: &[u8]) -> BTreeSet<SocketAddr> {
    numbers.iter().map(|number| http(*number)).collect()
}

/// Services with one frontend, one set and two endpoints each fill every map at its own rate.
#[test]
fn a_full_map_stops_one_service_and_no_other() {
    if !requires::met("limits", PRIVILEGED) {
        return;
    }
    for map in ["SERVICES", "FRONTENDS", "SETS", "SLOTS", "MEMBERS"] {
        let per_service = matches!(map, "SERVICES" | "FRONTENDS" | "SETS");
        let entries = if per_service { 2 } else { 4 };
        let shop = Shop::new().unwrap();
        let arguments = vec![format!("--map-size={map}={entries}")];
        let options = AgentOptions {
            arguments,
            ..AgentOptions::default()
        };
        let two = [small_service(1, &[1, 2]), small_service(2, &[3, 4])].concat();
        let mut agent = Agent::start(&shop.world, options, &[(FILE, &two)]).unwrap();
        let mut prober = Prober::start(&shop.client).unwrap();

        // A third one does not fit. Nothing of it is there: no endpoint, but no refusal either.
        let three = two.clone() + &small_service(3, &[5, 6]);
        agent.apply(FILE, &three).unwrap();
        let line = agent.wait_for("service not programmed").unwrap();
        assert!(
            line.text("service").unwrap().starts_with("shop/s3:http"),
            "{map}: {}",
            line.raw
        );
        let reason = line.text("reason").unwrap();
        for part in [map, &entries.to_string(), "--map-size"] {
            assert!(
                reason.contains(part),
                "{map}: {part:?} is missing in {reason:?}"
            );
        }
        agent.wait_until_synced().unwrap();
        assert_eq!(answers(&mut prober, 1), Ok(endpoints(&[1, 2])), "{map}");
        assert_eq!(answers(&mut prober, 2), Ok(endpoints(&[3, 4])), "{map}");
        assert_eq!(
            answers(&mut prober, 3),
            Err("ENETUNREACH".to_owned()),
            "{map}"
        );

        // The others still change, as long as that needs no more room.
        let changed = [
            small_service(1, &[1]),
            small_service(2, &[3, 4]),
            small_service(3, &[5, 6]),
        ];
        agent.apply_and_sync(FILE, &changed.concat()).unwrap();
        assert_eq!(answers(&mut prober, 1), Ok(endpoints(&[1])), "{map}");
        assert_eq!(
            answers(&mut prober, 3),
            Err("ENETUNREACH".to_owned()),
            "{map}"
        );

        // Room again.
        let changed = [small_service(1, &[1]), small_service(3, &[5, 6])];
        agent.apply_and_sync(FILE, &changed.concat()).unwrap();
        assert_eq!(answers(&mut prober, 1), Ok(endpoints(&[1])), "{map}");
        assert_eq!(
            answers(&mut prober, 2),
            Err("ENETUNREACH".to_owned()),
            "{map}"
        );
        assert_eq!(answers(&mut prober, 3), Ok(endpoints(&[5, 6])), "{map}");
    }
}

#[test]
fn endpoints_that_do_not_fit_leave_the_service_as_it_was() {
    if !requires::met("limits", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let arguments = vec!["--map-size=SLOTS=3".to_owned()];
    let options = AgentOptions {
        arguments,
        ..AgentOptions::default()
    };
    let fits = small_service(1, &[1, 2]);
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &fits)]).unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    agent.apply(FILE, &small_service(1, &[1, 2, 3, 4])).unwrap();
    agent.wait_for("service not programmed").unwrap();
    agent.wait_until_synced().unwrap();
    assert_eq!(answers(&mut prober, 1), Ok(endpoints(&[1, 2])));
    // Told once, however many syncs it takes, and once more when it is over.
    let and_another = small_service(1, &[1, 2, 3, 4]) + &small_service(2, &[]);
    agent.apply_and_sync(FILE, &and_another).unwrap();
    agent.apply(FILE, &small_service(1, &[1, 2, 3])).unwrap();
    let line = agent.wait_for("service programmed").unwrap();
    assert_eq!(line.text("service"), Some("shop/s1:http/TCP/IPv4"));
    agent.wait_until_synced().unwrap();
    let failed = |line: &&LogLine| line.message() == Some("service not programmed");
    assert_eq!(agent.log().iter().filter(failed).count(), 1);
    assert_eq!(answers(&mut prober, 1), Ok(endpoints(&[1, 2, 3])));

    // A larger map is a matter of one restart; the Service that did not fit is served then.
    agent.apply(FILE, &small_service(1, &[1, 2, 3, 4])).unwrap();
    agent.wait_for("service not programmed").unwrap();
    agent.terminate().unwrap();
    agent.options().arguments = vec!["--map-size=SLOTS=4".to_owned()];
    agent.launch().unwrap();
    assert_eq!(answers(&mut prober, 1), Ok(endpoints(&[1, 2, 3, 4])));
}

#[test]
fn what_does_not_fit_at_start_is_told_and_the_rest_is_served() {
    if !requires::met("limits", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let arguments = vec!["--map-size=FRONTENDS=1".to_owned()];
    let options = AgentOptions {
        arguments,
        ..AgentOptions::default()
    };
    let two = [small_service(1, &[1]), small_service(2, &[2])].concat();
    let agent = Agent::start(&shop.world, options, &[(FILE, &two)]).unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    let served = [answers(&mut prober, 1), answers(&mut prober, 2)];
    let working = served.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(working, 1, "{served:?}");
    drop(agent);
}

/// Two addresses of each family, loopback among them, and room for one.
#[test]
fn node_addresses_that_do_not_fit_are_told_and_the_rest_is_served() {
    if !requires::met("limits", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let options = AgentOptions {
        arguments: vec!["--map-size=NODE_ADDRS=1".to_owned()],
        ..AgentOptions::default()
    };
    let node_port = "{name: http, port: 80, nodePort: 30080, ";
    let manifest = small_service(1, &[1]).replace("{name: http, port: 80, ", node_port);
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &manifest)]).unwrap();
    let mut prober = Prober::start(shop.world.node()).unwrap();
    let full = |line: &LogLine| line.raw.contains("--map-size NODE_ADDRS=N");
    assert_eq!(agent.log().iter().filter(|line| full(line)).count(), 1);
    assert_eq!(answers(&mut prober, 1), Ok(endpoints(&[1])));
    // The smallest address comes first.
    let to = SocketAddr::new(NODE_ADDRESSES[0], 30080);
    let attempts = prober.send(Transport::Tcp, to, 1).unwrap();
    assert_eq!(attempts[0].answer_as(to), Ok(http(1)));
    agent.terminate().unwrap();
}

/// The last step of a start fails, when everything is loaded and programmed already.
#[test]
fn links_that_may_not_be_touched_are_a_matter_of_the_host() {
    if !requires::met("limits", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let files = [(FILE, &*small_service(1, &[1]))];
    let mut agent = Agent::start(&shop.world, AgentOptions::default(), &files).unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    agent.terminate().unwrap();
    let links = agent.pins().path().join("links");
    fs::set_permissions(&links, Permissions::from_mode(0o000)).unwrap();
    // An agent may not pass over the permissions of files.
    agent.spawn().unwrap();
    let ended = agent.wait_for_exit();
    fs::set_permissions(&links, Permissions::from_mode(0o700)).unwrap();
    let (code, log) = ended.unwrap();
    assert_eq!(code, Some(3), "{log:#?}");
    let last = log.last().unwrap();
    assert!(last.raw.contains(links.to_str().unwrap()), "{}", last.raw);
    // What served before still does.
    assert_eq!(answers(&mut prober, 1), Ok(endpoints(&[1])));
}
