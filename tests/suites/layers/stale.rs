//! Programs that no longer decide as the state wants: they lead nobody astray, and nobody calls them in
//! force.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use proxy_tests::{
    Agent, Prober, Shop,
    bpf::{self, Pinned},
    launcher::MemoryLimit,
    requires::{self, Need},
    shop::{frontend, http, small_service},
};

use super::{
    SUITE,
    lost::services,
    rig::{
        ABOVE, BENEATH, answer, assert_whole, can_run, from_the_pod, in_force, is_translated,
        layer, options, serving, told,
    },
};

const FILE: &str = "cluster.yaml";

#[test]
fn programs_of_an_earlier_agent_lead_nobody_where_the_next_one_lacks_memory_for_them() {
    if !can_run() || !requires::met(SUITE, &[Need::MemoryLimit]) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let limit = MemoryLimit::new(256).unwrap();
    let mut surroundings = options(&[]);
    surroundings.launcher = limit.launcher();
    let files = [(FILE, &*services(3))];
    let mut agent = Agent::start(&shop.world, surroundings, &files).unwrap();
    let mut pod = from_the_pod(&shop);
    let mut single = Prober::start(&shop.client).unwrap();
    assert!(!is_translated(&shop, &mut single, frontend(2, 80)));
    agent.kill().unwrap();
    // Maps of this size would have to be made anew.
    let arguments = &mut agent.options().arguments;
    arguments.push("--map-size=AFFINITY=4000000".to_owned());
    agent.spawn().unwrap();
    let aside = agent.wait_for("layer stands aside").unwrap();
    assert_eq!(aside.text("layer"), Some(ABOVE));
    agent.apply("more.yaml", &small_service(4, &[2])).unwrap();
    agent
        .wait_for_line("nftables has it", |line| {
            line.message() == Some("synced") && line.text("layer") == Some(BENEATH)
        })
        .unwrap();
    assert!(is_translated(&shop, &mut single, frontend(3, 80)));
    assert_eq!(answer(&mut single, frontend(4, 80)), http(2));
    // What is open is still shown what it dialled.
    pod.goes_on("while eBPF stands aside").unwrap();

    limit.set(4096).unwrap();
    serving(&mut agent, ABOVE);
    pod.goes_on("by both again").unwrap();
    pod.stop().unwrap();
    assert_whole(&shop, &agent);
    // The memory limit goes once nobody is in it.
    drop(agent);
}

#[test]
fn a_program_that_cannot_be_put_back_is_not_in_force() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let options = options(&["--sync-period=1h"]);
    let mut agent = Agent::start(&shop.world, options, &[(FILE, &*services(2))]).unwrap();
    let pin = agent.pins().path().join("links/culvert_conn4");
    Pinned::open(&pin).unwrap().detach().unwrap();
    let cgroup = shop.world.cgroup().path();
    bpf::attach_alone(cgroup).unwrap();
    let compare = |agent: &Agent<'_>| {
        kill(Pid::from_raw(agent.pid().unwrap()), Signal::SIGHUP).unwrap();
    };
    compare(&agent);
    let problem = agent.wait_for("not repaired").unwrap();
    assert_eq!(problem.text("layer"), Some(ABOVE));
    let now = told(&agent);
    assert_eq!(now["inForce"], false);
    let above = layer(&now, ABOVE);
    assert_eq!(above["inForce"], false);
    let failure = above["failure"].as_str().unwrap();
    assert!(failure.contains("bpftool cgroup show"), "{failure}");
    assert!(!in_force(&shop, ABOVE) && in_force(&shop, BENEATH));

    bpf::detach_alone(cgroup).unwrap();
    compare(&agent);
    agent.wait_for("kernel state repaired").unwrap();
    assert_whole(&shop, &agent);
}
