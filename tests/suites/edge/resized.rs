//! An agent that starts with maps of connections of another size, or other Service maps: connections
//! from outside go on.

use std::{collections::BTreeMap, net::SocketAddr, path::Path, time::Duration};

use proxy_tests::{
    Agent, Shop,
    bpf::Pinned,
    launcher::MemoryLimit,
    pod::Transport,
    requires::{self, Need},
    shop::http,
};
use serde_json::Value;

use super::{
    SUITE,
    asked::{ask, asked, listed},
    rig::{DNS, FILE, HTTP, Site, can_run, cluster, prober, served, traffic},
};

/// Said when all programs and maps are as they are to be.
const DONE: &str = "serving clients outside";

/// Sizes, with room for all connections that a test makes before they are over.
fn sizes(track: u32) -> Vec<String> {
    [("TRACK", track), ("OPENING", track / 2), ("CLIENTS", 3000)]
        .map(|(map, entries)| format!("--map-size={map}={entries}"))
        .to_vec()
}

/// Restarts the agent with these sizes in the place of those before.
fn resize(agent: &mut Agent<'_>, sizes: Vec<String>) {
    let arguments = &mut agent.options().arguments;
    arguments.retain(|one| !one.starts_with("--map-size"));
    arguments.extend(sizes);
}

/// Entries of TRACK for so many flows: two each, and room for those that just began.
fn of_track(flows: u32) -> u32 {
    2 * flows + flows / 4
}

/// Entries of a map of connections.
fn entries(agent: &Agent<'_>, map: &str) -> u32 {
    let pin = agent.pins().path().join("connections-v1").join(map);
    let [_, _, _, entries, _] = Pinned::open(&pin).unwrap().map_shape().unwrap();
    entries
}

/// The directories of maps of connections.
fn directories(pins: &Path) -> Vec<String> {
    let names = std::fs::read_dir(pins)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.starts_with("connections"))
        .collect()
}

/// Whom each client's port is led to.
fn endpoints(shop: &Shop, agent: &Agent<'_>) -> BTreeMap<(String, String), String> {
    let text = |flow: &Value, field: &str| flow[field].as_str().unwrap().to_owned();
    listed(shop, agent, &[])
        .iter()
        .map(|flow| {
            let client = (text(flow, "protocol"), text(flow, "client"));
            (client, text(flow, "endpoint"))
        })
        .collect()
}

#[test]
fn connections_go_on_in_maps_of_another_size() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[1, 2, 3]);
    let mut traffic = traffic(&site.neighbour);
    traffic.goes_on("before").unwrap();
    for (round, track) in [150_000, 140_000, 160_000].into_iter().enumerate() {
        agent.kill().unwrap();
        resize(&mut agent, sizes(track));
        agent.launch().unwrap();
        let moved = "connections from outside moved to maps of another size";
        let moved = agent.wait_for(moved).unwrap();
        assert!(moved.number("connections").unwrap() >= 4, "{moved:?}");
        agent.wait_for(DONE).unwrap();
        assert_eq!(entries(&agent, "TRACK"), of_track(track));
        assert_eq!(directories(agent.pins().path()), ["connections-v1"]);
        traffic.goes_on(&format!("round {round}")).unwrap();
    }
    traffic.stop().unwrap();
    // New ones are translated again, but from ports that the layer beneath got meanwhile.
    asked(&site.shop, &agent, &["flush", "--all"]);
    let to: SocketAddr = (site.neighbour.node[0], HTTP).into();
    let mut prober = prober(&site.neighbour);
    for number in 0..8 {
        ask(&mut prober, &format!("new {number}"), Transport::Tcp, to);
    }
    assert_ne!(listed(&site.shop, &agent, &[]), [] as [Value; 0]);
}

#[test]
fn an_agent_that_is_killed_while_connections_move_breaks_none() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[1, 2, 3]);
    let mut traffic = traffic(&site.neighbour);
    let waits = [0, 100, 400, 700, 900, 1000, 1100, 1200, 1300, 1500];
    for (round, wait) in waits.into_iter().enumerate() {
        agent.kill().unwrap();
        let track = 140_000 + 1000 * u32::try_from(round).unwrap();
        // Every second time it is to do again what it did not finish.
        resize(&mut agent, sizes(track / 2000 * 2000));
        agent.spawn().unwrap();
        // Whatever it is at then.
        std::thread::sleep(Duration::from_millis(wait));
    }
    agent.kill().unwrap();
    traffic.goes_on("killed").unwrap();
    resize(&mut agent, sizes(160_000));
    agent.launch().unwrap();
    agent.wait_for(DONE).unwrap();
    assert_eq!(entries(&agent, "TRACK"), of_track(160_000));
    assert_eq!(directories(agent.pins().path()), ["connections-v1"]);
    traffic.goes_on("moved").unwrap();
    traffic.stop().unwrap();
}

#[test]
fn a_table_that_would_be_too_small_keeps_its_size() {
    let Some(site) = Site::build() else {
        return;
    };
    let mut agent = site.serve(&[1]);
    let neighbour = &site.neighbour;
    let before = entries(&agent, "TRACK");
    let mut prober = prober(neighbour);
    let to = SocketAddr::new(neighbour.node[0], HTTP);
    for name in ["first", "second", "third"] {
        ask(&mut prober, name, Transport::Tcp, to);
    }
    agent.terminate().unwrap();
    resize(&mut agent, vec!["--map-size=TRACK=2".to_owned()]);
    agent.launch().unwrap();
    let kept = "map TRACK keeps its size, because more connections are open than it would have room \
                for; new ones have the room that is wanted";
    let kept = agent.wait_for(kept).unwrap();
    assert_eq!(kept.number("connections"), Some(3));
    served(&mut agent, "ext1");
    assert_eq!(entries(&agent, "TRACK"), before);
    for name in ["first", "second", "third", "left to the layer beneath"] {
        ask(&mut prober, name, Transport::Tcp, to);
    }
    assert_eq!(listed(&site.shop, &agent, &[]).len(), 3);
    // Without them, there is nothing to keep.
    agent.terminate().unwrap();
    agent.cleanup().unwrap();
    agent.launch().unwrap();
    served(&mut agent, "ext1");
    assert_eq!(entries(&agent, "TRACK"), 4);
}

#[test]
fn datagrams_and_clients_keep_their_endpoints_in_other_service_maps() {
    let Some(site) = Site::build() else {
        return;
    };
    let (shop, neighbour) = (&site.shop, &site.neighbour);
    let all = [1, 2, 3];
    let objects = cluster(neighbour, &all).replace(
        "  externalTrafficPolicy: Local\n",
        "  externalTrafficPolicy: Local\n  sessionAffinity: ClientIP\n",
    );
    let files = [(FILE, &*objects)];
    let mut agent = Agent::start(&shop.world, super::rig::options(&[]), &files).unwrap();
    served(&mut agent, "ext1");
    let mut prober = prober(neighbour);
    let to = |port| SocketAddr::new(neighbour.node[0], port);
    let kept = ask(&mut prober, "web", Transport::Tcp, to(HTTP));
    let datagrams = ask(&mut prober, "dns", Transport::Udp, to(DNS));
    let before = endpoints(shop, &agent);
    assert_eq!(before.len(), 2, "{before:?}");

    agent.terminate().unwrap();
    resize(&mut agent, vec!["--map-size=SLOTS=5000".to_owned()]);
    agent.launch().unwrap();
    assert_eq!(agent.serving().unwrap().flag("adopted"), Some(false));
    served(&mut agent, "ext1");
    assert_eq!(ask(&mut prober, "dns", Transport::Udp, to(DNS)), datagrams);
    assert_eq!(endpoints(shop, &agent), before);
    // Ten new ones: each would go elsewhere two times out of three.
    for number in 0..10 {
        let name = format!("again {number}");
        let endpoint = ask(&mut prober, &name, Transport::Tcp, to(HTTP));
        assert_eq!(endpoint.ip(), kept.ip(), "{name}");
    }
}

#[test]
fn programs_of_before_take_nothing_new_where_their_successors_do_not_fit() {
    if !can_run() || !requires::met(SUITE, &[Need::MemoryLimit]) {
        return;
    }
    let Some(site) = Site::build() else {
        return;
    };
    let (shop, neighbour) = (&site.shop, &site.neighbour);
    let mut agent = site.serve(&[1, 2, 3]);
    let to = SocketAddr::new(neighbour.node[0], HTTP);
    let mut prober = prober(neighbour);
    let kept = ask(&mut prober, "kept", Transport::Tcp, to);
    agent.terminate().unwrap();

    // Enough for the agent and its Service maps, which are other ones; not for this table.
    let limit = MemoryLimit::new(256).unwrap();
    agent.options().launcher = limit.launcher();
    let too_large = ["--map-size=TRACK=4000000", "--map-size=SLOTS=5000"];
    resize(&mut agent, too_large.map(str::to_owned).to_vec());
    agent.launch().unwrap();
    agent
        .wait_for("programs on devices do not serve; trying again")
        .unwrap();
    agent
        .apply_and_sync(FILE, &cluster(neighbour, &[3]))
        .unwrap();
    for number in 0..8 {
        let name = format!("new {number}");
        let endpoint = ask(&mut prober, &name, Transport::Tcp, to);
        assert_eq!(endpoint, http(3), "{name}");
    }
    assert_eq!(ask(&mut prober, "kept", Transport::Tcp, to), kept);
    assert_eq!(listed(shop, &agent, &[]).len(), 1);
    // The memory limit goes once nobody is in it.
    drop(agent);
}
