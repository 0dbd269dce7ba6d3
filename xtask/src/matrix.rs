//! What is run on which kernel.
//!
//! Everything runs on the machine's own. Emulated ones take many times as long, so that they run what
//! that kernel can make a difference to: suites by what they ask of it, and of the scenarios those that
//! reach what kernels differ in.

use crate::vm::kernels::Line;

/// What depends on the kernel, and where it is run.
const SUITES: &[(&str, &[Line])] = &[
    // Links, pins and batches of map entries: the oldest has them all, and the machine's own is newer
    // than any here.
    ("adopt", &[Line::V5_10]),
    ("repair", &[Line::V5_10]),
    // What an agent leaves and the next one takes over, under load: the same.
    ("restart", &[Line::V5_10]),
    // Which helpers there are, and what the verifier understands.
    ("load", &Line::ALL),
    ("traffic", &Line::ALL),
    // Programs on devices: clsact before 6.6; newer ones have links, as the machine's own has. What
    // needs a layer beneath is left out on the oldest.
    ("edge", &[Line::V5_10, Line::V6_1]),
    // Netfilter. The backend needs 5.13, and few kernels have virtual servers.
    ("conntrack", &[Line::V6_1]),
    ("leftovers", &[Line::V6_1]),
    ("nftables", &[Line::V6_1]),
    // Minutes in emulation: with `full` alone.
    ("switch", &[]),
    ("layers", &[]),
];

/// The suites to run on this kernel; with `full`, all that depend on one.
pub(crate) fn suites(line: Line, full: bool) -> Vec<&'static str> {
    let here = SUITES.iter().filter(|(_, on)| full || on.contains(&line));
    here.map(|(name, _)| *name).collect()
}

/// The suite whose tests are scenarios.
const SCENARIOS: &str = "traffic::";

/// Beginnings of the scenarios that reach what kernels differ in. Between them they go through every
/// hook, helper and kind of map. The others differ in which endpoints the model chooses: by then the
/// maps are filled in the same way, and the programs do the same with them.
const REACHING: &[&str] = &[
    // connect, getpeername and the clock, in both families, and what is mapped between them.
    "affinity/",
    "clusterip/hairpin",
    "clusterip/ipv4-mapped",
    "clusterip/tcp-over-ipv",
    "clusterip/unallocated-address",
    "clusterip/unknown-port",
    // How a refusal is told: `bpf_set_retval` (6.1), for each error and on each kind of frontend.
    "endpoints/none-is-refused",
    "policy/internal-local-without-a-local-endpoint",
    // A set that changes under a socket.
    "endpoints/replaced",
    "endpoints/scaled-up-and-down",
    // Which network namespace a socket is in (5.14), and the addresses of the node's interfaces.
    "nodeport/",
    // sendmsg and recvmsg, and what a socket is remembered by.
    "udp/",
];

/// Beginnings of tests of other suites that take minutes in emulation, and ask of the kernel only what
/// others of their suite ask as well: that programs decide by what the agent wrote into maps, or that
/// maps of another size take the place of those that there are.
const SLOW: &[&str] = &[
    "edge::ranges::",
    "edge::resized::a_table_that_would_be_too_small",
    "edge::resized::connections_go_on",
    "edge::resized::datagrams_and_clients",
    "edge::resized::programs_of_before",
    "edge::timeouts::",
];

/// Whether a test is left out on emulated kernels.
pub(crate) fn is_left_out(test: &str) -> bool {
    let begins = |name: &str, with: &[&str]| with.iter().any(|begin| name.starts_with(begin));
    let scenario = test.strip_prefix(SCENARIOS);
    scenario.is_some_and(|scenario| !begins(scenario, REACHING)) || begins(test, SLOW)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use xtask::paths;

    use super::*;

    #[test]
    fn emulated_kernels_run_what_reaches_them() {
        assert!(is_left_out("traffic::topology/hints-by-zone"));
        assert!(!is_left_out("traffic::udp/connected"));
        assert!(!is_left_out("restart::topology/x"), "another suite");
        assert!(is_left_out("edge::timeouts::x"));
        assert!(!is_left_out("edge::restarted::x"));
    }

    #[test]
    fn every_kernel_loads_the_programs_and_full_runs_all_suites() {
        for line in Line::ALL {
            let some = suites(line, false);
            assert!(some.contains(&"load") && some.contains(&"traffic"));
            assert_eq!(suites(line, true).len(), SUITES.len());
        }
        assert!(!suites(Line::V5_10, false).contains(&"nftables"));
    }

    #[test]
    fn every_beginning_is_that_of_a_scenario() {
        let root = paths::workspace_root().join("tests/scenarios");
        for begin in REACHING {
            let (feature, behaviour) = begin.split_once('/').unwrap();
            let mut files = fs::read_dir(root.join(feature)).unwrap();
            let is_one = |name: &str| name.starts_with(behaviour);
            let found = files.any(|file| is_one(&file.unwrap().file_name().to_string_lossy()));
            assert!(found, "{begin}");
        }
    }

    #[test]
    fn every_slow_test_is_there() {
        let suites = paths::workspace_root().join("tests/suites");
        for begin in SLOW {
            let mut parts = begin.splitn(3, "::");
            let [suite, module, test] = [(); 3].map(|()| parts.next().unwrap());
            let file = suites.join(suite).join(module).with_extension("rs");
            let source = fs::read_to_string(file).unwrap();
            assert!(source.contains(&format!("fn {test}")), "{begin}");
        }
    }
}
