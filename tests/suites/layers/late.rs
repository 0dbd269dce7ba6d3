//! A layer beneath that cannot be synced at first: the hooks serve what they can, the rest is told as
//! lacking, and handed over when it can be.

use proxy_tests::{
    Agent, Prober, Shop, Traffic,
    pod::Transport,
    shop::{frontend, small_service},
    world::NODE_ADDRESSES,
};

use super::{
    lost::services,
    rig::{
        ABOVE, BENEATH, answer, assert_whole, can_run, excused, from_the_node, from_the_pod,
        in_force, is_translated, layer, options, over_ipv4, prober, serving, take_table, told,
    },
};

const FILE: &str = "cluster.yaml";

#[test]
fn what_only_packets_can_do_is_told_as_lacking_until_the_layer_beneath_comes() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let open = small_service(2, &[2])
        .replace("spec:\n", "spec:\n  type: NodePort\n")
        .replace("{name: http, ", "{name: http, nodePort: 30080, ");
    let files = [(FILE, &*[services(1), open].concat())];
    let holder = take_table(&shop);
    let mut agent = Agent::start(&shop.world, options(&[]), &files).unwrap();
    let gap = agent.wait_for("capability gap").unwrap();
    assert_eq!(gap.text("service"), Some("shop/s2:http/TCP/IPv4"));
    assert_eq!(gap.text("capability"), Some("external-traffic"));
    let failed = agent
        .log()
        .into_iter()
        .find(|line| line.message() == Some("sync failed"));
    let failed = failed.unwrap();
    assert_eq!(failed.text("layer"), Some(BENEATH));
    let named = "table ip6 culvert belongs to another process";
    assert!(failed.text("reason").unwrap().contains(named), "{failed:?}");

    let now = told(&agent);
    assert_eq!(
        (&now["inForce"], &now["suffices"]),
        (&false.into(), &false.into())
    );
    assert_eq!(now["backend"], "ebpf over nftables");
    let mut lacks = now["lacks"].as_array().unwrap().iter();
    assert!(
        lacks.any(|one| one["capability"] == "external-traffic"),
        "{now:#}"
    );
    assert_eq!(layer(&now, ABOVE)["inForce"], true);
    let beneath = layer(&now, BENEATH);
    assert_eq!(
        (&beneath["inForce"], &beneath["serves"]),
        (&false.into(), &false.into())
    );
    assert!(
        beneath["failure"].as_str().unwrap().contains(named),
        "{beneath:#}"
    );
    assert!(beneath["retryAt"].is_string(), "{beneath:#}");
    assert!(in_force(&shop, ABOVE));
    assert!(!in_force(&shop, BENEATH));

    let (mut pod, mut node) = (from_the_pod(&shop), from_the_node(&shop));
    let place = shop.world.unseen(&shop.client).unwrap();
    let mut unseen = prober(&place);
    let node_port = (NODE_ADDRESSES[0], 30080).into();
    answer(&mut pod.prober, node_port);
    let attempt = unseen.send(Transport::Tcp, node_port, 1).unwrap().remove(0);
    assert_eq!(attempt.errno(), Some("ECONNREFUSED"));

    holder.release().unwrap();
    serving(&mut agent, BENEATH);
    let closed = agent.wait_for("capability gap closed").unwrap();
    assert_eq!(closed.text("service"), gap.text("service"));
    answer(&mut unseen, node_port);
    answer(&mut unseen, frontend(1, 80));
    pod.goes_on("over nftables").unwrap();
    node.goes_on("over nftables").unwrap();
    assert_whole(&shop, &agent);
    pod.stop().unwrap();
    node.stop().unwrap();
}

#[test]
fn cluster_ips_are_handed_over_to_be_masqueraded_once_the_layer_beneath_serves() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*services(6))];
    let masqueraded = options(&["--masquerade-all"]);
    let holder = take_table(&shop);
    let mut agent = Agent::start(&shop.world, masqueraded, &files).unwrap();
    let traffic = |of, host| {
        Traffic::start(of, host, over_ipv4())
            .unwrap()
            .excusing(excused)
    };
    let mut pod = traffic("pod", &shop.client);
    let mut node = traffic("node", shop.world.node());
    let mut single = Prober::start(&shop.client).unwrap();
    assert!(!is_translated(&shop, &mut single, frontend(2, 80)));
    pod.goes_on("before it serves").unwrap();
    holder.release().unwrap();
    serving(&mut agent, BENEATH);
    agent.wait_until_synced().unwrap();
    assert!(is_translated(&shop, &mut single, frontend(3, 80)));
    pod.goes_on("once it serves").unwrap();
    node.goes_on("once it serves").unwrap();
    assert_whole(&shop, &agent);

    // An agent that starts again while the table is another's: what was left there still serves.
    agent.kill().unwrap();
    let holder = take_table(&shop);
    agent.launch().unwrap();
    pod.goes_on("started again without it").unwrap();
    holder.release().unwrap();
    serving(&mut agent, BENEATH);
    agent.wait_until_synced().unwrap();
    assert!(is_translated(&shop, &mut single, frontend(5, 80)));
    pod.goes_on("and with it").unwrap();
    pod.stop().unwrap();
    node.stop().unwrap();
    assert_whole(&shop, &agent);
}
