//! What is run on which kernel.
//!
//! Everything runs on the machine's own. Emulated ones take many times as long, so that they run what
//! a kernel can make a difference to: suites that load programs, and of the scenarios all on the
//! oldest one, where most is missing, and elsewhere those that reach what kernels differ in.

use crate::vm::kernels::Line;

/// Suites that depend on the kernel: loading, traffic through the socket hooks, and conntrack.
pub(crate) const ON_OTHER_KERNELS: &[&str] = &[
    "adopt",
    "conntrack",
    "leftovers",
    "load",
    "nftables",
    "repair",
    "restart",
    "traffic",
];

/// The suite whose tests are scenarios.
const SCENARIOS: &str = "traffic::";

/// Beginnings of the scenarios that reach what kernels differ in. Between them they go through every
/// hook, helper and kind of map. The others differ in which endpoints the model chooses: by then the
/// maps are filled in the same way, and the programs do the same with them.
const REACHING: &[&str] = &[
    // connect, getpeername and the clock, in both families, and what is mapped between them.
    "affinity/",
    "clusterip/",
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

/// Which tests are left out on this kernel.
pub(crate) fn left_out(line: Line) -> fn(&str) -> bool {
    match line {
        Line::V5_10 => |_| false,
        Line::V6_1 | Line::V6_12 => reaches_nothing,
    }
}

fn reaches_nothing(test: &str) -> bool {
    let scenario = test.strip_prefix(SCENARIOS);
    scenario.is_some_and(|scenario| !REACHING.iter().any(|begin| scenario.starts_with(begin)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use xtask::paths;

    use super::*;

    #[test]
    fn the_oldest_kernel_runs_all_and_others_what_reaches_the_kernel() {
        let topology = "traffic::topology/hints-by-zone";
        assert!(!left_out(Line::V5_10)(topology));
        for line in [Line::V6_1, Line::V6_12] {
            assert!(left_out(line)(topology));
            assert!(!left_out(line)("traffic::udp/connected"));
            assert!(!left_out(line)("restart::topology/x"), "another suite");
        }
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
}
