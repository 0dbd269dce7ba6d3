//! Random clusters, one after the other, as partial restores write them: what is in the kernel then must be what one
//! full restore of the last one alone writes on another node.

use std::{
    collections::BTreeMap,
    env,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use proxy_model::NodeState;
use proxy_tests::{
    World,
    conformance::random::Walk,
    scenario::{
        Settings,
        subject::{Start, Subject, Under},
    },
};

use super::*;

/// The number of the first walk, to repeat it.
const SEED: &str = "CULVERT_SEED";
const WALKS: u64 = 4;
/// Clusters of a walk, and after how many of them the rules are compared.
const STATES: usize = 15;
const COMPARED: usize = 5;

/// kubelet's, of each flavour.
const KUBELETS: &str = "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n";

/// Rules in their order, by family, table and chain.
type Chains = BTreeMap<String, Vec<String>>;

#[test]
fn random_changes_by_iptables_nft_lead_to_the_rules_of_one_full_restore() {
    walks("nft", ["iptables-nft-restore", "ip6tables-nft-restore"]);
}

#[test]
fn random_changes_by_iptables_legacy_lead_to_the_rules_of_one_full_restore() {
    walks(
        "legacy",
        ["iptables-legacy-restore", "ip6tables-legacy-restore"],
    );
}

fn walks(flavour: &str, restore: [&'static str; 2]) {
    if !can_run() {
        return;
    }
    let first = env::var(SEED).map_or_else(
        |_| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            u64::from(now.subsec_nanos())
        },
        |seed| seed.parse().unwrap(),
    );
    for seed in first..first + WALKS {
        println!("to repeat: {SEED}={seed}");
        if let Err(error) = walk(seed, flavour, restore) {
            panic!("{error:#}");
        }
    }
}

fn walk(seed: u64, flavour: &str, restore: [&'static str; 2]) -> Result<()> {
    let mut walk = Walk::new(seed);
    walk.step();
    let settings = walk.settings().clone();
    let world = World::bare(&settings.node_addresses)?;
    let mut subject = start(restore, &world, &settings, &walk.state())?;
    for number in 1..=STATES {
        if number > 1 {
            walk.step();
            subject.follow(&walk.state())?;
        }
        if number % COMPARED == 0 {
            let compared = (|| {
                let by_changes = chains(&world, flavour)?;
                let at_once = World::bare(&settings.node_addresses)?;
                let other = start(restore, &at_once, &settings, &walk.state())?;
                same(&by_changes, &chains(&at_once, flavour)?)?;
                other.finish()
            })();
            compared.with_context(|| {
                let text = walk.text();
                format!("walk {seed}, state {number}, as a scenario:\n{text}\n")
            })?;
        }
    }
    // What a comparison would mend was not written as it should be.
    let log = subject.log();
    for told in ["\"repaired\"", "comparing all tables"] {
        ensure!(
            !log.contains(told),
            "walk {seed}: {told} in its log:\n{log}"
        );
    }
    subject.finish()
}

fn start<'w>(
    restore: [&'static str; 2],
    world: &'w World,
    settings: &Settings,
    state: &NodeState,
) -> Result<Subject<'w>> {
    let start = Start::with(["--proxy-mode=iptables"]).after(restore, KUBELETS);
    Subject::behind_brain(
        &Under::OurBackend(start),
        world,
        &settings.model.node,
        state,
    )
}

/// What is there, of both families.
fn chains(world: &World, flavour: &str) -> Result<Chains> {
    let mut chains = Chains::new();
    for family in ["iptables", "ip6tables"] {
        let program = format!("{family}-{flavour}-save");
        let run = || Command::new(&program).output();
        let saved = world.node().netns().run(run)??;
        ensure!(saved.status.success(), "{program} failed: {saved:?}");
        let mut table = String::new();
        for line in String::from_utf8(saved.stdout)?.lines() {
            if let Some(name) = line.strip_prefix('*') {
                table = format!("{program}, {name}");
            } else if let Some(declared) = line.strip_prefix(':') {
                let name = declared.split(' ').next().unwrap_or_default();
                chains.insert(format!("{table}, {name}"), Vec::new());
            } else if let Some((name, rule)) = line
                .strip_prefix("-A ")
                .and_then(|rest| rest.split_once(' '))
            {
                let chain = chains.get_mut(&format!("{table}, {name}"));
                let chain = chain.with_context(|| format!("no chain for {line}"))?;
                chain.push(rule.to_owned());
            }
        }
    }
    Ok(chains)
}

/// Says what differs, if anything does.
fn same(by_changes: &Chains, at_once: &Chains) -> Result<()> {
    ensure!(at_once.len() > 1, "nothing was written: {at_once:?}");
    let names = by_changes.keys().chain(at_once.keys());
    for name in names {
        let (one, other) = (by_changes.get(name), at_once.get(name));
        ensure!(
            one == other,
            "{name}: by changes {one:#?}, by one full restore {other:#?}"
        );
    }
    Ok(())
}
