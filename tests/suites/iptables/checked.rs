//! What `check` says of this backend, and of the one that it is there in place of.

use serde_json::Value;

use super::*;

/// What `check` found for a backend on the node.
fn requirements(node: &Node, backend: &str) -> Vec<Value> {
    let agent = Agent::prepare(&node.shop.world, options(), &[]).unwrap();
    let mut command = agent.command("check").unwrap();
    command.args(["-o", "json"]);
    let netns = node.shop.world.node().netns();
    process::enter(&mut command, Some(netns.as_fd()), None).unwrap();
    let done = Process::run("proxy-agent", command, LIMIT).unwrap();
    let check: Value = serde_json::from_str(&done.stdout).unwrap();
    let mut backends = check["backends"].as_array().unwrap().iter();
    let of_backend = backends.find(|one| one["name"] == backend).unwrap();
    of_backend["requirements"].as_array().unwrap().clone()
}

fn unmet(requirements: &[Value]) -> Vec<&str> {
    let unmet = requirements.iter().filter(|one| one["met"] == false);
    unmet.map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn check_tells_for_how_many_services_the_nft_flavour_is() {
    if !can_run() {
        return;
    }
    for flavour in FLAVOURS {
        let node = Node::new(flavour);
        let all = requirements(&node, "iptables");
        let found = all[0]["found"].as_str().unwrap();
        assert!(found.starts_with(flavour), "{found}");
        let told = unmet(&all).contains(&"number of Services");
        assert_eq!(told, flavour == "nft", "{all:?}");
    }
}

/// Rules and maps are not what an old kernel lacks.
#[test]
fn check_names_what_this_kernel_lacks_for_nftables() {
    if !can_run() {
        return;
    }
    let node = Node::new("legacy");
    let all = requirements(&node, "nftables");
    let expected = match requires::unmet(&[Need::Nftables]) {
        // 5.10 is the only older one that is tested on.
        Some(_) => vec!["kernel", "tables with an owner"],
        None => vec![],
    };
    assert_eq!(unmet(&all), expected, "{all:?}");
}
