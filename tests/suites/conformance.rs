//! Dataplanes against the oracle: every scenario as real traffic and as packets, and random clusters,
//! through each backend alone and through the layers of a node by default, behind the node API. This
//! process is the brain. What happens must be what the file says, and what the oracle allows. Needs
//! root.
//!
//! `CULVERT_BACKEND` is `layers`, or names one of the agent's own backends (`run --target …
//! --proxy-mode`), or is the command line of another program; without it, all that are our own are
//! tested. `CULVERT_RANDOM` is the number of random states, `CULVERT_SEED` the number of the first
//! walk through them.

use std::{env, sync::Arc};

use anyhow::Result;
use libtest_mimic::Trial;
use proxy_agent::backends;
use proxy_backend::{BackendKind, Place};
use proxy_tests::{
    conformance::{
        sockets,
        trial::{self, Backend},
    },
    requires::{Need, PACKETS, PRIVILEGED},
    scenario::{Scenario, subject::Under},
};

use crate::trials;

pub const NEEDS: &[&[Need]] = &[PRIVILEGED, PACKETS];

/// What the layers of a node by default are called, among names of backends.
const LAYERS: &str = "layers";

/// Random states of one walk: the next ones are another trial, to run at the same time.
const WALK: usize = 10;

pub fn trials(scenarios: &[Arc<Scenario>]) -> Vec<Trial> {
    let words = env::var("CULVERT_BACKEND").unwrap_or_default();
    let under: Vec<(String, Under)> = match words.trim() {
        "" => {
            let alone = backends::ALL.iter().copied().map(alone);
            alone.chain([layers()]).collect()
        }
        LAYERS => vec![layers()],
        words => {
            let own = BackendKind::named(words, backends::ALL).map(alone);
            let command = || {
                let words = words.split_whitespace().map(ToOwned::to_owned);
                ("backend".to_owned(), Under::Command(words.collect()))
            };
            vec![own.unwrap_or_else(command)]
        }
    };
    let (random, seed) = (number("CULVERT_RANDOM", 30), number("CULVERT_SEED", 1));
    under
        .into_iter()
        .flat_map(|(name, under)| {
            let backend = Backend::new(under);
            let played = |what: &str, play| {
                let prefix = format!("conformance::{name}/{what}");
                trials::of_scenarios(&prefix, scenarios, &backend, play)
            };
            let mut all = played("", trial::probes);
            all.extend(played("packets/", trial::scenario));
            let random = |what: &str, walk| {
                let prefix = format!("conformance::{name}/{what}");
                walks(&prefix, random, seed, &backend, walk)
            };
            all.extend(random("random/", trial::walk));
            all.extend(random("random-sockets/", sockets::walk));
            all
        })
        .collect()
}

/// This backend, and none over or beneath it.
fn alone(kind: BackendKind) -> (String, Under) {
    let name = kind.name();
    let mut arguments = vec![format!("--proxy-mode={name}")];
    if kind.place() == Place::Above {
        // Otherwise there is a packet backend beneath it.
        arguments.push(format!("--backend-order={name}"));
    }
    (name.to_owned(), Under::OurBackend(arguments))
}

fn layers() -> (String, Under) {
    (LAYERS.to_owned(), Under::Layers)
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
