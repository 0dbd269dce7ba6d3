//! A node that goes from one backend to another many times: mostly before what the one before has left is
//! removed, so that agents meet the rules and programs of several others.

use std::{collections::BTreeSet, env, time::Duration};

use proxy_tests::{agent::LogLine, conformance::random::Chance, emulated};

use super::*;

/// How many changes, if this does not say it. Emulated, each takes many times as long.
const GIVEN: &str = "CULVERT_CHANGES";
const CHANGES: [usize; 2] = [40, 20];
/// After so many changes all that is left is removed before the next one.
const CLEAN: usize = 20;

/// Between two requests of a load, and how long conntrack keeps a TCP connection that is over, in seconds: as ever, a
/// minute or two of traffic would fill its table, and others would be dropped.
const PAUSE: Duration = Duration::from_millis(3);
const OVER: &str = "10";

/// Backends that serve alone, with their names.
const ALONE: [(Stack, &str); 3] = [
    (Nftables, "nftables"),
    (Iptables, "iptables"),
    (Ebpf, "ebpf"),
];

const REMOVED: &str = "what another backend left is removed";

#[test]
fn many_changes_of_backend_fail_no_connection() {
    if !has_all() {
        return;
    }
    let usual = CHANGES[usize::from(emulated::is_emulated())];
    let changes = env::var(GIVEN).map_or(usual, |text| text.parse().unwrap());
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*service(1, &[1, 2, 3]))];
    let mut from = ALONE[0];
    let mut agent = Agent::start(&shop.world, from.0.options(), &files).unwrap();
    let over = [("netfilter/nf_conntrack_tcp_timeout_time_wait", OVER)];
    shop.world.node().netns().sysctls(&over).unwrap();
    let mut pod = Traffic::start("pod", &shop.client, slowly(loads(1, &LOADS))).unwrap();
    pod = pod.excusing(excused);
    let node = Traffic::start("node", shop.world.node(), slowly(loads_of_the_node()));
    let mut node = node.unwrap().excusing(excused);
    let mut chance = Chance::new(1);
    // Backends of which something may be there that do not serve.
    let mut left = BTreeSet::new();
    for number in 1..=changes {
        let others: Vec<_> = ALONE.into_iter().filter(|one| *one != from).collect();
        let to = chance.pick(&others);
        let what = format!("change {number}, from {} to {}", from.1, to.1);
        if left.is_empty() {
            agent.kill().unwrap();
        } else {
            // One that is killed cannot say what it has just removed.
            let log = agent.terminate().unwrap();
            left.retain(|name| !removed(&log).contains(name));
        }
        left.insert(from.1);
        left.remove(to.1);
        agent.options().arguments = to.0.arguments();
        agent.launch().unwrap();
        if number % CLEAN == 0 {
            while !left.is_empty() {
                let line = agent.wait_for(REMOVED).unwrap();
                left.retain(|name| line.text("backend") != Some(name));
            }
        }
        pod.goes_on(&what).unwrap();
        node.goes_on(&what).unwrap();
        from = to;
    }
    pod.stop().unwrap();
    node.stop().unwrap();
}

fn slowly(mut loads: Vec<Load>) -> Vec<Load> {
    for load in &mut loads {
        load.pause = PAUSE;
    }
    loads
}

/// The backends of which `log` says that they are removed.
fn removed(log: &[LogLine]) -> BTreeSet<&str> {
    let lines = log.iter().filter(|line| line.message() == Some(REMOVED));
    lines.filter_map(|line| line.text("backend")).collect()
}
