//! Scenarios as real traffic through a backend behind the node API: the agent's own (`run
//! --target`), or the program that `CULVERT_BACKEND` names. This process is its brain. What happens
//! must be what the file says, and what the oracle allows. Needs root.

#[path = "traffic/trials.rs"]
mod trials;

use std::{env, process::ExitCode};

use proxy_tests::scenario::subject::Under;

fn main() -> ExitCode {
    let words = env::var("CULVERT_BACKEND").unwrap_or_default();
    let words: Vec<_> = words.split_whitespace().map(ToOwned::to_owned).collect();
    let under = if words.is_empty() {
        Under::OurBackend
    } else {
        Under::Command(words)
    };
    trials::run("conformance", &under)
}
