//! What is run on which kernel.
//!
//! Everything runs on the machine's own. Emulated ones take many times as long, so that they run what
//! that kernel can make a difference to: suites by what they ask of it, and of some suites the tests that
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
    // `bpf_set_retval` came with 6.1, and a socket's network namespace between the two.
    ("traffic", &[Line::V5_10, Line::V6_1]),
    // Programs on devices: clsact before 6.6; newer ones have links, as the machine's own has. What
    // needs a layer beneath is left out on the oldest.
    ("edge", &[Line::V5_10, Line::V6_1]),
    // Netfilter. The backend needs 5.13, and few kernels have virtual servers.
    ("leftovers", &[Line::V6_1]),
    ("nftables", &[Line::V6_1]),
    // The same where that backend cannot serve, and the oldest kernel where it can. Legacy tables are modules
    // there, which only others may load.
    ("iptables", &[Line::V5_10, Line::V6_1]),
    // Its rules with real packets, in the flavour that nodes with such a kernel have.
    (CONFORMANCE, &[Line::V5_10, Line::V6_1]),
    // Minutes in emulation: with `full` alone.
    ("conntrack", &[]),
    ("edge_faults", &[]),
    ("switch", &[]),
    ("layers", &[]),
];

/// The suites to run on this kernel; with `full`, all that depend on one.
pub(crate) fn suites(line: Line, full: bool) -> Vec<&'static str> {
    let here = SUITES.iter().filter(|(_, on)| full || on.contains(&line));
    here.map(|(name, _)| *name).collect()
}

/// Beginnings of the tests that reach what kernels differ in, of suites that have others: hooks, helpers,
/// and kinds of maps and devices. The others differ in what the model chooses, or what the agent does with
/// maps: the programs do the same.
const REACHING: &[(&str, &[&str])] = &[
    (
        "traffic",
        &[
            // connect, getpeername and the clock, in both families, and what is mapped between them.
            "affinity/",
            "clusterip/hairpin",
            "clusterip/ipv4-mapped",
            "clusterip/tcp-over-ipv4",
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
        ],
    ),
    (
        "edge",
        &[
            // How programs hang on devices, and what others do to that.
            "detached::",
            "devices::",
            // What the stack, conntrack and the other layer make of a packet.
            "journeys::",
            // Affinity, source ranges, and the other layer for the rest.
            "kept::endpoints_here",
            // Devices that this machine's kernel may lack.
            "kinds::",
            // Sums, errors and fragments.
            "narrow::",
            // What netfilter meets first, and the programs of pods.
            "bridged::",
            "masqueraded::",
            // Runs where nftables cannot.
            "alone::",
            "ranges::without_a_layer_beneath",
            // What stays when an agent is killed, and goes with `cleanup`.
            "restarted::",
        ],
    ),
    ("nftables", &["a_restart_adopts", "what_somebody_else_does"]),
    (
        "iptables",
        &[
            "a_restart_adopts",
            "checked::",
            // The value of a sysctl, and what the kernel makes of it.
            "neighbours::neighbours_reach",
        ],
    ),
];

const CONFORMANCE: &str = "conformance";

/// The same for `conformance`, of what it calls the dataplane: a scenario for each kind of rule.
const OF_RULES: &[&str] = &[
    "affinity/client-ip",
    "clusterip/tcp-over-ipv4",
    "endpoints/none-is-refused",
    "masquerade/with-a-cluster-cidr",
    "nodeport/on-loopback-for-local-sockets",
    "nodeport/tcp-over-ipv4",
    "packets/sourceranges/of-both-families",
    "policy/dropped-without-a-local-endpoint",
];

/// Which tests are left out on this kernel.
pub(crate) const fn left_out(line: Line) -> fn(&str) -> bool {
    match line {
        Line::V5_10 => |test| is_left_out(test, "iptables-legacy/"),
        Line::V6_1 | Line::V6_12 => |test| is_left_out(test, "iptables-nft/"),
    }
}

/// Whether a test is left out on emulated kernels, where `conformance` is of the dataplane that is called so.
fn is_left_out(test: &str, dataplane: &str) -> bool {
    let Some((suite, name)) = test.split_once("::") else {
        return false;
    };
    if suite == CONFORMANCE {
        // Alone, or beneath another.
        let name = name.strip_prefix("over-").unwrap_or(name);
        let scenario = name.strip_prefix(dataplane);
        let reaches = |scenario: &str| OF_RULES.iter().any(|begin| scenario.starts_with(begin));
        return !scenario.is_some_and(reaches);
    }
    let reaching = REACHING.iter().find(|(of, _)| *of == suite);
    reaching.is_some_and(|(_, beginnings)| !beginnings.iter().any(|begin| name.starts_with(begin)))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use xtask::paths;

    use super::*;

    #[test]
    fn emulated_kernels_run_what_reaches_them() {
        let [oldest, newer] = [Line::V5_10, Line::V6_1].map(left_out);
        assert!(oldest("traffic::topology/hints-by-zone"));
        assert!(!oldest("traffic::udp/connected"));
        assert!(!oldest("restart::topology/x"), "another suite");
        assert!(oldest("edge::timeouts::x"));
        assert!(!oldest("edge::restarted::x"));
        let legacy = "conformance::iptables-legacy/nodeport/tcp-over-ipv4";
        assert!(!oldest(legacy) && newer(legacy));
        assert!(!oldest(&legacy.replace("::", "::over-")));
        assert!(!newer("conformance::iptables-nft/nodeport/tcp-over-ipv4"));
        assert!(newer("conformance::iptables-nft/topology/hints-by-zone"));
        assert!(newer("conformance::ebpf/nodeport/tcp-over-ipv4"));
    }

    #[test]
    fn every_kernel_loads_the_programs_and_full_runs_all_suites() {
        for line in Line::ALL {
            assert!(suites(line, false).contains(&"load"));
            assert_eq!(suites(line, true).len(), SUITES.len());
        }
        assert!(!suites(Line::V5_10, false).contains(&"nftables"));
    }

    #[test]
    fn every_beginning_is_that_of_a_test() {
        let tests = paths::workspace_root().join("tests");
        let is_scenario = |begin: &str| {
            let begin = begin.strip_prefix("packets/").unwrap_or(begin);
            let (feature, behaviour) = begin.split_once('/').unwrap();
            let files = fs::read_dir(tests.join("scenarios").join(feature)).unwrap();
            let names = files.map(|file| file.unwrap().file_name());
            let mut names = names.map(|name| name.to_string_lossy().into_owned());
            names.any(|name| name.starts_with(behaviour))
        };
        for begin in OF_RULES {
            assert!(is_scenario(begin), "{begin}");
        }
        let read = |file: PathBuf| fs::read_to_string(file).unwrap_or_default();
        for (suite, beginnings) in REACHING {
            for begin in *beginnings {
                let of_suite = tests.join("suites").join(suite);
                let found = if begin.contains('/') {
                    is_scenario(begin)
                } else if let Some((module, test)) = begin.split_once("::") {
                    let source = read(of_suite.join(module).with_extension("rs"));
                    source.contains(&format!("fn {test}"))
                } else {
                    read(of_suite.with_extension("rs")).contains(&format!("fn {begin}"))
                };
                assert!(found, "{suite}: {begin}");
            }
        }
    }
}
