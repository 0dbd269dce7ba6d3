//! Dataplanes against the oracle: every scenario as real traffic and as packets, and random clusters,
//! through each backend alone, through the layers of a node without programs on devices, and with them, and
//! through these alone, behind the node API. This process is the brain. What happens must be what the file says, and what
//! the oracle allows. Needs root.
//!
//! `CULVERT_BACKEND` is `layers`, or `devices` for the part of it with programs on devices, or `devices-alone`, or names
//! one of the agent's own backends (`run --target … --proxy-mode`), or is the command line of another
//! program; without it, all that are our own are tested. `CULVERT_RANDOM` is the number of random
//! states, `CULVERT_SEED` the number of the first walk through them.

use std::{env, sync::Arc};

use anyhow::{Result, bail};
use libtest_mimic::Trial;
use proxy_agent::backends;
use proxy_backend::{BackendKind, Place};
use proxy_model::Capability;
use proxy_tests::{
    conformance::{
        sockets,
        trial::{self, Backend},
    },
    journey::Kind,
    requires::{self, Need, PACKETS, PRIVILEGED},
    scenario::{
        Scenario,
        subject::{Start, Under},
    },
};

use crate::trials;

pub const NEEDS: &[&[Need]] = &[PRIVILEGED, PACKETS];

/// What the layers of a node are called, among names of backends, without programs on devices.
const LAYERS: &str = "layers";

/// What the same are called with programs on devices, as a node has them by default. Every kind of
/// device has a share of the scenarios: those in which such programs take anything.
const DEVICES: &str = "devices";

/// What the upper one of them is called by itself, with programs on devices: what comes from outside.
const ALONE: &str = "devices-alone";

/// Flavours of iptables, each with the programs that kubelet runs where it is used, and chains of kubelet's, which
/// decide which flavour an agent uses.
const FLAVOURS: [(&str, [&str; 2]); 2] = [
    ("nft", ["iptables-nft-restore", "ip6tables-nft-restore"]),
    (
        "legacy",
        ["iptables-legacy-restore", "ip6tables-legacy-restore"],
    ),
];
const KUBELETS: &str = "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n";

/// How names begin of layers over a packet backend that is tested alone as well.
const OVER: &str = "over-";

/// The packet backend that has flavours.
const IPTABLES: &str = "iptables";

/// Random states of one walk: the next ones are another trial, to run at the same time.
const WALK: usize = 10;

pub fn trials(scenarios: &[Arc<Scenario>]) -> Vec<Trial> {
    let words = env::var("CULVERT_BACKEND").unwrap_or_default();
    let under: Vec<(String, Under)> = match words.trim() {
        "" => {
            let alone = backends::ALL.iter().copied().flat_map(alone);
            alone
                .chain([layers(), devices(), devices_alone()])
                .chain(over_iptables())
                .collect()
        }
        LAYERS => vec![layers(), devices()],
        DEVICES => vec![devices()],
        ALONE => vec![devices_alone()],
        words => {
            let own = BackendKind::named(words, backends::ALL).map(alone);
            match own.map_or_else(|| Ok(vec![command(words)?]), Ok) {
                Ok(all) => all,
                // One test, that fails: whoever named it reads why.
                Err(error) => {
                    return vec![trials::of("conformance::backend".to_owned(), || Err(error))];
                }
            }
        }
    };
    let (random, seed) = (number("CULVERT_RANDOM", 30), number("CULVERT_SEED", 1));
    under
        .into_iter()
        .flat_map(|(name, under)| {
            let has_devices = under.has_devices();
            let backend = Backend::new(under);
            if has_devices {
                return on_devices(&name, scenarios, random, seed, &backend);
            }
            let played = |what: &str, play| {
                let prefix = format!("conformance::{name}/{what}");
                trials::of_scenarios(&prefix, scenarios, &backend, play)
            };
            let mut all = played("", trial::probes);
            let random = |what: &str, walk| {
                let prefix = format!("conformance::{name}/{what}");
                walks(&prefix, random, seed, &backend, walk)
            };
            all.extend(random("random-sockets/", sockets::walk));
            // Alone, it meets the same packets that it meets beneath hooks.
            if !name.starts_with(OVER) {
                all.extend(played("packets/", trial::scenario));
                all.extend(random("random/", trial::walk));
            }
            all
        })
        .collect()
}

/// This backend, and none over or beneath it: with iptables once for each flavour.
fn alone(kind: BackendKind) -> Vec<(String, Under)> {
    let name = kind.name();
    let mut arguments = vec![format!("--proxy-mode={name}")];
    if kind.place() == Place::Above {
        // Otherwise there is a packet backend beneath it.
        arguments.push(format!("--backend-order={name}"));
        // By itself, and so faster: programs on devices are tested as `devices-alone`.
        arguments.push("--tc=off".to_owned());
    }
    let start = Start::with(arguments);
    if name != IPTABLES {
        return vec![(name.to_owned(), Under::OurBackend(start))];
    }
    let of_flavour = |(flavour, programs)| {
        let start = start.clone().after(programs, KUBELETS).routing_localnet();
        (format!("{name}-{flavour}"), Under::OurBackend(start))
    };
    FLAVOURS.map(of_flavour).into()
}

fn layers() -> (String, Under) {
    let layers = Start::with(["--proxy-mode=auto", "--tc=off"]);
    (LAYERS.to_owned(), Under::Layers(layers))
}

/// The layers of a node whose packet backend is iptables, with each flavour.
fn over_iptables() -> Vec<(String, Under)> {
    let of_flavour = |(flavour, programs)| {
        let order = format!("--backend-order={},{IPTABLES}", above());
        let start = Start::with(["--proxy-mode=auto", "--tc=off", &order]);
        let start = start
            .after(programs, KUBELETS)
            .lacking(&[Capability::StrayTraffic]);
        (format!("{OVER}{IPTABLES}-{flavour}"), Under::Layers(start))
    };
    FLAVOURS.map(of_flavour).into()
}

fn devices_alone() -> (String, Under) {
    (ALONE.to_owned(), Under::DevicesAlone(above()))
}

/// The backend that takes what it can before a packet backend does.
fn above() -> &'static str {
    let mut kinds = backends::ALL.iter();
    let above = kinds.find(|kind| kind.place() == Place::Above);
    above.expect("a backend of the agent's").name()
}

fn devices() -> (String, Under) {
    (DEVICES.to_owned(), Under::Devices)
}

/// Another program, as its command line has it.
fn command(line: &str) -> Result<(String, Under)> {
    let words: Vec<_> = line.split_whitespace().map(ToOwned::to_owned).collect();
    if !requires::is_on_path(&words[0]) {
        let ours: Vec<_> = backends::ALL.iter().map(|kind| kind.name()).collect();
        bail!(
            "--backend {line:?}: {} is no backend of the agent ({}), neither {LAYERS} nor {DEVICES} nor {ALONE}, and no \
             program, as the first word of another backend's command line must be",
            words[0],
            ours.join(", ")
        );
    }
    Ok(("backend".to_owned(), Under::Command(words)))
}

/// The packets of scenarios and random clusters, in by devices with programs.
fn on_devices(
    name: &str,
    scenarios: &[Arc<Scenario>],
    states: usize,
    seed: u64,
    backend: &Backend,
) -> Vec<Trial> {
    let is_taken = |scenario: &&Arc<Scenario>| {
        // A scenario that cannot be read fails where all are played.
        let states = trials::states(scenario);
        states.is_ok_and(|states| trial::is_any_taken(scenario, &states))
    };
    let taken: Vec<_> = scenarios.iter().filter(is_taken).cloned().collect();
    let mut all = Vec::new();
    for (share, kind) in Kind::ALL.into_iter().enumerate() {
        let backend = backend.on(kind);
        let shares = taken.iter().skip(share).step_by(Kind::ALL.len());
        let shares: Vec<_> = shares.cloned().collect();
        let prefix = format!("conformance::{name}/{kind}/");
        all.extend(trials::of_scenarios(
            &prefix,
            &shares,
            &backend,
            trial::scenario,
        ));
    }
    for (number, seed) in (0..states.div_ceil(WALK)).zip(seed..) {
        let kind = Kind::ALL[number % Kind::ALL.len()];
        // Every other walk as with `--keep-client-address`.
        let backend = if number % 2 == 1 {
            backend.on(kind).keeping()
        } else {
            backend.on(kind)
        };
        let length = WALK.min(states - number * WALK);
        let name = format!("conformance::{name}/{kind}/random/{seed}");
        all.push(trials::of(name, move || {
            trial::walk(seed, length, &backend)
        }));
    }
    all
}

fn number<T: std::str::FromStr>(variable: &str, otherwise: T) -> T {
    match env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable}={text:?} is no number")),
        Err(_) => otherwise,
    }
}

/// Walks through `states` random clusters, the first one with the number `seed`.
fn walks(
    prefix: &str,
    states: usize,
    seed: u64,
    backend: &Backend,
    walk: fn(u64, usize, &Backend) -> Result<()>,
) -> Vec<Trial> {
    (0..states.div_ceil(WALK))
        .zip(seed..)
        .map(|(number, seed)| {
            let backend = backend.clone();
            let length = WALK.min(states - number * WALK);
            trials::of(format!("{prefix}{seed}"), move || {
                walk(seed, length, &backend)
            })
        })
        .collect()
}
