//! One layer fails for a long time, and a thousand changes come: they are in force in the other one as
//! they come, and in the failing one when it can.

use proxy_tests::{
    Agent, Prober, Shop,
    launcher::MemoryLimit,
    requires::{self, Need},
    shop::{frontend, http, small_service},
};
use serde_json::Value;

use super::{
    SUITE,
    rig::{
        ABOVE, BENEATH, answer, assert_whole, can_run, in_force, layer, options, prober, serving,
        take_table, told,
    },
};

/// So many Services change in each round.
const SERVICES: u8 = 200;
const ROUNDS: u8 = 5;

/// The endpoint of all Services in a round.
const fn endpoint(round: u8) -> u8 {
    round % 8 + 1
}

fn file(number: u8) -> String {
    format!("s{number}.yaml")
}

/// Changes all Services, and waits until `healthy` has every one.
fn change(agent: &mut Agent<'_>, round: u8, healthy: &str) {
    for number in 1..=SERVICES {
        let manifest = small_service(number, &[endpoint(round)]);
        agent.apply(&file(number), &manifest).unwrap();
    }
    let mut changed = 0;
    while changed < u64::from(SERVICES) {
        let synced = agent.wait_for_line("a change is in force", |line| {
            line.message() == Some("synced") && line.text("layer") == Some(healthy)
        });
        changed += synced.unwrap().number("upserted").unwrap();
    }
}

/// All Services lead where they lead in that round.
fn assert_round(prober: &mut Prober, round: u8) {
    for number in 1..=SERVICES {
        let answer = answer(prober, frontend(number, 80));
        assert_eq!(answer, http(endpoint(round)), "{number} in round {round}");
    }
}

/// A thousand changes while `failing` fails. `healthy` is asked by `prober`.
fn a_thousand_changes(
    shop: &Shop,
    agent: &mut Agent<'_>,
    failing: &str,
    healthy: &str,
    prober: &mut Prober,
) {
    for round in 1..=ROUNDS {
        change(agent, round, healthy);
        assert_round(prober, round);
        let now = told(agent);
        assert_eq!(now["inForce"], false);
        assert_eq!(layer(&now, healthy)["inForce"], true, "{now:#}");
        assert_eq!(layer(&now, healthy)["failure"], Value::Null);
        let failing = layer(&now, failing);
        assert_eq!(failing["inForce"], false);
        assert!(failing["failure"].is_string(), "{failing:#}");
    }
    assert!(in_force(shop, healthy));
    assert!(!in_force(shop, failing));
}

#[test]
fn a_thousand_changes_are_in_force_above_while_the_layer_beneath_fails() {
    if !can_run() {
        return;
    }
    let shop = Shop::routed().unwrap();
    let mut agent = Agent::start(&shop.world, options(&[]), &[]).unwrap();
    change(&mut agent, 0, ABOVE);
    let mut pod = Prober::start(&shop.client).unwrap();
    let place = shop.world.unseen(&shop.client).unwrap();
    let mut unseen = prober(&place);
    assert_round(&mut pod, 0);
    assert_round(&mut unseen, 0);

    let holder = take_table(&shop);
    let failed = agent.wait_for("sync failed").unwrap();
    assert_eq!(failed.text("layer"), Some(BENEATH));
    a_thousand_changes(&shop, &mut agent, BENEATH, ABOVE, &mut pod);
    // What it had in force stays, and is told to serve.
    assert_round(&mut unseen, 0);
    let now = told(&agent);
    assert_eq!(layer(&now, BENEATH)["serves"], true);
    assert_eq!(
        (&now["suffices"], &now["lacks"]),
        (&true.into(), &Value::Array(vec![]))
    );

    holder.release().unwrap();
    agent
        .wait_for_line("nftables has all", |line| {
            line.message() == Some("synced") && line.text("layer") == Some(BENEATH)
        })
        .unwrap();
    assert_round(&mut unseen, ROUNDS);
    assert_round(&mut pod, ROUNDS);
    assert_whole(&shop, &agent);
}

#[test]
fn a_thousand_changes_are_in_force_beneath_while_the_layer_above_cannot_be_opened() {
    if !can_run() || !requires::met(SUITE, &[Need::MemoryLimit]) {
        return;
    }
    let shop = Shop::routed().unwrap();
    // Enough for the agent; not for this map, which is allocated at once.
    let limit = MemoryLimit::new(256).unwrap();
    let mut surroundings = options(&["--map-size=AFFINITY=4000000"]);
    surroundings.launcher = limit.launcher();
    let mut agent = Agent::prepare(&shop.world, surroundings, &[]).unwrap();
    agent.spawn().unwrap();
    serving(&mut agent, BENEATH);
    let failed = agent.wait_for("sync failed").unwrap();
    assert_eq!(failed.text("layer"), Some(ABOVE));
    change(&mut agent, 0, BENEATH);
    let mut pod = Prober::start(&shop.client).unwrap();
    a_thousand_changes(&shop, &mut agent, ABOVE, BENEATH, &mut pod);
    assert_eq!(layer(&told(&agent), ABOVE)["serves"], false);

    limit.set(4096).unwrap();
    serving(&mut agent, ABOVE);
    assert_round(&mut pod, ROUNDS);
    let place = shop.world.unseen(&shop.client).unwrap();
    assert_round(&mut prober(&place), ROUNDS);
    assert_whole(&shop, &agent);
    // The memory limit goes once nobody is in it.
    drop(agent);
}
